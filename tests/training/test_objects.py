"""Classes, networks, criteria and datasets given as objects, also those of a notebook."""

import itertools
import json
import linecache
import textwrap
from pathlib import Path

import numpy as np
import pytest

import plench
from plench.algorithms import find_algorithm
from plench.algorithms.registry import ALGORITHMS
from plench.criteria import CRITERIA
from plench.data.sources import DATASETS
from plench.errors import UsageError
from plench.networks import NETWORKS
from plench.runs.records import read_run
from plench.training.repeat import verify_runs

IMPORTS = """
    import numpy as np
    import torch
    import torch.nn.functional as F
    from torch import Tensor, nn
    from plench.algorithms import Batch, LossAlgorithm, register
    from plench.criteria import Criterion
    from plench.data import Dataset, DatasetCard
    from plench.data.sources.base import Source
    from plench.hparams import Choice, Hyperparameter
    from plench.networks import Network

    HEAT = 1.5
    weights = torch.ones(3)
"""
METHOD = """
    def soft(logits, candidates):
        return (logits / HEAT).masked_fill(~candidates, float("-inf")).softmax(-1)

    @register("Own", hyperparameters=(Hyperparameter("keep", 0.9, "a share", Choice(0.5, 0.9)),))
    class Own(LossAlgorithm):
        def setup(self, candidates: Tensor) -> None:
            self.weights = len(candidates)  # not the notebook's tensor of that name

        def loss(self, logits: Tensor, batch: Batch) -> Tensor:
            targets = soft(logits.detach(), batch.candidates)
            return -(targets * F.log_softmax(logits, -1)).sum(-1).mean() * self.hparams["keep"]

    class Weighted(Own):
        def loss(self, logits: Tensor, batch: Batch) -> Tensor:
            return super().loss(logits, batch) * weights.mean()
"""
PARTS = """
    class Wide(nn.Module):
        def __init__(self, shape):
            super().__init__()
            self.n_outputs = 8
            self.layer = nn.Linear(shape[0], 8)

        def forward(self, x):
            return self.layer(x).relu()

    WIDE = Network("Wide", "one layer of 8", Wide)

    def peak(logits, candidates, labels):
        return float(np.max(logits, 1).mean())

    PEAK = Criterion("PEAK", "Peak", "mean of the largest logit", "val_peak", peak, False, position=99)

    def load(folder):
        random = np.random.default_rng(0)
        x = random.normal(size=(120, 4)).astype(np.float32)
        labels = (x[:, 0] > 0).astype(int)
        return Dataset(x, np.eye(3, dtype=bool)[labels] | (random.random((120, 3)) < 0.3), labels, CARD)

    CARD = DatasetCard("Peas", "tabular", "peas", "made up", "none", "none", default_steps=50)
    PEAS = Source(CARD, load)
"""
CELLS = itertools.count()


def run_cells(*cells: str) -> dict[str, object]:
    """Run cells as a notebook does: in `__main__`, their source known to linecache only."""
    names: dict[str, object] = {"__name__": "__main__"}
    for cell in cells:
        text, file = textwrap.dedent(cell), f"/nowhere/ipykernel_1/{next(CELLS)}.py"
        linecache.cache[file] = (len(text), None, text.splitlines(True), file)
        exec(compile(text, file, "exec"), names)
    return names


def read_json(folder: Path) -> dict[str, object]:
    return json.loads((folder / "run.json").read_text(encoding="utf-8"))


@pytest.fixture(autouse=True)
def leave_no_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget after a test what it loaded: a criterion is measured and shown wherever it is known."""
    for registry in (ALGORITHMS, NETWORKS, CRITERIA, DATASETS):
        monkeypatch.setattr(registry, "loaded", dict(registry.loaded))


def test_a_run_of_a_notebooks_parts_is_repeated_from_its_folder(tmp_path, monkeypatch) -> None:
    cells = run_cells(IMPORTS, METHOD, PARTS)
    options = {"steps": 6, "hparams": {"model": cells["WIDE"]}, "more_criteria": cells["PEAK"]}
    outcome = plench.train(cells["Own"], cells["PEAS"], tmp_path, progress=False, **options)
    described = read_json(outcome.folder)
    assert "not_repeatable" not in described
    assert described["config"]["algorithm"].startswith("Own@")
    # Another session knows nothing but the folder.
    for registry in (ALGORITHMS, NETWORKS, CRITERIA, DATASETS):
        monkeypatch.setattr(registry, "loaded", {})
    (verdict,) = verify_runs([read_run(outcome.folder)])
    assert (verdict.differences, verdict.conditions) == ([], [])
    assert len(plench.load(outcome.folder).predict(np.zeros((2, 4), np.float32))) == 2


def test_the_name_follows_what_the_class_uses() -> None:
    first, again = (find_algorithm(run_cells(IMPORTS, METHOD)["Own"]) for _ in range(2))
    other = find_algorithm(run_cells(IMPORTS, "HEAT = 2.0", METHOD)["Own"])
    assert first.name == again.name != other.name
    assert find_algorithm(first.cls).name == first.name


@pytest.mark.parametrize("how", ["global", "changed", "local", "no source"])
def test_what_is_not_self_contained_is_marked_and_refused_by_sweeps(tmp_path, how) -> None:
    cells = run_cells(IMPORTS, METHOD)
    cls, words = cells["Weighted"], "weights is a Tensor"
    if how == "changed":
        cls, words = cells["Own"], "Own.loss is not as the source of Own has it"
        cls.loss = lambda self, logits, batch: logits.logsumexp(-1).mean()
    elif how == "local":
        cls, words = type("Local", (cells["Own"],), {}), "the source of Local cannot be found"
    elif how == "no source":
        cls, words = cells["Own"], "the source of Own cannot be found"
        linecache.clearcache()
    outcome = plench.train(cls, "Digits_FPS", tmp_path, steps=2, progress=False)
    described = read_json(outcome.folder)
    assert words in described["not_repeatable"][0]
    assert described["notices"] == described["not_repeatable"]
    assert not (outcome.folder / "algorithm.py").exists()
    assert len(plench.load(outcome.folder).predict(np.zeros((2, 64), np.float32))) == 2  # in this session
    assert plench.train(cls, "Digits_FPS", tmp_path, steps=2, progress=False).message == "already finished"
    (verdict,) = verify_runs([read_run(outcome.folder)])
    assert words in verdict.differences[0]
    with pytest.raises(UsageError, match="a sweep runs in other processes") as refused:
        plench.sweep(cls, "Digits_FPS", tmp_path / "sweep", n_hparams=1, n_trials=1, steps=2, progress=False)
    assert words in str(refused.value)


def test_a_sweep_of_a_notebooks_parts(tmp_path) -> None:
    cells = run_cells(IMPORTS, METHOD, PARTS)
    options = {"n_hparams": 1, "n_trials": 1, "steps": 4, "workers": 1, "progress": False}
    options |= {"hparams": {"model": cells["WIDE"]}, "more_criteria": [cells["PEAK"]]}
    swept = plench.sweep([cells["Own"], "CC"], cells["PEAS"], tmp_path, **options)
    assert swept.exit_code == 0
    assert repr(swept) == "<SweepOutcome of 2 runs: done 2>"  # what a notebook shows of any number of runs
    assert plench.sweep([cells["Own"], "CC"], cells["PEAS"], tmp_path, **options).exit_code == 0
    rows = plench.results(tmp_path).cells()
    assert {row["algorithm"].split("@")[0] for row in rows} == {"Own", "CC"}
    assert "PEAK" in {row["criterion"].split("@")[0] for row in rows}


def test_classes_of_modules_have_the_identity_that_they_have_by_name(tmp_path) -> None:
    assert find_algorithm(find_algorithm("PRODEN").cls).name == "PRODEN"
    file = tmp_path / "in_a_file.py"
    file.write_text(textwrap.dedent(IMPORTS) + textwrap.dedent(METHOD))
    by_path = find_algorithm(f"{file}:Own")
    assert find_algorithm(by_path.cls).name == by_path.name
    assert ALGORITHMS.write_spec(by_path.cls, tmp_path) == f"{file}:Own"


def test_check_and_the_classifier_take_a_class() -> None:
    cls = run_cells(IMPORTS, METHOD)["Own"]
    report = plench.check(cls)
    assert report.passed
    assert report.algorithm == find_algorithm(cls).name
    assert "0 failed" in str(report)
    x = np.random.default_rng(0).normal(size=(60, 3)).astype(np.float32)
    classes = np.eye(3, dtype=bool)[(x[:, 0] > 0).astype(int)]
    assert plench.PartialLabelClassifier(cls, steps=5).fit(x, classes).algorithm_ == report.algorithm


def test_other_objects_are_refused() -> None:
    with pytest.raises(UsageError, match="is not a subclass of plench"):
        plench.train(dict, "Digits_FPS", progress=False)
    with pytest.raises(UsageError, match="is not a plench"):
        plench.train("CC", "Digits_FPS", more_criteria=[3], progress=False)
