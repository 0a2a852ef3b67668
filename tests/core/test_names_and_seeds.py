import pytest

from plench.algorithms import find_algorithm
from plench.errors import UsageError
from plench.settings import seed_hash
from plench.text import find_name, normalise


def test_seed_hash_check_values_of_the_protocol():
    assert seed_hash(0) == 1003224347
    assert seed_hash(1, 2) == 1981683110
    assert seed_hash("Lost", "PRODEN", 0, 0) == 973119192


@pytest.mark.parametrize(
    ("name", "normal"),
    [("pico+", "picoplus"), ("PiCO_plus", "picoplus"), ("Yahoo! News", "yahoonews"), ("abs-gce", "absgce")],
)
def test_names_lose_case_and_punctuation(name, normal):
    assert normalise(name) == normal


def test_unknown_name_answers_with_the_nearest():
    with pytest.raises(UsageError, match="unknown algorithm 'PRODEM'; did you mean PRODEN"):
        find_name("PRODEM", ["CC", "PRODEN"], "algorithm")


def test_hopeless_name_answers_with_all():
    with pytest.raises(UsageError, match="expected one of CC, PRODEN"):
        find_name("zzz", ["PRODEN", "CC"], "algorithm")


@pytest.mark.parametrize(("alias", "meant"), [("RC", "PRODEN"), ("log", "CC")])
def test_aliases_of_the_paper_come_with_a_notice(alias, meant, caplog):
    assert find_algorithm(alias).name == meant
    assert "is the same method as" in caplog.text
