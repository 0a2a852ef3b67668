"""Only the views that a run needs are made."""

import pytest

from plench.algorithms import find_algorithm
from plench.data import load_dataset
from plench.runs.folder import RunStore
from plench.training import configure_run
from plench.training.callbacks import NoCallback
from plench.training.run import TrainingRun


@pytest.mark.parametrize(
    ("name", "hparams", "made"),
    [
        ("PRODEN", {}, {"weak"}),
        ("PiCO", {"moco_queue": 64}, {"weak", "strong"}),
        ("FREDIS", {}, {"weak", "strong", "distill"}),
        ("FREDIS", {"views": 1}, {"weak"}),
        ("DIRK", {"moco_queue": 64}, {"weak", "strong", "distill"}),
        ("DIRK", {"weight": 0.0}, {"distill"}),
        ("RECORDS", {}, {"weak", "strong"}),
        ("RECORDS", {"base": "PRODEN"}, {"weak"}),
        ("CroSel", {}, {"original", "weak", "strong"}),
    ],
)
def test_a_batch_has_the_views_of_its_run(name, hparams, made, tmp_path):
    entry, dataset = find_algorithm(name), load_dataset("DigitImages")
    config = configure_run(
        entry, dataset.card, device="cpu", steps=2, hparams={"batch_size": 16, "model": "CNN", **hparams}
    )
    run = TrainingRun(config, dataset, entry, RunStore(tmp_path), NoCallback(), None)
    run.build()
    batch = run.training_set.next_batch()
    for view in ("original", "weak", "strong", "distill"):
        if view in made:
            assert batch.view(view).shape == (16, 1, 8, 8)
        else:
            with pytest.raises(AttributeError, match="did not declare"):
                batch.view(view)
    assert float(run.algorithm.update(batch)["loss"]) > 0
