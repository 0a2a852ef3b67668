"""Repeating stored runs: bit-equal under the same conditions, else within a tolerance; submissions."""

import json
import re
import shlex
import shutil
from dataclasses import replace

import pytest

from plench.cli import main
from plench.report.site.content import launch_command
from plench.runs import read_runs
from plench.runs.records import Record
from plench.runs.verify import choose_sample, compare_conditions, compare_runs
from plench.training.config import RunConfig
from plench.training.repeat import find_stack

METHOD = """
from pathlib import Path

from plench.algorithms import LossAlgorithm, register

Path(__file__).with_name("executed").touch()


@register("MeanCandidate")
class Method(LossAlgorithm):
    \"\"\"Cross entropy averaged over the candidates.\"\"\"

    def loss(self, logits, batch):
        weights = batch.candidates / batch.candidates.sum(-1, keepdim=True)
        return -(weights * logits.log_softmax(-1)).sum(-1).mean()
"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Three real runs of two algorithms."""
    folder = tmp_path_factory.mktemp("runs")
    for algorithm, configuration in (("PRODEN", 0), ("PRODEN", 1), ("CC", 0)):
        words = ["train", "-a", algorithm, "-d", "Digits_FPS", "--steps", "12", "--checkpoint_freq", "4"]
        words += ["--hparams_seed", str(configuration), "--output_dir", str(folder), "--skip_model_save"]
        assert main(words) == 0
    return folder


@pytest.fixture(scope="module")
def submission(tmp_path_factory):
    """A folder with a method's file, and the sweep of it, in `runs`."""
    folder = tmp_path_factory.mktemp("submission")
    (folder / "method.py").write_text(METHOD)
    words = ["sweep", "launch", "--algorithms", f"{folder / 'method.py'}:Method", "--datasets", "Digits_FPS"]
    words += ["--n_hparams", "2", "--n_trials", "2", "--steps", "12", "--checkpoint_freq", "4"]
    words += ["--workers", "1", "--skip_confirmation", "--skip_model_save"]
    assert main([*words, "--output_dir", str(folder / "runs")]) == 0
    return folder


def edit_run(folder, **changes):
    """Change keys of the first run's run.json."""
    path = min(folder.glob("*/run.json"))
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def edit_experiment(folder, **changes):
    info = json.loads(min(folder.glob("*/run.json")).read_text())
    edit_run(folder, experiment={**info["experiment"], **changes})


def edit_record(folder, number, **changes):
    """Change one record of the first run."""
    path = min(folder.glob("*/results.jsonl"))
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    lines[number].update(changes)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_repeated_runs_are_bit_equal(runs, tmp_path, cli):
    file = tmp_path / "results.parquet"
    assert main(["export", str(runs), "-o", str(file)]) == 0
    for place in (runs, file):
        said = cli("verify", place, "--sample", "5").out
        assert said.count("bit-equal") == 3
        assert "3 of 3 repeated runs agree" in said


def test_a_changed_record_is_found(runs, tmp_path, cli):
    folder = shutil.copytree(runs, tmp_path / "runs")
    edit_record(folder, 2, test_acc=0.125)
    said = cli("verify", folder, "--sample", "3", code=1).out
    assert re.search(r"DIFFERS: step 8: test_acc is 0\.\d+, not 0\.125", said)
    assert "2 of 3 repeated runs agree" in said
    assert "--other-processor" in said
    said = cli("verify", folder, "--sample", "3", "--other_processor").out
    assert said.count("within 0.05, largest difference of the last record 0.0000") == 3
    assert said.count("(different here: processor)") == 3
    assert said.count("(test_acc at step 8)") == 1


def test_other_conditions_ask_for_the_tolerance_only(runs, tmp_path, cli):
    folder = shutil.copytree(runs, tmp_path / "runs")
    edit_run(folder, versions={**read_runs(folder)[0].info["versions"], "torch": "1.0"})
    assert cli("verify", folder, "--sample", "3").out.count("(different here: torch 1.0 →") == 1
    edit_record(folder, -1, test_acc=0.125)
    assert "more than 0.05 apart" in cli("verify", folder, "--sample", "3", code=1).out
    assert main(["verify", str(folder), "--sample", "3", "--tolerance", "1"]) == 0


def test_a_stacked_run_is_repeated_alone_to_the_tolerance(runs, tmp_path, cli):
    folder = shutil.copytree(runs, tmp_path / "runs")
    edit_run(folder, fleet_size=4)
    said = cli("verify", folder, "--sample", "3").out
    assert said.count("(different here: stacked with 3 others → single)") == 1


def test_a_stacked_run_is_repeated_with_its_stack(tmp_path, cli):
    words = ["--algorithms", "PRODEN", "--datasets", "Digits_FPS", "--n-trials", "1", "--n-hparams", "3"]
    words += ["--steps", "9", "--checkpoint-freq", "4", "--workers", "1", "--stack", "3"]
    words += ["--skip-confirmation", "--hparams", '{"batch_size": 32}']  # runs of one stack share it
    assert main(["sweep", "launch", *words, "--output-dir", str(tmp_path / "runs")]) == 0
    stored = read_runs(tmp_path / "runs")
    assert {run.stack_size for run in stored} == {3}
    assert {tuple(run.info["stack"]) for run in stored} == {tuple(stored[0].info["stack"])}
    # The sweep file and the command made from it form the same stacks.
    (file,) = (tmp_path / "runs").glob("sweep-*.toml")
    command = shlex.split(launch_command(str(file), file.read_text(), None))
    assert command[-8:] == shlex.split(
        "--stack-memory-gb 1.0 --command-launcher local --threads 1 --workers 1"
    )
    command[command.index("RUNS")] = str(tmp_path / "again")
    assert main([*command[1:], "--skip-confirmation"]) == 0
    again = read_runs(tmp_path / "again")
    assert [run.info["stack"] for run in again] == [run.info["stack"] for run in stored]
    assert cli("verify", tmp_path / "runs", "--sample", "3").out.count(": bit-equal") == 3
    shutil.rmtree(stored[0].path)
    said = cli("verify", tmp_path / "runs", "--sample", "1").out
    assert re.search(r"within 0\.05, largest difference of the last record 0\.0\d+", said)
    assert "(different here: stacked with 2 others → single)" in said


def test_a_forged_stack_executes_no_third_party_code(runs, submission):
    own, foreign = read_runs(runs)[0], read_runs(submission / "runs")[0]
    by_id = {"a": own, "b": foreign}
    forged = replace(own, info={**own.info, "stack": ["a", "b"]})
    assert find_stack(forged, {**by_id, "a": forged}) == [forged]


def test_what_cannot_be_repeated_is_said(runs, tmp_path, cli):
    folder = shutil.copytree(runs, tmp_path / "runs")
    edit_run(folder, run_id="0" * 32)
    assert "its run_id is not that of its configuration" in cli("verify", folder, "--sample", "3", code=1).out
    edit_run(folder, config={"trial_seed": 0, "hparams_seed": 0, "seed": 0})
    assert "cannot be repeated: " in cli("verify", folder, "--sample", "3", code=1).out


def test_the_sample_is_drawn_by_the_seed(runs):
    found = read_runs(runs)
    drawn = {seed: [run.path.name for run in choose_sample(found, 1, seed, False)[0]] for seed in range(8)}
    assert drawn[3] == [run.path.name for run in choose_sample(list(reversed(found)), 1, 3, False)[0]]
    assert len({tuple(names) for names in drawn.values()}) > 1


def test_bad_usage(runs, submission, cli):
    source, nothing = ["submit", "check", str(submission / "runs")], ["--source", "nothing.py"]
    for words, said in (
        (["verify", str(runs), "--sample", "0"], "--sample must be"),
        (["verify", str(runs), "--tolerance", "2"], "--tolerance must"),
        (source, "--source FILE"),
        ([*source, *nothing], "cannot read the algorithm's file 'nothing.py'"),
    ):
        assert said in cli(*words, code=2).err


def test_comparing_conditions_and_records(runs):
    assert compare_conditions({"torch": "1", "cpu": "A"}, {"torch": "1", "cpu": "A"}, ("torch", "cpu")) == []
    assert compare_conditions({"torch": "1"}, {"torch": "2", "cpu": "A"}, ("torch", "cpu")) == [
        "torch 1 → 2",
        "cpu unknown → A",
    ]
    run = read_runs(runs)[0]
    record = run.records[1]
    assert compare_runs(run, run, exact=True) == []
    for change, expected in (
        ({"step_time": 9.0}, []),
        ({"logged": {"x": 1.0}}, [f"step {record.step}: logged x is 1.0, not None"]),
    ):
        changed = Record(record.step, {**record.values, **change})
        other = replace(run, records=(run.records[0], changed, *run.records[2:]))
        assert compare_runs(run, other, exact=True) == expected
    assert compare_runs(run, replace(run, status="diverged"), exact=False) == ["ended as diverged, not done"]
    assert "other steps" in compare_runs(run, replace(run, records=run.records[:-1]), exact=False)[0]


def test_code_of_others_is_run_only_with_leave(submission, cli):
    executed = submission / "executed"
    executed.unlink(missing_ok=True)
    runs = submission / "runs"
    copies = list(runs.glob("*/executed"))
    for path in copies:
        path.unlink()
    said = cli("verify", runs, code=2).err
    assert "--run-code allows it" in said
    assert "no finished run that could be repeated" in said
    assert main(["submit", "check", str(runs), "--source", str(submission / "method.py")]) == 0
    assert not executed.exists()
    assert not list(runs.glob("*/executed"))
    assert "bit-equal" in cli("verify", runs, "--run_code", "--sample", "1").out


def test_a_whole_submission_passes_and_merges(submission, runs, tmp_path, cli):
    source, mine, base = submission / "method.py", tmp_path / "mine.parquet", tmp_path / "base.parquet"
    assert main(["export", str(submission / "runs"), "-o", str(mine)]) == 0
    assert main(["export", str(runs), "-o", str(base)]) == 0
    words = ["submit", "check", str(mine), "--source", str(source), "--against", str(base)]
    said = cli(*words).out
    assert said.count(": good") == 5
    assert "passed" in said
    assert "No run was repeated" in said
    assert "bit-equal" in cli(*words, "--run_code", "--sample", "1").out
    merged = tmp_path / "new.parquet"
    words = ["submit", "merge", str(base), str(mine), "--source", str(source), "-o", str(merged)]
    assert "7 runs" in cli(*words).out
    names = [run.path.name for place in (runs, submission / "runs") for run in read_runs(place)]
    assert sorted(run.path.name for run in read_runs(merged)) == sorted(names)
    assert main([*words[:2], str(merged), *words[3:]]) == 0, "merging again adds nothing"
    assert len(read_runs(merged)) == 7


def rewrite(folder, pattern, change):
    """Change the text of the first file of this name."""
    path = min(folder.glob(pattern))
    path.write_text(change(path.read_text()))


# What a check prints, and how to get there.
SPOILED = {
    "1 of 4 planned runs are missing, split 1, configuration 0": lambda folder: shutil.rmtree(
        min(folder.glob("runs/*-t1-*"))
    ),
    "1 planned runs are not finished (failed)": lambda folder: edit_run(folder / "runs", status="failed"),
    "were made with another file than method.py": lambda folder: rewrite(
        folder, "method.py", lambda text: text + "# improved\n"
    ),
    "runs of protocol version 99": lambda folder: edit_experiment(folder / "runs", protocol=99),
    "has runs on data of different content": lambda folder: edit_experiment(
        folder / "runs", dataset_fingerprint="f" * 64
    ),
    "no sweep file says what was planned": lambda folder: min(folder.glob("runs/*.toml")).unlink(),
    "not 0, 1, 2, … without a gap": lambda folder: rewrite(
        folder, "runs/*.toml", lambda text: text.replace("n_hparams_from = 0", "n_hparams_from = 1")
    ),
    "not JSON": lambda folder: rewrite(folder, "runs/*/results.jsonl", lambda text: "{broken\n" + text),
    "its last record is missing": lambda folder: rewrite(
        folder, "runs/*/results.jsonl", lambda text: text[: text.rindex("\n", 0, -1) + 1]
    ),
}


@pytest.mark.parametrize("said", SPOILED)
def test_what_is_wrong_with_a_submission_is_named(submission, runs, tmp_path, cli, said):
    folder = shutil.copytree(submission, tmp_path / "copy")
    SPOILED[said](folder)
    source = str(folder / "method.py")
    out = cli("submit", "check", folder / "runs", "--source", source, code=1).out
    assert said in out
    assert "NOT passed" in out
    target = tmp_path / "x.parquet"
    words = ["submit", "merge", str(runs), str(folder / "runs"), "--source", source]
    assert main([*words, "-o", str(target)]) == 1
    assert not target.exists()


def test_other_records_of_the_same_run_are_not_merged(submission, tmp_path, cli):
    folder = shutil.copytree(submission, tmp_path / "copy")
    edit_record(folder / "runs", -1, test_acc=1.0)
    target = tmp_path / "x.parquet"
    words = ["submit", "merge", str(submission / "runs"), str(folder / "runs")]
    said = cli(*words, "--source", submission / "method.py", "-o", target, code=2).err
    assert "are the same run with different records" in said
    assert not target.exists()


@pytest.mark.parametrize("place", ["algorithm", "dataset", "model", "more_criteria"])
def test_a_forged_description_runs_no_code_without_leave(runs, tmp_path, cli, place):
    """It says that all is plench's own, and names a file in its configuration."""
    folder, evil = tmp_path / "runs", tmp_path / "evil.py"
    shutil.copytree(runs, folder)
    evil.write_text(METHOD)
    for path in folder.glob("*/run.json"):
        info = json.loads(path.read_text())
        changed = info["config"]["hparams"] if place == "model" else info["config"]
        changed[place] = f"{evil}:Method"
        info["run_id"] = RunConfig.from_json(info["config"]).run_id(info["experiment"]["dataset_fingerprint"])
        path.write_text(json.dumps(info))
    assert "no finished run that could be repeated" in cli("verify", folder, code=2).err
    assert not (tmp_path / "executed").exists()
