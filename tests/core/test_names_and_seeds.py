"""Names in any spelling, values in messages, and seeds as the protocol hashes them."""

import pytest

from plench.algorithms import find_algorithm
from plench.errors import UsageError
from plench.settings import seed_hash
from plench.text import clean_text, find_name, normalise, short_repr


def test_seed_hash_check_values_of_the_protocol():
    assert [seed_hash(0), seed_hash(1, 2)] == [1003224347, 1981683110]
    assert seed_hash("Lost", "PRODEN", 0, 0) == 973119192


def test_names_in_any_spelling_and_unknown_ones(caplog):
    spellings = {"pico+": "picoplus", "PiCO_plus": "picoplus", "Yahoo! News": "yahoonews", "a-b": "ab"}
    assert {name: normalise(name) for name in spellings} == spellings
    with pytest.raises(UsageError, match="unknown algorithm 'PRODEM'; did you mean PRODEN"):
        find_name("PRODEM", ["CC", "PRODEN"], "algorithm")
    with pytest.raises(UsageError, match="expected one of CC, PRODEN"):
        find_name("zzz", ["PRODEN", "CC"], "algorithm")
    assert [find_algorithm(alias).name for alias in ("RC", "log")] == ["PRODEN", "CC"]
    assert caplog.text.count("is the same method as") == 2


def test_values_and_texts_in_messages():
    assert short_repr(10**5000) == "a number of 16,610 bits"
    assert short_repr("a" * 100) == repr("a" * 60) + "…"
    assert short_repr("\x1b[2J") == "'\\x1b[2J'"
    assert clean_text("plain äß \t\n") == "plain äß \t\n"
    hidden = "\x1b \x07 \u202e \x9b \ud800 \r \u2028"
    assert clean_text(hidden) == " ".join(["\N{REPLACEMENT CHARACTER}"] * 7)
    assert clean_text("a\nb", keep="") == "a\N{REPLACEMENT CHARACTER}b"
