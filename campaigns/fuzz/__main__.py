"""Attack every reader for a while and write down what happened: `make fuzz SECONDS=300`.

Findings go to tests/corpus, from where `make test` replays them. `--replay` does only that.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from campaigns.figures import read_figures, write_figures, write_pages
from campaigns.forked import keep_in_memory
from campaigns.fuzz.child import (
    FILES_OF_A_CHILD,
    GOOD,
    OUTCOMES,
    Keeper,
    Limits,
    Outcome,
    make_input,
    warm_up,
)
from campaigns.fuzz.readers import READERS, Reader

CORPUS = Path(__file__).parents[2] / "tests" / "corpus"
KEPT_OF_A_KIND = 2
PER_TURN = 50  # files of one reader in a row
SLOW_PER_TURN = 8


def main() -> int:
    """Run a campaign or a replay; the exit code says whether anything was found."""
    parser = argparse.ArgumentParser(prog="python -m campaigns.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="how long (60)")
    parser.add_argument("--seed", type=int, default=0, help="which files are made (0)")
    parser.add_argument("--files", type=int, help="stop earlier, at so many files of this campaign in all")
    parser.add_argument("--readers", nargs="*", default=[], help="only these")
    parser.add_argument("--limit_seconds", type=float, default=Limits.seconds, help="that one file may take")
    parser.add_argument(
        "--limit_mb", type=int, default=Limits.memory_bytes >> 20, help="of memory that one file may take"
    )
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("fuzz-results"),
        help="folder of the page and figures; a campaign whose figures are there is gone on with",
    )
    parser.add_argument("--page", type=Path, help="also write the page here")
    parser.add_argument("--corpus", type=Path, default=CORPUS, help="folder of found files")
    parser.add_argument("--replay", action="store_true", help="only read the files of the corpus again")
    options = parser.parse_args()
    unknown = set(options.readers) - {reader.name for reader in READERS}
    if unknown:
        parser.error(
            f"unknown reader {min(unknown)!r}: known are {', '.join(reader.name for reader in READERS)}"
        )
    readers = tuple(reader for reader in READERS if not options.readers or reader.name in options.readers)
    limits = Limits(options.limit_seconds, options.limit_mb << 20)
    keep_in_memory()
    warm_up(readers, lambda text: print(text, file=sys.stderr))
    keeper = Keeper(limits)
    try:
        if options.replay:
            return replay(readers, options.corpus, keeper)
        return attack(readers, options, keeper)
    finally:
        keeper.stop()


def replay(readers: tuple[Reader, ...], corpus: Path, keeper: Keeper) -> int:
    """Read every file of the corpus; print one line of JSON a file."""
    bad = 0
    for reader in readers:
        for path in sorted((corpus / reader.name.replace(" ", "-")).glob("*")):
            outcome = keeper.read(reader, path.read_bytes())
            bad += outcome.kind not in GOOD
            print(
                json.dumps(
                    {"file": f"{reader.name}/{path.name}", "outcome": outcome.kind, "where": outcome.where}
                )
            )
    return 1 if bad else 0


def attack(readers: tuple[Reader, ...], options: argparse.Namespace, keeper: Keeper) -> int:
    """Attack the readers in turns until the time is over or there were enough files, then write the page.

    The figures are written after every turn: a campaign that was stopped goes on where it ended, with the
    next number of every reader.
    """
    figures = begin(readers, options)
    read_again(readers, figures, options.corpus, keeper)
    counts: dict[str, Counter[str]] = {name: Counter(found) for name, found in figures["readers"].items()}
    slowest: dict[str, float] = figures["slowest_seconds"]
    findings: Counter[str] = Counter(figures["findings"])
    start, before = time.monotonic(), figures["seconds"]

    def over() -> bool:
        enough = options.files and sum(sum(count.values()) for count in counts.values()) >= options.files
        return bool(enough) or time.monotonic() - start >= options.seconds

    while not over():
        for reader in readers:
            for _ in range(SLOW_PER_TURN if reader.slow else PER_TURN):
                if over():
                    break
                number = sum(counts[reader.name].values())
                content = make_input(reader, options.seed, number)
                outcome = keeper.read(reader, content)
                counts[reader.name][outcome.kind] += 1
                slowest[reader.name] = max(slowest[reader.name], round(outcome.seconds, 2))
                if outcome.kind not in GOOD:
                    keep(reader, content, outcome, findings, options.corpus)
        figures["readers"] = {name: dict(counts[name]) for name in counts}
        figures["findings"] = dict(findings.most_common())
        figures["seconds"] = before + round(time.monotonic() - start)
        write_figures(figures, options.output / "fuzz.json")
    write_pages(make_page(figures), options.output / "fuzz.md", options.page)
    return 1 if findings else 0


def begin(readers: tuple[Reader, ...], options: argparse.Namespace) -> dict[str, Any]:
    """Return the figures of an earlier campaign of the same seed, or those of a new one."""
    empty = {"readers": {}, "slowest_seconds": {}, "findings": {}}
    figures = read_figures(options.output / "fuzz.json", options.seed, empty)
    figures.setdefault("mended", {})
    figures["limit_seconds"], figures["limit_mb"] = options.limit_seconds, options.limit_mb
    for reader in readers:
        figures["readers"].setdefault(reader.name, {})
        figures["slowest_seconds"].setdefault(reader.name, 0.0)
    return figures


def read_again(readers: tuple[Reader, ...], figures: dict[str, Any], corpus: Path, keeper: Keeper) -> None:
    """Read the files that did harm once more: a finding whose kept files do none any more is mended."""
    for cause in [*figures["findings"]]:
        name, kind, _ = cause.split(": ", 2)
        kept = sorted((corpus / name.replace(" ", "-")).glob(f"{kind}-*"))
        now = [
            keeper.read(reader, path.read_bytes()).kind
            for reader in readers
            for path in kept
            if reader.name == name
        ]
        if now and all(outcome in GOOD for outcome in now):
            count = figures["findings"].pop(cause)
            figures["mended"][cause] = figures["mended"].get(cause, 0) + count
            counts = figures["readers"][name]
            counts[kind] -= count
            counts[now[0]] = counts.get(now[0], 0) + count


def keep(reader: Reader, content: bytes, outcome: Outcome, findings: Counter[str], corpus: Path) -> None:
    """Put a finding into the corpus, unless enough of its kind are there, and say it."""
    cause = f"{reader.name}: {outcome.kind}: {outcome.where}"
    findings[cause] += 1
    if findings[cause] > KEPT_OF_A_KIND:
        return
    folder = corpus / reader.name.replace(" ", "-")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{outcome.kind}-{hashlib.sha256(content).hexdigest()[:12]}").write_bytes(content)
    print(f"{cause} ({len(content):,} bytes)", file=sys.stderr, flush=True)


def make_page(figures: dict[str, Any]) -> str:
    """Return the figures as a page."""
    readers: dict[str, dict[str, int]] = figures["readers"]
    slowest: dict[str, float] = figures["slowest_seconds"]
    total = sum(sum(counts.values()) for counts in readers.values())
    bad = sum(count for counts in readers.values() for kind, count in counts.items() if kind not in GOOD)
    mended: dict[str, int] = figures["mended"]
    n_mended = sum(mended.values())
    before = (
        f" in the end: {n_mended:,} had, and were read again when their causes were mended" if mended else ""
    )
    lines = [
        "# Damaged and forged files",
        "",
        f"{total:,} files, of which {bad:,} did harm{before}. Each was read in a child process within "
        f"{figures['limit_seconds']:g} seconds of the processor and {figures['limit_mb']:,} MB beyond "
        f"Python's own. A child reads up to {FILES_OF_A_CHILD:,} files; harm is tried again in a new one, "
        "and counts in any case.",
        "",
        f"    python -m campaigns.fuzz --seed {figures['seed']} --files {total} "
        f"--seconds {figures['seconds']}    # the same command continues it",
        "",
        f"Python {figures['python']}; at commit {', then '.join(figures['commits'])}. A file is made from "
        "good ones, by the seed, its reader and its number.",
        "",
        f"| reader | files | {' | '.join(OUTCOMES)} | slowest, s |",
        f"|---|{'---:|' * (len(OUTCOMES) + 2)}",
    ]
    for name, counts in readers.items():
        cells = " | ".join(f"{counts.get(kind, 0):,}" for kind in OUTCOMES)
        lines.append(f"| {name} | {sum(counts.values()):,} | {cells} | {slowest[name]:.2f} |")
    totals = " | ".join(f"{sum(counts.get(kind, 0) for counts in readers.values()):,}" for kind in OUTCOMES)
    lines.append(f"| all | {total:,} | {totals} | {max(slowest.values()):.2f} |")
    findings: dict[str, int] = figures["findings"]
    if findings:
        lines += ["", "Findings:", "", *(f"- {count:,} × {cause}" for cause, count in findings.items())]
    if mended:
        lines += ["", "Found by this campaign, mended, and read again without harm (so counted above):", ""]
        lines += [f"- {count:,} × {cause}" for cause, count in mended.items()]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
