"""Every algorithm of the registry passes every check of the contract, the advised ones too."""

import math
from functools import cache

import pytest

from plench.algorithms import algorithms
from plench.contract import AlgorithmUnderTest, Check, checks, run_check
from plench.contract.speed import count_operators
from plench.contract.state import search_labels
from plench.contract.training import HUGE, enlarge_logits
from plench.contract.under_test import make_examples
from tests.conftest import skip_without

ON_BATCHES = [name for name, entry in algorithms().items() if entry.card.shared]


@cache
def subject_of(name: str) -> AlgorithmUnderTest:
    return AlgorithmUnderTest(algorithms()[name])


APPLICABLE = [
    pytest.param(name, check, id=f"{name}-{check.name}")
    for name in algorithms()
    for check in checks().values()
    if not check.why_not_applicable(subject_of(name))
]


@pytest.mark.parametrize(("name", "check"), APPLICABLE)
def test_algorithm_keeps_the_contract(name: str, check: Check) -> None:
    outcome = run_check(check, subject_of(name))
    if outcome.status == "skipped" and check.name == "trains_on_accelerators":
        skip_without("accelerator", outcome.detail)
    if outcome.detail.startswith("it refuses such data"):  # with a reason: allowed to fitted methods
        assert algorithms()[name].card.shared is False
        return
    assert outcome.status == "passed", f"{name}: {check.demand} Found: {outcome.detail}"


@pytest.mark.parametrize("name", algorithms())
def test_checks_reach_every_phase(name: str) -> None:
    subject = subject_of(name)
    session = subject.start()
    starts = session.algorithm.phases()
    assert all(first < session.updates for first in starts.values()), starts


@pytest.mark.parametrize("name", ON_BATCHES)
def test_no_true_label_of_images_is_within_reach(name: str) -> None:
    search_labels(subject_of(name), make_examples(40, sets="ambiguous", images=True))


@pytest.mark.parametrize("name", ON_BATCHES)
def test_huge_logits_are_really_huge(name: str) -> None:
    session = subject_of(name).start()
    session.update(1)
    reached = enlarge_logits(session)
    if name == "VIPLL":  # predictions are logarithms of 1 + softplus(logits)
        reached = math.expm1(reached)
    assert reached >= 0.95 * HUGE


@pytest.mark.parametrize("name", ON_BATCHES)
def test_operators_are_counted_before_and_after_the_last_phase(name: str) -> None:
    subject = subject_of(name)
    counters = count_operators(subject, 16, 4)
    last = max(subject.start().algorithm.phases().values(), default=0)
    assert max(counters) > last
    assert all(counter.calls.total() > 20 for counter in counters.values())
