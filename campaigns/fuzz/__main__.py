"""Attack every reader for a while and write down what happened: `make fuzz SECONDS=300`.

Findings go to tests/corpus, from where `make test` replays them. `--replay` does only that.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import platform
import sys
import time
from collections import Counter
from pathlib import Path

from campaigns.fuzz.child import GOOD, OUTCOMES, Keeper, Limits, Outcome, make_input, warm_up
from campaigns.fuzz.readers import READERS, Reader

CORPUS = Path(__file__).parents[2] / "tests" / "corpus"
KEPT_OF_A_KIND = 2
PER_TURN = 50  # files of one reader in a row


def main() -> int:
    """Run a campaign or a replay; the exit code says whether anything was found."""
    parser = argparse.ArgumentParser(prog="python -m campaigns.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="how long (60)")
    parser.add_argument("--seed", type=int, default=0, help="which files are made (0)")
    parser.add_argument(
        "--first", type=int, default=0, help="number of the first file, to go on where one ended"
    )
    parser.add_argument("--readers", nargs="*", default=[], help="only these")
    parser.add_argument("--limit_seconds", type=float, default=Limits.seconds, help="that one file may take")
    parser.add_argument(
        "--limit_mb", type=int, default=Limits.memory_bytes >> 20, help="of memory that one file may take"
    )
    parser.add_argument(
        "--output", type=Path, default=Path("fuzz-results"), help="folder of the page and figures"
    )
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
    """Attack the readers in turns until the time is over, then write the page."""
    counts: dict[str, Counter[str]] = {reader.name: Counter() for reader in readers}
    slowest: dict[str, float] = dict.fromkeys(counts, 0.0)
    findings: Counter[str] = Counter()
    start = time.monotonic()
    number = options.first
    while time.monotonic() - start < options.seconds:
        for reader in readers:
            for index in range(number, number + PER_TURN):
                if time.monotonic() - start >= options.seconds:
                    break
                content = make_input(reader, options.seed, index)
                outcome = keeper.read(reader, content)
                counts[reader.name][outcome.kind] += 1
                slowest[reader.name] = max(slowest[reader.name], outcome.seconds)
                if outcome.kind not in GOOD:
                    keep(reader, content, outcome, findings, options.corpus)
        number += PER_TURN
    figures = {
        "seed": options.seed,
        "first": options.first,
        "next": number,
        "seconds": round(time.monotonic() - start),
        "python": platform.python_version(),
        "limit_seconds": options.limit_seconds,
        "limit_mb": options.limit_mb,
        "readers": {name: dict(counts[name]) for name in counts},
        "slowest_seconds": {name: round(value, 2) for name, value in slowest.items()},
        "findings": dict(findings.most_common()),
    }
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / "fuzz.json").write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    page = make_page(figures)
    (options.output / "fuzz.md").write_text(page, encoding="utf-8")
    print(page)
    return 1 if findings else 0


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


def make_page(figures: dict[str, object]) -> str:
    """Return the figures as a page."""
    readers: dict[str, dict[str, int]] = figures["readers"]  # type: ignore[assignment]
    slowest: dict[str, float] = figures["slowest_seconds"]  # type: ignore[assignment]
    total = sum(sum(counts.values()) for counts in readers.values())
    bad = sum(count for counts in readers.values() for kind, count in counts.items() if kind not in GOOD)
    lines = [
        "# Damaged and forged files",
        "",
        f"{total:,} files, of which {bad:,} did harm. Each was read in a child process within "
        f"{figures['limit_seconds']:g} seconds and {figures['limit_mb']:,} MB beyond Python's own.",
        "",
        f"    python -m campaigns.fuzz --seed {figures['seed']} --first {figures['first']} "
        f"--seconds {figures['seconds']}    # Python {figures['python']}, up to file {figures['next']}",
        "",
        f"| reader | files | {' | '.join(OUTCOMES)} | slowest, s |",
        f"|---|{'---:|' * (len(OUTCOMES) + 2)}",
    ]
    for name, counts in readers.items():
        cells = " | ".join(f"{counts.get(kind, 0):,}" for kind in OUTCOMES)
        lines.append(f"| {name} | {sum(counts.values()):,} | {cells} | {slowest[name]:.2f} |")
    totals = " | ".join(f"{sum(counts.get(kind, 0) for counts in readers.values()):,}" for kind in OUTCOMES)
    lines.append(f"| all | {total:,} | {totals} | {max(slowest.values()):.2f} |")
    findings: dict[str, int] = figures["findings"]  # type: ignore[assignment]
    if findings:
        lines += ["", "Findings:", "", *(f"- {count:,} × {cause}" for cause, count in findings.items())]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
