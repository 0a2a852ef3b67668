import torch

from plench.training.checkpoint import dump, parse
from plench.training.run import Totals


def test_means_are_over_the_updates_that_logged_a_name():
    totals = Totals()
    totals.add({"loss": torch.tensor(1.0)})
    totals.add({"loss": 3.0, "late": torch.tensor(5.0)})
    assert totals.means() == {"loss": 2.0, "late": 5.0}


def test_a_buffer_that_changes_in_place_is_summed_as_it_was():
    totals, buffer = Totals(), torch.tensor(1.0)
    totals.add({"loss": buffer})
    buffer.fill_(3.0)
    totals.add({"loss": buffer})
    buffer.fill_(100.0)
    assert totals.means() == {"loss": 2.0}


def test_totals_continue_through_a_file():
    totals = Totals()
    totals.add({"loss": torch.tensor(1.0), "rate": 0.5})
    again = Totals()
    again.load_state(parse(dump({"totals": totals.state()}))["totals"], torch.device("cpu"))
    again.add({"loss": torch.tensor(2.0)})
    assert again.means() == {"loss": 1.5, "rate": 0.5}
    assert again.count == 2
