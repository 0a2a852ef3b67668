"""Three annotators disagree about 1,000 items: from CSV to predictions, on the command line and in Python."""

import csv
import json
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import plench
from plench.cli import main
from plench.data import make_table_dataset
from plench.errors import DataError
from plench.runs.folder import RunStore

FLOWERS = ("daisy", "poppy", "tulip")


def write_answers(folder: Path) -> tuple[Path, Path, list[str]]:
    """Write 1,000 items with features, and the answers of three annotators of different skill."""
    random = np.random.RandomState(7)
    items, answers, truths = ["item,length,width,colour"], ["item,annotator,label"], []
    for number in range(1000):
        truth = random.randint(3)
        truths.append(FLOWERS[truth])
        length, width = truth + random.randn() / 2, random.randn()
        colour = ("white", "red", "yellow")[truth if random.rand() < 0.7 else random.randint(3)]
        gap = "" if number % 50 == 0 else f"{length:.4f}"
        items.append(f"i{number},{gap},{width:.4f},{colour}")
        for name, skill in (("ann", 0.9), ("bob", 0.75), ("cyd", 0.6)):
            draw = random.rand()
            told = truth if random.rand() < skill else random.randint(3)
            first, second, third = (FLOWERS[(told + k) % 3] for k in range(3))
            limits = {0.05: "unsure", 0.15: f"not {second}", 0.3: f"{first}|{third}", 0.97: first}
            answer = next((answer for limit, answer in limits.items() if draw < limit), None)
            if answer is not None:
                answers.append(f"i{number},{name},{answer}")
    (folder / "items.csv").write_text("\n".join(items))
    (folder / "answers.csv").write_text("\n".join(answers))
    return folder / "items.csv", folder / "answers.csv", truths


@pytest.fixture(scope="module")
def story(tmp_path_factory):
    folder = tmp_path_factory.mktemp("story")
    return folder, *write_answers(folder)


def read_json(cli, *words: object):
    return json.loads(cli(*words).out)


def test_from_csv_to_predictions_on_the_command_line_and_in_python(story, cli):
    folder, items, answers, truths = story
    reference = f"{items}?answers=answers.csv"
    info = read_json(cli, "data", "info", reference, "--json")
    assert info["examples"] == 1000
    assert info["class_names"] == list(FLOWERS)
    assert info["answers"]["n_annotators"] == 3
    assert 0 < info["answers"]["agreement"] < 1
    assert info["answers"]["noise_by_annotators"] is None

    words = ["-d", reference, "--candidate_weights", "votes", "--steps", 200, "--checkpoint_freq", 100]
    outcome = read_json(cli, "train", "-a", "PRODEN", *words, "--output_dir", folder / "cli", "--json")
    assert outcome["status"] == "done"
    predictions = folder / "predictions.csv"
    assert main(["predict", outcome["folder"], str(items), "-o", str(predictions)]) == 0
    told = [row["label"] for row in csv.DictReader(predictions.open())]

    table, given = (list(csv.DictReader(path.open())) for path in (items, answers))
    columns = [{name: [row[name] for row in rows] for name in rows[0]} for rows in (table, given)]
    dataset = make_table_dataset(columns[0], "items", answers=columns[1])
    settings = {"candidate_weights": "votes", "steps": 200, "checkpoint_freq": 100}
    model = plench.load(plench.train("PRODEN", dataset, folder / "python", **settings).folder)
    assert list(model.predict(columns[0])) == told
    names = list(columns[0])
    assert list(model.predict({name: columns[0][name] for name in reversed(names)})) == told
    assert np.mean(np.array(told) == truths) > 0.8  # the annotators are right in 60 to 90 % of their labels


def test_weights_are_in_identity_and_cell_only_where_they_are_not_uniform(story):
    folder, items, _, _ = story
    reference = f"{items}?answers=answers.csv"
    runs = {
        weights: plench.train("CC", reference, folder / "weights", candidate_weights=weights, steps=20)
        for weights in ("uniform", "votes")
    }
    plain, weighted = (RunStore(runs[name].folder).read_run() for name in ("uniform", "votes"))
    assert plain["run_id"] != weighted["run_id"]
    assert weighted["config"]["candidate_weights"] == weighted["experiment"]["candidate_weights"] == "votes"
    assert "candidate_weights" not in {**plain["config"], **plain["experiment"]}
    logits = [plench.load(run.folder).predict_logits(items) for run in runs.values()]
    assert not np.array_equal(*logits)
    ignored = plench.train("CAVL", reference, folder / "weights", candidate_weights="votes", steps=3)
    assert any("CAVL ignores the weights" in text for text in RunStore(ignored.folder).read_run()["notices"])
    with pytest.raises(DataError, match="has no annotators' answers, which candidate_weights votes needs"):
        plench.train("CC", "Digits_FPS", folder / "weights", candidate_weights="votes", steps=3)


def test_without_true_labels_tables_rank_by_the_criteria_and_the_best_is_refitted(story, cli):
    folder, items, _, _ = story
    reference, runs = f"{items}?answers=answers.csv", folder / "sweep"
    size = {"n_hparams": 2, "n_trials": 2, "steps": 60, "checkpoint_freq": 20}
    plench.sweep(["CC", "PRODEN"], reference, runs, **size, progress=False)
    text = str(plench.collect(runs))
    assert all(
        part in text for part in ("no true labels", "are not accuracies", "CR chooses", "plench.load(")
    )
    assert "OA" not in text
    cells = [row for row in plench.results(runs).cells() if row["criterion"] == "CR"]
    assert all(row["mean_test_accuracy"] is None for row in cells)
    assert all(0 < row["mean_criterion"] <= 1 for row in cells)
    assert "itself, no true labels" in cli("stats", runs).out

    if find_spec("matplotlib") is not None:
        figure = folder / "boxes.svg"
        assert main(["plot", "boxes", str(runs), "--output", str(figure)]) == 0
        assert "No true labels: criterion" in figure.read_text()

    (best,) = read_json(cli, "sweep", "best", runs, "--criterion", "CR", "--json")
    top = max(cells, key=lambda row: row["mean_criterion"])
    assert best["algorithm"] == top["algorithm"]
    chosen = RunStore(Path(best["folder"])).read_run()
    outcome = read_json(cli, "refit", runs, "-d", reference, "--output_dir", folder / "refit", "--json")
    described = RunStore(Path(outcome["folder"])).read_run()
    assert described["dataset"]["n_train"] == 1000
    assert described["config"]["steps"] == best["step"] + 1
    assert described["config"]["hparams"] == chosen["config"]["hparams"]
    again = plench.refit(best["folder"], reference, folder / "refit")
    assert again.folder == Path(outcome["folder"])
    assert len(plench.load(again.folder).predict(items)) == 1000
    with pytest.raises(DataError, match="not the data of the run"):
        plench.refit(best["folder"], f"{reference}&ignore=width")
    with pytest.raises(DataError, match="name it again"):
        plench.refit(best["folder"])
