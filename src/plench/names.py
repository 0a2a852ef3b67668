"""Look-up of names regardless of case and punctuation, with the nearest ones offered for an unknown name."""

from collections.abc import Iterable
from difflib import get_close_matches

from plench.errors import UsageError


def normalise(name: str) -> str:
    """Reduce a name to its letters and digits: `Yahoo! News` → `yahoonews`, `pico+` → `picoplus`."""
    return "".join(c for c in name.lower().replace("+", "plus") if c.isalnum())


def find_name(name: str, known: Iterable[str], what: str) -> str:
    """Return the entry of `known` that `name` means; raise UsageError with the nearest entries otherwise."""
    by_normal = {normalise(entry): entry for entry in known}
    found = by_normal.get(normalise(name))
    if found is not None:
        return found
    raise unknown_name(name, by_normal.values(), what)


def unknown_name(name: str, known: Iterable[str], what: str) -> UsageError:
    """Return the error for a name that is not known; it offers the nearest, or else all."""
    by_normal = {normalise(entry): entry for entry in known}
    near = get_close_matches(normalise(name), by_normal, n=3, cutoff=0.5)
    if near:
        listed = ", ".join(by_normal[entry] for entry in near)
        hint = f"the nearest {'is' if len(near) == 1 else 'are'} {listed}"
    else:
        hint = "known are " + ", ".join(sorted(by_normal.values(), key=str.lower))
    return UsageError(f"unknown {what} {name!r}: {hint}")
