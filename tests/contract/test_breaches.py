"""Every check can fail, and says what is wrong in words that point to it."""

import pytest

from plench.algorithms.registry import third_party_entry
from plench.contract import AlgorithmUnderTest, checks, run_check, run_suite
from tests.contract.breaches import BREACHES, Sound, SoundRounds

# Real accelerators are needed to break this one.
NOT_BREAKABLE = {"trains_on_accelerators"}
# What the text of a breach must contain, where it can be said in a few words.
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
    "does_not_loop_over_examples": "with 256",
    "does_not_loop_over_classes": "with 40",
    "does_not_wait_for_the_device": ".item()",
    "leaves_single_candidates_alone": "update 1 changed the targets of examples with one candidate",
    "predicts_any_input": "after update 1 predict(x) returns NaN",
    "repeats_every_round": "self.seed_for(...)",
}


@pytest.mark.parametrize("cls", [Sound, SoundRounds])
def test_a_sound_algorithm_passes_all(cls) -> None:
    outcomes = run_suite(AlgorithmUnderTest(third_party_entry(cls.__name__, cls, cls.__name__)))
    assert {
        outcome.check.name: outcome.detail for outcome in outcomes if outcome.status in ("failed", "advice")
    } == {}


def test_every_check_has_an_algorithm_that_breaks_it() -> None:
    assert set(BREACHES) == set(checks()) - NOT_BREAKABLE


@pytest.mark.parametrize("name", sorted(BREACHES))
def test_breach_is_found(name: str) -> None:
    check = checks()[name]
    outcome = run_check(check, AlgorithmUnderTest(third_party_entry(name, BREACHES[name], name)))
    assert outcome.status == ("failed" if check.level == "required" else "advice")
    assert HINTS.get(name, "") in outcome.detail
    assert outcome.detail


@pytest.mark.parametrize("check", checks().values(), ids=lambda check: check.name)
def test_demand_is_a_sentence(check) -> None:
    assert check.demand.endswith(".")
    assert len(check.demand) > 20
