"""`plench bench`: figures compared with baselines, as JSON that plots read."""

import json

import pytest

from plench import bench
from plench.errors import DataError, UsageError
from plench.report.figures import read_costs


def test_a_step_is_compared_with_its_baseline():
    row = bench.measure_step("POP", "Synthetic_500", None, 32, 2, warm_up=2)
    assert (row["algorithm"], row["examples"], row["batch_size"]) == ("POP", 405, 32)
    assert min(row[key] for key in ("ms", "floor_ms", "ratio", "draw_ms", "pass_ms")) > 0


def test_a_stack_is_compared_with_the_same_runs_alone():
    row = bench.measure_stack("PRODEN", "Synthetic_500", None, 32, 2, size=3, warm_up=2)
    assert (row["algorithm"], row["examples"], row["batch_size"], row["runs"]) == ("PRODEN", 405, 32, 3)
    assert min(row[key] for key in ("ms", "floor_ms", "ratio")) > 0
    with pytest.raises(UsageError, match="runs of PiCO on Synthetic_500 cannot be stacked: "):
        bench.measure_stack("PiCO", "Synthetic_500", None, 32, 1, size=2, warm_up=1)


def test_evaluation_and_reading_are_measured():
    row = bench.measure_evaluation("CC", "Synthetic_500", None, 1, count=1)
    assert row["examples"] == 95
    assert row["ratio"] > 0
    row = bench.measure_reading(3, 1)
    assert (row["runs"], row["records"]) == (3, 33)


def test_the_json_says_on_what_and_figures_read_it(tmp_path, cli):
    path = tmp_path / "bench.json"
    words = ["bench", "step", "fleet", "reading", "-a", "CC", "-d", "Synthetic_500", "--repeats", "1"]
    assert "ratio" in cli(*words, "--runs", "3", "--fleet", "2", "--output", path).out
    content = json.loads(path.read_text())
    assert content["hardware"]["cores"] >= 1
    assert {"python", "torch", "plench"} <= set(content["versions"])
    assert [row["part"] for row in content["rows"]] == ["step", "stack", "reading"]
    (cost,) = read_costs(path)  # only the step
    assert cost.algorithm == "CC"
    path.write_text(json.dumps({"rows": content["rows"][1:]}))
    with pytest.raises(DataError, match="no measurement of a step"):
        read_costs(path)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["speed"], "unknown part 'speed'; expected one of step, stack"),
        (["--repeats", "0"], "--repeats must be at least 1"),
        (["stack", "--stack", "0"], "--stack must be at least 1"),
        (["step", "-a", "CCC"], "unknown algorithm"),
        (["step", "-a", "CC", "LR_EM"], "LR_EM is fitted in rounds and has no steps to measure"),
        (["stack", "-a", "PL_KNN"], "PL_KNN is fitted in rounds and has no steps to measure"),
        (["image", "-a", "LR_EM"], "LR_EM is fitted in rounds and has no steps to measure"),
        (["step", "-a", "CC", "-d", "Synthetic_x"], "a made-up dataset is Synthetic_N"),
    ],
)
def test_bad_usage(words, text, cli):
    assert text in cli("bench", *words, code=2).err
