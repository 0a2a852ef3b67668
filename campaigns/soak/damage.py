"""Ways in which a file of a run's folder can be torn, altered, lost, exchanged or replaced."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random

from plench.runs.folder import CHECKPOINTS, DONE, LOCK, RESULTS, RUN

Damage = Callable[[Path, Random, Path], None]

# Files of a run's folder; those that are not there are made, as an attacker or a mix-up would.
NAMES = (
    *(*CHECKPOINTS, RESULTS, RUN, DONE, LOCK, ".run.json.tmp"),
    *("model_last.pt", "model_CR.pt", "model_AA.pt"),
)


def cut(path: Path, random: Random, other: Path) -> None:
    """Leave out the end."""
    content = path.read_bytes()
    path.write_bytes(content[: random.randrange(len(content))] if content else b"?")


def flip(path: Path, random: Random, other: Path) -> None:
    """Change a bit."""
    content = bytearray(path.read_bytes() or b"\0")
    content[random.randrange(len(content))] ^= 1 << random.randrange(8)
    path.write_bytes(content)


def empty(path: Path, random: Random, other: Path) -> None:
    """Leave nothing."""
    path.write_bytes(b"")


def garble(path: Path, random: Random, other: Path) -> None:
    """Write something else."""
    path.write_bytes(
        random.choice((b"garbage", b"\0" * 500, b"done\n", b"{}", b"done\n{}\n", random.randbytes(300)))
    )


def append(path: Path, random: Random, other: Path) -> None:
    """Add a torn line."""
    path.write_bytes(
        path.read_bytes() + random.choice((b'{"step": 50, "lo', b"\0\0\0", b'{"step": 2}\n', b"\n"))
    )


def drop_line(path: Path, random: Random, other: Path) -> None:
    """Take out a line, or say one twice."""
    lines = path.read_bytes().splitlines(keepends=True) or [b"\n"]
    place = random.randrange(len(lines))
    lines[place : place + 1] = [lines[place]] * random.choice((0, 2))
    path.write_bytes(b"".join(lines))


def lose(path: Path, random: Random, other: Path) -> None:
    """Remove it."""
    path.unlink()


def exchange(path: Path, random: Random, other: Path) -> None:
    """Put another run's file in its place."""
    content = (other / path.name).read_bytes()
    path.unlink(missing_ok=True)
    path.write_bytes(content)


def put_folder(path: Path, random: Random, other: Path) -> None:
    """Put a folder in its place."""
    path.unlink(missing_ok=True)
    path.mkdir()


DAMAGES: tuple[Damage, ...] = (cut, flip, empty, garble, append, drop_line, lose, exchange, put_folder)


def damage_one(folder: Path, random: Random, other: Path) -> str:
    """Damage one file of a run's folder; return what was done to which. `other` is another run's folder."""
    there = [name for name in NAMES if (folder / name).is_file()]
    for _ in range(20):
        how = random.choice(DAMAGES)
        name = random.choice(there) if random.random() < 0.85 else random.choice(NAMES)
        path = folder / name
        try:
            how(path, random, other)
        except OSError:  # there is no such file here, or none of that name in the other run
            continue
        return f"{how.__name__} {name}"
    return "nothing"


def copy_folder(source: Path, to: Path) -> None:
    """Copy a run's folder as it is."""
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(
        source, to, symlinks=True, ignore=lambda place, names: [n for n in names if is_odd(Path(place, n))]
    )


def is_odd(path: Path) -> bool:
    """Say whether something is neither a file nor a folder nor a link."""
    return not (path.is_file() or path.is_dir() or path.is_symlink())
