"""What an algorithm asks of a device: nothing that one of the supported kinds lacks."""

import pytest
import torch

from plench.algorithms import algorithms, find_algorithm
from plench.contract import AlgorithmUnderTest
from plench.contract.speed import OperatorCounter
from tests import formulas

# Operators that torch has had on MPS only lately, or not at all.
MISSING_ON_MPS = {"aten::kthvalue"}


@pytest.mark.parametrize("name", [name for name, entry in algorithms().items() if entry.card.shared])
def test_no_phase_needs_an_operator_that_mps_lacks(name: str) -> None:
    subject = AlgorithmUnderTest(find_algorithm(name))
    session = subject.start()
    with OperatorCounter(None) as counter:
        session.update(subject.count_updates(session))
    assert counter.calls.total() > 0
    assert not MISSING_ON_MPS & set(counter.calls)


def test_order_statistics_are_exact_on_ties_and_at_the_ends() -> None:
    values = torch.tensor([0.4, 0.1, 0.4, 0.3, 0.9])
    ascending = [float(value) for value in values.sort().values]
    for rank in range(1, len(values) + 1):
        assert formulas.fredis_needed_gap(values, rank) == ascending[-rank]
    found = [formulas.alim_lambda(values, share) for share in (0.2, 0.4, 0.7, 1.0)]
    assert found == ascending[1:]
