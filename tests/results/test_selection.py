"""Selection by protocol.md: step 0, ties, diverged runs, plans."""

from dataclasses import replace

import numpy as np
import pytest

from plench.criteria import criteria
from plench.runs import read_runs
from plench.runs.select import Plan, choose_checkpoint, infer_plans, select, select_by_each
from tests.synthetic_sweep import make_records, write_run, write_sweep

CR, AA, OA, OA_ES = (criteria[name] for name in ("CR", "AA", "OA", "OA_ES"))


def record(step, cr, test, **figures):
    return {
        "step": step,
        "loss": 1.0,
        "val_covering_rate": cr,
        "val_accuracy": cr,
        "test_acc": test,
        **figures,
    }


def cell_of(folder, criterion, **options):
    (cell,) = select(read_runs(folder), criterion, **options)
    return cell


def test_step_zero_never_counts(tmp_path):
    write_run(tmp_path / "a", [record(0, 0.99, 0.1), record(500, 0.5, 0.2), record(999, 0.4, 0.3)])
    (choice,) = cell_of(tmp_path, CR).choices
    assert (choice.record.step, choice.test_acc, choice.score) == (500, 0.2, 0.5)
    write_run(tmp_path / "only" / "a", [record(0, 0.99, 0.1)], steps=1)
    cell = cell_of(tmp_path / "only", CR)
    assert (cell.choices, cell.mean, cell.n_absent) == ((), None, 1)


def test_a_diverged_run_counts_before_it_diverged_but_not_for_oracle_accuracy(tmp_path):
    taken = [record(0, 0, 0), record(400, 0.9, 0.5), record(600, 0.99, 0.1), record(999, 0.99, 0.1)]
    write_run(tmp_path / "a", taken, status="diverged", diverged_after_step=450)
    write_run(tmp_path / "b", [record(500, 0.6, 0.4), record(999, 0.6, 0.45)], hparams_seed=1)
    for criterion in (CR, OA_ES):
        cell = cell_of(tmp_path, criterion)
        assert cell.mean == 0.5
        assert (cell.n_diverged, cell.n_absent) == (1, 0)
    cell = cell_of(tmp_path, OA)
    assert cell.mean == 0.45
    assert (cell.n_diverged, cell.n_absent, cell.n_finished) == (1, 1, 2)
    assert not cell.complete


def test_a_finished_run_without_its_last_record_is_absent_for_oracle_accuracy(tmp_path):
    write_run(tmp_path / "a", [record(500, 0.6, 0.4)])
    assert cell_of(tmp_path, OA).n_absent == 1
    assert cell_of(tmp_path, CR).mean == 0.4


@pytest.mark.parametrize("status", ["running", "failed", "interrupted"])
def test_unfinished_runs_are_counted_not_chosen(tmp_path, status):
    write_run(tmp_path / "a", [record(500, 0.99, 0.9)], hparams_seed=1, status=status)
    write_run(tmp_path / "b", [record(999, 0.6, 0.4)])
    cell = cell_of(tmp_path, CR)
    assert cell.mean == 0.4
    assert (cell.n_finished, cell.n_unfinished, cell.n_missing) == (1, 1, 1)


def test_nan_scores_are_passed_over(tmp_path):
    write_run(tmp_path / "a", [record(400, float("nan"), 0.1), record(500, 0.2, 0.7), record(999, None, 0.1)])
    cell = cell_of(tmp_path, CR)
    assert cell.mean == 0.7
    assert cell_of(tmp_path, OA).n_absent == 1


def test_without_labels_the_oracle_cells_are_empty_and_the_others_choose(tmp_path):
    write_run(tmp_path / "a", [record(999, 0.6, None, val_accuracy=None)])
    assert cell_of(tmp_path, OA_ES).choices == ()
    cell = cell_of(tmp_path, CR)
    assert len(cell.choices) == 1
    assert cell.mean is None


def test_the_plan_is_what_any_algorithm_of_the_setting_has_run(tmp_path):
    write_sweep(tmp_path, datasets=("Lost",), algorithms=("CC", "LWS"), n_trials=2, n_hparams=3)
    for entry in (tmp_path / "Lost-CC-1-2").iterdir():
        entry.unlink()
    runs = read_runs(tmp_path)
    plans = infer_plans(runs)
    assert {experiment.algorithm for experiment in plans} == {"CC", "LWS"}
    whole = Plan(frozenset((trial, configuration) for trial in (0, 1) for configuration in (0, 1, 2)))
    assert all(plan == whole for plan in plans.values())
    cc, lws = select(runs, CR)
    assert (cc.n_finished, cc.n_missing, cc.complete) == (5, 1, False)
    assert (lws.n_finished, lws.n_missing, lws.complete) == (6, 0, True)


def test_two_runs_in_one_place_both_count_and_the_cell_says_so(tmp_path):
    write_run(tmp_path / "a", [record(999, 0.6, 0.4)])
    write_run(tmp_path / "b", [record(999, 0.7, 0.5)])
    cell = cell_of(tmp_path, CR)
    assert cell.mean == 0.5
    assert cell.n_finished == 1
    assert "share split and configuration" in cell.warnings[0]


def test_selection_equals_brute_force_on_a_sweep(tmp_path):
    runs = read_runs(write_sweep(tmp_path, n_hparams=6))
    for criterion in criteria.values():
        cells = select(runs, criterion)
        backward = select(runs[::-1], criterion)  # the order of folders does not matter
        assert [(c.experiment, c.accuracies) for c in cells] == [
            (c.experiment, c.accuracies) for c in backward
        ]
        for cell in cells:
            mine = [run for run in runs if run.experiment == cell.experiment]
            for choice in cell.choices:
                offers = [
                    (-r.values[criterion.record_key], run.hparams_seed, r.step, r.values["test_acc"])
                    for run in mine
                    if run.trial_seed == choice.trial_seed
                    for r in run.records
                    if r.step > 0 and (criterion.early_stopping or r.step == 999)
                ]
                assert choice.test_acc == min(offers)[3]


def test_lower_is_better(tmp_path):
    lowest = replace(CR, name="loss", record_key="loss", higher_is_better=False)
    for configuration in range(3):
        taken = make_records(0.5, np.random.default_rng(configuration))
        write_run(tmp_path / str(configuration), taken, hparams_seed=configuration)
    runs = read_runs(tmp_path)
    scores = [choose_checkpoint(run, lowest)[1] for run in runs]
    assert scores == [min(r.get("loss") for r in run.usable_records) for run in runs]
    assert cell_of(tmp_path, lowest).choices[0].score == min(scores)


def test_all_criteria_at_once_choose_what_each_does(tmp_path):
    write_sweep(tmp_path, n_trials=2, n_hparams=2)
    write_run(tmp_path / "failed", [record(500, 0.99, 0.9)], hparams_seed=9, status="failed")
    runs = read_runs(tmp_path)
    together = select_by_each(runs, (OA, CR, AA, OA_ES, CR))
    assert list(together) == [OA, CR, AA, OA_ES]
    assert all(cells == select(runs, criterion) for criterion, cells in together.items())
