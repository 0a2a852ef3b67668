import pytest

from plench.algorithms import find_algorithm
from plench.errors import UsageError
from plench.settings import seed_hash
from plench.text import clean_text, find_name, normalise, short_repr


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


def test_values_and_texts_in_messages():
    assert short_repr(10**5000) == "a number of 16,610 bits"
    assert short_repr("a" * 100) == repr("a" * 60) + "…"
    assert short_repr("\x1b[2J") == "'\\x1b[2J'"
    assert clean_text("plain äß \t\n") == "plain äß \t\n"
    hidden = "\x1b \x07 \u202e \x9b \ud800 \r \u2028"
    assert clean_text(hidden) == " ".join(["\N{REPLACEMENT CHARACTER}"] * 7)
    assert clean_text("a\nb", keep="") == "a\N{REPLACEMENT CHARACTER}b"
