"""How a run is shown: everything fits into 80 columns."""

import io
import sys
import time
import types

from rich.console import Console

from plench.algorithms import find_algorithm
from plench.callbacks import watch_run
from plench.data import dataset_card
from plench.training import configure_run

RECORD = {"step": 4000, "loss": 0.12345, "test_acc": 0.65}
RECORD |= {"val_covering_rate": 0.9, "val_approximated_acc": 0.8, "val_accuracy": 0.7}


def show(console, record=RECORD):
    config = configure_run(find_algorithm("PRODEN"), dataset_card("Digits_FPS"), steps=10_000)
    with watch_run(console) as callback:
        callback.started(config, 2000)
        callback.advanced(3000, 0.5)
        time.sleep(0.05)
        callback.advanced(3500, 0.4)
        callback.evaluated(record)


def test_a_terminal_shows_count_rate_time_left_loss_and_criteria():
    text = io.StringIO()
    show(Console(file=text, force_terminal=True, width=80, color_system=None))
    last = text.getvalue().split("PRODEN on Digits_FPS")[-1]
    for part in ("4001/10000", "/s", "loss 0.1235  step 4000: CR 0.900 AA 0.800 OA 0.700 test 0.650"):
        assert part in last
    assert ":" in last.splitlines()[1]
    assert "…" not in last


def test_a_log_has_a_line_for_each_record(capsys):
    show(Console(file=io.StringIO()))
    assert capsys.readouterr().err.splitlines() == [
        "PRODEN on Digits_FPS resumes at update 2000, 10000 updates in all",
        "step 4000: loss 0.1235, CR 0.900 AA 0.800 OA 0.700 test 0.650",
    ]
    show(Console(file=io.StringIO()), {"step": 1, "loss": 2.0, "test_acc": None})  # nothing is held out
    assert capsys.readouterr().err.splitlines()[-1] == "step 1: loss 2.0000"


def test_a_notebook_shows_the_same_in_the_output_of_its_cell(monkeypatch):
    shown = []

    class Handle:
        def update(self, bundle, raw):
            assert raw
            shown.append(bundle["text/plain"])

    fake = types.ModuleType("IPython.display")
    fake.display = lambda bundle, raw, display_id: Handle()
    monkeypatch.setitem(sys.modules, "IPython", types.ModuleType("IPython"))
    monkeypatch.setitem(sys.modules, "IPython.display", fake)
    show(Console(file=io.StringIO(), force_jupyter=True))
    assert all(part in shown[-1] for part in ("PRODEN on Digits_FPS", "4001/10000", "CR 0.900"))
    assert max(map(len, shown[-1].splitlines())) <= 100
