"""Folders of runs: what they hold in the end, how two of them differ, and ways to damage one."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import torch

from plench.runs.folder import CHECKPOINTS, DONE, LOCK, RESULTS, RUN
from plench.training.checkpoint import parse, saved_values

MEASURED = ("step_time", "mem_gb")
# Between stacks of other members: numbers agree to rounding, which is all that is promised then.
LOSS_RTOL, ACCURACY_ATOL = 1e-3, 0.05
# Files of a run's folder; those that are not there are made, as a mix-up would.
NAMES = (
    *(*CHECKPOINTS, RESULTS, RUN, DONE, LOCK, ".run.json.tmp"),
    *("model_last.pt", "model_CR.pt", "model_AA.pt"),
)


def summarise(folder: Path) -> dict[str, Any]:
    """Return records without times, hashes of the models' values, status, and files that should be gone."""
    info = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    lines = (folder / "results.jsonl").read_text(encoding="utf-8").splitlines()
    names = [path.name for path in folder.iterdir()]
    return {
        "status": info["status"],
        "ended": (folder / "done").exists(),
        "records": [{k: v for k, v in json.loads(line).items() if k not in MEASURED} for line in lines],
        "models": {path.name: hash_model(path) for path in sorted(folder.glob("model_*.pt"))},
        "left": sorted(name for name in names if name.startswith("checkpoint") or name.endswith(".tmp")),
    }


def summarise_all(output: Path) -> dict[str, Any]:
    """Return what every run of an output folder holds."""
    return {path.parent.name: summarise(path.parent) for path in sorted(output.glob("*/run.json"))}


def hash_model(path: Path) -> str:
    """Return a hash of all values in a model's file. Bytes would depend on which tensors share memory."""
    payload = parse(path.read_bytes())
    digest = hashlib.sha256(f"{payload.get('run_id')} {payload['updates']}".encode())
    for name, value in saved_values(payload["algorithm"], "model"):
        if isinstance(value, torch.Tensor):
            digest.update(f"\0{name} {value.dtype} {tuple(value.shape)}".encode())
            digest.update(value.detach().contiguous().flatten().view(torch.uint8).numpy().tobytes())
        else:
            digest.update(f"\0{name} {value!r}".encode())
    return digest.hexdigest()


def compare(calm: dict[str, Any], found: dict[str, Any], *, exactly: bool = True) -> list[str]:
    """Return how a disturbed run differs from the undisturbed one, in any bit or by more than rounding."""
    differences = []
    expected, records = calm["records"], found["records"]
    if len(records) != len(expected):
        differences.append(f"{len(records)} records, not {len(expected)}")
    for one, other in zip(expected, records, strict=False):
        if exactly:
            same = one == other
        else:
            near = math.isclose(one["loss"], other["loss"], rel_tol=LOSS_RTOL)
            near &= math.isclose(one["test_acc"], other["test_acc"], abs_tol=ACCURACY_ATOL)
            same = near and one["step"] == other["step"]
        if not same:
            differences.append(f"the record of step {one['step']} changed")
    for name in sorted({*calm["models"], *found["models"]}):
        if name not in found["models"]:
            differences.append(f"{name} lost")
        elif exactly and calm["models"].get(name) != found["models"][name]:
            differences.append(f"{name} changed")
    for name in ("status", "ended", "left"):
        if calm[name] != found[name]:
            differences.append(f"{name} {found[name]!r}, not {calm[name]!r}")
    return differences


def drop_line(content: bytes, random: Random) -> bytes:
    """Take out a line, or repeat one."""
    lines = content.splitlines(keepends=True) or [b"\n"]
    place = random.randrange(len(lines))
    lines[place : place + 1] = [lines[place]] * random.choice((0, 2))
    return b"".join(lines)


def flip(content: bytes, random: Random) -> bytes:
    """Change a bit."""
    changed = bytearray(content or b"\0")
    changed[random.randrange(len(changed))] ^= 1 << random.randrange(8)
    return bytes(changed)


GARBAGE = (b"garbage", b"\0" * 500, b"done\n", b"{}", b"done\n{}\n")
TORN = (b'{"step": 50, "lo', b"\0\0\0", b'{"step": 2}\n', b"\n")
# What becomes of a file's bytes. `lose` and `exchange` (another run's file) are the two other damages.
CHANGES: dict[str, Callable[[bytes, Random], bytes]] = {
    "cut": lambda content, random: content[: random.randrange(len(content))] if content else b"?",
    "flip": flip,
    "empty": lambda content, random: b"",
    "garble": lambda content, random: random.choice((*GARBAGE, random.randbytes(300))),
    "append": lambda content, random: content + random.choice(TORN),
    "drop_line": drop_line,
}
DAMAGES = (*CHANGES, "lose", "exchange")


def damage(path: Path, how: str, random: Random, other: Path) -> None:
    """Damage a file; raises OSError if that cannot be done. `other` is another run's folder."""
    if how == "lose":
        path.unlink()
    elif how == "exchange":
        path.write_bytes((other / path.name).read_bytes())
    else:
        path.write_bytes(CHANGES[how](path.read_bytes(), random))


def damage_one(folder: Path, random: Random, other: Path) -> str:
    """Damage one file of a run's folder; return what was done to which."""
    there = [name for name in NAMES if (folder / name).is_file()]
    for _ in range(20):
        how = random.choice(DAMAGES)
        name = random.choice(there) if random.random() < 0.85 else random.choice(NAMES)
        try:
            damage(folder / name, how, random, other)
        except OSError:  # there is no such file here, or none of that name in the other run
            continue
        return f"{how} {name}"
    return "nothing"


def find_losses(before: Path, after: Path) -> list[str]:
    """Return the files that a refused command has changed or removed, except the lock."""
    changed = []
    for path in before.iterdir():
        kept = after / path.name
        # A checkpoint that cannot be read is useless and may go.
        useless = path.name.startswith("checkpoint") and not kept.exists()
        if path.name == ".lock" or path.suffix == ".tmp" or useless:
            continue
        if not kept.is_file() or kept.read_bytes() != path.read_bytes():
            changed.append(path.name)
    return changed
