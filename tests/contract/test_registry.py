"""Every algorithm of the registry passes every check of the contract, the advised ones too."""

from functools import cache

import pytest

from plench.algorithms import algorithms
from plench.contract import Check, Subject, checks, run_check


@cache
def subject_of(name: str) -> Subject:
    return Subject(algorithms()[name])


@pytest.mark.parametrize("check", checks().values(), ids=lambda check: check.name)
@pytest.mark.parametrize("name", algorithms())
def test_algorithm_keeps_the_contract(name: str, check: Check) -> None:
    outcome = run_check(check, subject_of(name))
    if outcome.status == "skipped":
        pytest.skip(outcome.detail)
    assert outcome.status == "passed", f"{name}: {check.demand} Found: {outcome.detail}"


@pytest.mark.parametrize("name", algorithms())
def test_checks_reach_every_phase(name: str) -> None:
    subject = subject_of(name)
    session = subject.start()
    starts = session.algorithm.phases()
    assert all(first < subject.count_updates(session) for first in starts.values()), starts
