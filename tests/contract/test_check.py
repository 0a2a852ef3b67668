"""Every check can fail and says why; `plench check` on the paper's listing, on names, on files."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from plench.algorithms import Algorithm, Batch, LossAlgorithm, register
from plench.algorithms.base import build_adam, build_network
from plench.cli import main
from plench.contract import AlgorithmUnderTest, Outcome, checks, run_check, run_suite
from plench.contract.under_test import read_loss
from plench.training.run import Totals
from tests.conftest import ROOT, SHARED, skip_without
from tests.contract.violations import (
    LOGGED,
    SOUND,
    UNSOUND,
    VIOLATIONS,
    OwnTensors,
    Quitter,
    Sound,
    SoundRounds,
    logging_of,
)
from tests.probe import entry_of

LISTING = ROOT / "tests" / "fixtures" / "cavl_listing.py"
FILE = ROOT / "tests" / "contract" / "violations.py"
# Real accelerators are needed to violate this one.
NOT_VIOLATED = {"trains_on_accelerators"}
# What the text of a violation must contain, where it can be said in a few words.
HINTS = {
    "trains_and_predicts": "shape (B, K)",
    "predicts_each_example_alone": "depends on the others",
    "declares_hyperparameters": "share must be at most 1",
    "leaves_arguments_alone": "train_givenY was changed",
    "prints_nothing": "'training",
    "uses_declared_views": "strong",
    "trains_in_a_stack": "must act on the last axes",
    "sees_no_true_label": "notes['found'][0] holds the true labels of the whole dataset",
    "seeds_nothing_global": "torch.manual_seed",
    "trains_without_a_candidate": "rarity",
    "trains_on_two_classes": "K = 2",
    "trains_on_fewer_examples_than_a_batch": 'self.hparams["batch_size"]',
    "trains_on_short_batches": "logits * self.weights",
    "survives_huge_logits": "log space",
    "is_not_disturbed_by_evaluation": ".calls",
    "resumes_exactly": "cut after update 1",
    "holds_only_what_can_be_saved": "numbers",
    "moves_with_the_module": "confidence['now'][0]",
    "keeps_single_precision": "confidence",
    "optimizes_what_has_a_gradient": "second.0.hidden.weight, second.0.hidden.bias",
    "does_not_loop_over_examples": "with 256",
    "does_not_loop_over_classes": "with 40",
    "does_not_wait_for_the_device": ".item()",
    "leaves_single_candidates_alone": "update 1 changed the targets of examples with one candidate",
    "predicts_any_input": "after update 1 predict(x) returns NaN",
    "repeats_every_round": "self.seed_for(...)",
}


def examine(cls: type[Algorithm]) -> AlgorithmUnderTest:
    return AlgorithmUnderTest(entry_of(cls))


def run(check: str, cls: type[Algorithm]) -> Outcome:
    return run_check(checks()[check], examine(cls))


@pytest.mark.parametrize("cls", [Sound, SoundRounds])
def test_a_sound_algorithm_passes_all(cls) -> None:
    outcomes = run_suite(examine(cls))
    assert {
        outcome.check.name: outcome.detail for outcome in outcomes if outcome.status in ("failed", "advice")
    } == {}


def test_every_check_has_a_sentence_and_an_algorithm_that_violates_it() -> None:
    assert set(VIOLATIONS) == set(checks()) - NOT_VIOLATED
    assert all(check.demand.endswith(".") and len(check.demand) > 20 for check in checks().values())


@pytest.mark.parametrize("name", sorted(VIOLATIONS))
def test_violation_is_found(name: str) -> None:
    outcome = run(name, VIOLATIONS[name])
    assert outcome.status == ("failed" if outcome.check.level == "required" else "advice")
    assert HINTS.get(name, "") in outcome.detail
    assert outcome.detail


@pytest.mark.parametrize("freezes", [False, True])
def test_a_second_network_is_trained_unless_frozen(freezes: bool) -> None:
    class CoTraining(VIOLATIONS["optimizes_what_has_a_gradient"]):
        build_optimizers = LossAlgorithm.build_optimizers

        def setup(self, candidates: Tensor) -> None:
            self.second.requires_grad_(not freezes)

    class Explicit(CoTraining):
        def build_optimizers(self) -> None:
            networks = [self.network] if freezes else [self.network, self.second]
            parameters = [parameter for network in networks for parameter in network.parameters()]
            self.optimizer = build_adam(parameters, self.hparams)

    for cls in (CoTraining, Explicit):
        register("CoTraining")(cls)
    assert run("optimizes_what_has_a_gradient", CoTraining).status == "passed"
    sessions = [examine(cls).start() for cls in (CoTraining, Explicit)]
    before = {name: value.clone() for name, value in sessions[0].algorithm.named_parameters()}
    losses, explicit_losses = (session.update(20) for session in sessions)
    assert losses == explicit_losses
    after = dict(sessions[0].algorithm.named_parameters())
    assert not any(after[name].equal(before[name]) for name in before if name.startswith("network."))
    second = [after[name].equal(before[name]) for name in before if name.startswith("second.")]
    assert set(second) == {freezes}


def in_place(self: Algorithm, batch: Batch) -> Tensor:
    batch.strong.add_(1.0)
    return self.network(batch.weak)


def in_place_second(self: Algorithm, batch: Batch) -> Tensor:
    batch.second.weak.mul_(2.0)
    return self.network(batch.weak)


def in_place_sets(self: Algorithm, logits: Tensor, batch: Batch) -> Tensor:
    batch.candidates[:, 0] = True
    return Sound.loss(self, logits, batch)


def in_place_before_the_pass(self: Algorithm, logits: Tensor, batch: Batch) -> Tensor:
    batch.weak.add_(0.1)  # the network's backward pass needs the old values
    return Sound.loss(self, logits, batch)


def count_afresh(self: Algorithm, candidates: Tensor) -> None:
    Sound.setup(self, candidates)
    COUNTED.clear()


COUNTED: list[int] = []


def counted_outside(self: Algorithm, logits: Tensor, batch: Batch) -> Tensor:
    COUNTED.append(1)
    return Sound.loss(self, logits, batch) * len(COUNTED)


@pytest.mark.parametrize(
    ("check", "methods", "words"),
    [
        ("leaves_arguments_alone", {"passes": in_place}, "update changed batch.strong in place"),
        ("leaves_arguments_alone", {"passes": in_place_second}, "update changed batch.second.weak in place"),
        ("leaves_arguments_alone", {"loss": in_place_sets}, "update changed batch.candidates in place"),
        ("trains_and_predicts", {"losses": lambda *_: {"total": 1}}, "key 'loss', not the keys total"),
        ("trains_and_predicts", {"losses": lambda *_: None}, "key 'loss', not None"),
        ("trains_and_predicts", {"loss": lambda self, logits, _: logits.logsumexp(1)}, "of shape (16,)"),
        ("trains_and_predicts", {"loss": lambda self, logits, _: logits.detach().sum()}, "without gradient"),
        (
            "trains_and_predicts",
            {"loss": lambda self, logits, _: logits.exp().sum() * 3e38},
            "logsumexp avoid",
        ),
        (
            "trains_and_predicts",
            {"loss": lambda self, logits, _: logits.sum() * self.hparams["heat"]},
            "declared: @register(…, hyperparameters=",
        ),
        ("trains_and_predicts", {"update": lambda *_: {"loss": torch.ones(9)}}, "tensor of shape (9,)"),
        ("trains_and_predicts", {"loss": in_place_before_the_pass}, "must not be changed: write to a clone"),
        ("repeats_with_the_same_seed", {"loss": counted_outside}, "test_check.COUNTED changes in a run"),
        (
            "resumes_exactly",
            {"loss": counted_outside, "setup": count_afresh},
            "Changed outside the object: tests.contract.test_check.COUNTED",
        ),
    ],
)
def test_a_message_names_the_mistake(check: str, methods: dict[str, Any], words: str) -> None:
    cls = type("Mistaken", (Sound,), {**methods, "__module__": __name__})
    register("Mistaken", views=("weak", "strong"), second_batch=True)(cls)
    tested = examine(cls)
    tested.file = __file__
    outcome = run_check(checks()[check], tested)
    assert outcome.status == "failed"
    assert words in outcome.detail
    if check == "repeats_with_the_same_seed":  # what compares runs would blame something else
        skipped = {each.check.name for each in run_suite(tested) if "differ already" in each.detail}
        assert skipped >= {"resumes_exactly", "is_not_disturbed_by_evaluation"}


@pytest.mark.parametrize("place", ["a plain list", "predict"])
def test_a_network_that_no_optimiser_holds_is_found(place: str) -> None:
    @register("Forgetful")
    class Forgetful(Sound):
        def build_networks(self, input_shape) -> None:
            super().build_networks(input_shape)
            self.others = [build_network(input_shape, self.num_classes, self.hparams)]

        def passes(self, batch: Batch) -> Tensor:
            logits = self.network(batch.weak)
            return logits + self.others[0](batch.weak) if place == "a plain list" else logits

        def predict(self, x: Tensor) -> Tensor:
            logits = super().predict(x)
            return logits + self.others[0](x) if place == "predict" else logits

    outcome = run("optimizes_what_has_a_gradient", Forgetful)
    assert outcome.status == "failed"
    assert "others[0].1.weight" in outcome.detail


# Odd state and logs ----------------------------------------------------------------------------------------

# What the text must contain in addition to the check's usual words.
STATE_HINTS = {
    "LazyTeacher": ("LazyTeacher.teacher holds a", "make all its parts in __init__"),
    "CountsOutside": ("cut after update 1", "Not saved: CountsOutside.numbers (count)"),
}


@pytest.mark.parametrize("name", sorted(SOUND))
@pytest.mark.parametrize(
    "check", ["trains_and_predicts", "resumes_exactly", "is_not_disturbed_by_evaluation", "lists_its_state"]
)
def test_odd_state_passes(check: str, name: str) -> None:
    outcome = run(check, SOUND[name])
    assert (outcome.status, outcome.detail) == ("passed", "")


@pytest.mark.parametrize("name", sorted(UNSOUND))
def test_what_cannot_be_resumed_is_refused_in_words(name: str) -> None:
    outcome = run("resumes_exactly", UNSOUND[name])
    assert outcome.status == "failed"
    for words in STATE_HINTS[name]:
        assert words in outcome.detail
    assert "Traceback" not in outcome.detail


@pytest.mark.parametrize(
    ("cls", "named"),
    [
        (UNSOUND["CountsOutside"], "CountsOutside.numbers (count)"),
        (OwnTensors, "OwnTensors.marks (Labelled)"),
    ],
)
def test_what_cannot_be_saved_is_named(cls: type[Algorithm], named: str) -> None:
    outcome = run("holds_only_what_can_be_saved", cls)
    assert outcome.status == "advice"
    assert named in outcome.detail


def test_a_part_that_cannot_be_saved_leaves_the_checkpoint_readable() -> None:
    assert run("resumes_exactly", OwnTensors).status == "passed"


@pytest.mark.parametrize("name", sorted(LOGGED))
def test_what_the_loop_cannot_add_up_is_refused(name: str) -> None:
    outcome = run("trains_and_predicts", logging_of(LOGGED[name]))
    assert outcome.status == "failed"
    assert "update must return" in outcome.detail
    assert "This was update 0" in outcome.detail
    assert not loop_takes(LOGGED[name]), "the loop refuses the same"


def loop_takes(logged: Any) -> bool:
    """Whether the training loop can add up what an update returned."""
    totals = Totals()
    try:
        totals.add(logged)
        totals.means()
    except (TypeError, ValueError, RuntimeError, AttributeError):
        return False
    return True


def test_the_loss_is_read_as_the_loop_reads_it() -> None:
    for logged in ({"loss": 1}, {"loss": True, "odds": float("nan")}, {"loss": 2.5, "n": 3}):
        assert loop_takes(logged)
        assert read_loss(logged) == float(logged["loss"])


def test_a_buffer_that_changes_in_place_is_summed_as_it_was() -> None:
    totals, buffer = Totals(), torch.tensor(1.0)
    totals.add({"loss": buffer})
    buffer.fill_(3.0)
    totals.add({"loss": buffer})
    buffer.fill_(100.0)
    assert totals.means() == {"loss": 2.0}


# The command -----------------------------------------------------------------------------------------------


def check(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(["check", *arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_listing_is_the_paper_s() -> None:
    paper = SHARED / "paper.tex"
    if not paper.exists():
        skip_without("specifications", f"{paper} is missing")
    text = paper.read_text(encoding="utf-8")
    begin = text.index("class CAVL(Algorithm):")
    listing = text[begin : text.index(r"\end{lstlisting}", begin)]
    assert LISTING.read_text(encoding="utf-8").endswith("\n\n\n" + listing)


def test_listing_passes_with_three_pieces_of_advice(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = check(capsys, f"{LISTING}:CAVL", "--json")
    report = json.loads(out)
    assert code == 0
    assert report["passed"] is True
    assert report["algorithm"].startswith("CAVL@")
    assert [row["name"] for row in report["checks"]] == list(checks())
    advice = {row["name"]: row["detail"] for row in report["checks"] if row["status"] == "advice"}
    assert set(advice) == {"moves_with_the_module", "keeps_single_precision", "does_not_wait_for_the_device"}
    assert "CAVL.label_confidence" in advice["moves_with_the_module"]
    assert "loss.item()" in advice["does_not_wait_for_the_device"]


def test_text_names_what_fails_and_why(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = check(capsys, f"{FILE}:trains_on_two_classes")
    assert code == 1
    assert "FAILS    trains on two classes" in out
    assert "It trains with two classes" in out
    assert " 1 failed, 0 with advice" in out


def test_builtin_name_in_any_spelling(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = check(capsys, "proden")
    assert code == 0
    assert out.startswith("PRODEN\n")


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ("PRODEM", "unknown algorithm 'PRODEM'"),
        ("nowhere.py:CAVL", "cannot read the algorithm's file"),
        ("PRODEN --device tpu", "unknown device 'tpu'"),
    ],
)
def test_bad_usage(spec: str, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = check(capsys, *spec.split())
    assert code == 2
    assert out == ""
    assert text in err


def test_a_file_that_ends_the_process_is_bad_usage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "script.py"
    path.write_text("import sys\n\nsys.exit(0)\n", encoding="utf-8")
    code, _, err = check(capsys, f"{path}:Anything")
    assert code == 2
    assert "script.py fails to import: SystemExit(0)" in err


def test_an_update_that_ends_the_process_is_reported_as_any_error() -> None:
    outcome = run("trains_and_predicts", Quitter)
    assert outcome.status == "failed"
    assert re.search(r"SystemExit: enough \(line \d+, in update", outcome.detail)


def test_checking_ends_with_a_class_that_cannot_be_built(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = check(capsys, f"{FILE}:Broken")
    assert code == 1
    words = " ".join(out.split())
    assert re.search(r"KeyError: 'widht' \(line \d+, in __init__: self\.width = hparams\[", words)
    assert out.count("KeyError") == 1
    assert "1 failed" in out
    assert "The other checks were skipped" in out


def test_what_an_algorithm_prints_is_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = check(capsys, f"{FILE}:prints_nothing")
    assert code == 1
    assert "training" not in err
    assert out.count("FAILS") == 1
    assert "printed: 'training" in out
