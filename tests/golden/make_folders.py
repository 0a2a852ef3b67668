"""Makes the folders of `folders/`: `python -m tests.golden.make_folders`, once, before issue 10.

They stand for what users of that commit have on their disks, so they are not made again when formats move.
"""

import os

os.environ["OMP_NUM_THREADS"] = "1"  # before torch is imported

import json
import shutil
import sys
from pathlib import Path

import plench
from tests.golden.adapter import command, stop_after
from tests.golden.cases import OWN_METHOD, TABULAR
from tests.synthetic_sweep import write_sweep

FOLDERS = Path(__file__).parent / "folders"
SWEEP, TIMED_OUT, UNFINISHED = (FOLDERS / name for name in ("sweep", "timed_out", "unfinished"))
MODELS, PUBLIC = (FOLDERS / name for name in ("models", "public"))
COMPUTING = ("--device", "cpu", "--threads", "1")
SHORT = ("--steps", "6", "--checkpoint_freq", "2", "--hparams", '{"batch_size": 64}')
UNFINISHED_RUN = (
    *("train", "-a", "PRODEN", "-d", str(TABULAR), "--steps", "9", "--checkpoint_freq", "2"),
    *("--hparams", '{"batch_size": 16}', *COMPUTING),
)


def make_folders() -> None:
    """Make runs of every ending: done, diverged, failed, timed out, interrupted; ours and the public ones."""
    shutil.rmtree(FOLDERS, ignore_errors=True)
    grid = ("--algorithms", "CC", "PRODEN", "--datasets", "Digits_FPS", "--n_hparams", "2", "--n_trials", "2")
    expect(
        0,
        *("sweep", "launch", *grid, *SHORT, "--output_dir", str(SWEEP), *COMPUTING),
        *("--workers", "1", "--skip_model_save", "--skip_confirmation"),
    )
    for name, code in (("Diverging", 0), ("Failing", 1)):
        words = ("-a", f"{OWN_METHOD}:{name}", "-d", "Digits_FPS", *SHORT, "--output_dir", str(SWEEP))
        expect(code, "train", *words, *COMPUTING, "--skip_model_save")
    expect(  # a run that the sweep, not the run itself, describes as failed
        1,
        *("sweep", "launch", "--algorithms", "CC", "--datasets", "Digits_USS", "--n_hparams", "1"),
        *("--n_trials", "1", "--steps", "1000000", "--checkpoint_freq", "1000000", "--run_timeout", "3"),
        *("--output_dir", str(TIMED_OUT), *COMPUTING, "--workers", "1", "--skip_confirmation"),
    )
    with stop_after(5):
        expect(130, *UNFINISHED_RUN, "--output_dir", str(UNFINISHED))
    expect(0, *UNFINISHED_RUN, "--seed", "1", "--output_dir", str(MODELS))
    write_sweep(PUBLIC, datasets=("Lost",), algorithms=("PRODEN", "CC"), n_trials=2, n_hparams=2, public=True)
    tidy()


def expect(code: int, *words: str) -> None:
    """Run a command that must end with the given exit code."""
    found, _, err = command(*words)
    assert found == code, f"exit code {found}: {err}"


def tidy() -> None:
    """Remove locks, and this machine's paths from the failed run's traceback."""
    here = {str(Path(plench.__file__).parent): "plench", str(OWN_METHOD.parent): "own", sys.prefix: "python"}
    for path in FOLDERS.rglob(".*lock"):
        path.unlink()
    for path in FOLDERS.rglob("run.json"):
        run = json.loads(path.read_text(encoding="utf-8"))
        if run["error"] is not None:
            for place, word in here.items():
                run["error"]["traceback"] = run["error"]["traceback"].replace(place, word)
            path.write_text(json.dumps(run, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    make_folders()
