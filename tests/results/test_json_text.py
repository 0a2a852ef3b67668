"""The parser of run folders says what Python's own does."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plench.runs.json_text import find_parser, parse_json

INTEGERS = st.integers(-(10**40), 10**40) | st.sampled_from([2**63, 2**64 - 1, 2**64, -(2**63) - 1, 10**19])
LEAVES = st.none() | st.booleans() | INTEGERS | st.floats() | st.text()
VALUES = st.recursive(LEAVES, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=9)


def parse(parser, text):
    try:
        return repr(parser(text))  # NaN differs from itself, 1 from 1.0
    except ValueError:
        return ValueError


@given(VALUES, st.sampled_from([None, 1]), st.booleans())
def test_values_are_those_of_python(value, indent, ascii_only):
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    assert parse(parse_json, text) == parse(json.loads, text)


@pytest.mark.parametrize("number", [2**64, -(2**64), 10**30])
@pytest.mark.parametrize("form", ["{}", "[{}]", "[1,{}]", '{{"a":{}}}', '{{"a":\t{}}}', "\n{}", "[\r{}]"])
def test_long_integers_keep_every_digit(number, form):
    value = parse_json(form.format(number).encode())
    while not isinstance(value, int):
        value = value[-1] if isinstance(value, list) else value["a"]
    assert value == number


@given(st.lists(VALUES, min_size=1))
def test_lines_of_a_text_are_parsed_as_each_by_itself(values):
    lines = [json.dumps(value).encode() for value in values]
    parser = find_parser(b"\n".join(lines))
    assert [parse(parser, line) for line in lines] == [parse(json.loads, line) for line in lines]


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("number", [2**64, -(2**64), 10**19])
def test_a_long_integer_in_any_line_keeps_every_digit(number, place):
    lines = [b"1", b'{"a": 0.12345678901234567}', b"[]"]
    lines[place] = str(number).encode()
    assert find_parser(b"\n".join(lines))(lines[place]) == number


NO_JSON = [b"", b"{", b"[1,]", b"01", b"1 2", b'"\xff"', b"nan", b'"\n"', b"'a'", b"{1:2}"]
UTF_16 = ['{"a": 1}'.encode("utf-16-le"), "[1]".encode("utf-16"), b"\0[\0"]
ODD = [b'{"a": 1, "a": 2}', b"NaN", b"-Infinity", b'"\\ud800"', b"-0", b"\xef\xbb\xbf[1]"]


@pytest.mark.parametrize("text", NO_JSON)
def test_what_is_no_json_is_an_error(text):
    assert parse(parse_json, text) is parse(json.loads, text) is ValueError


@pytest.mark.parametrize("text", UTF_16)
def test_only_utf8_is_read(text):
    assert parse(parse_json, text) is ValueError


@pytest.mark.parametrize("text", ODD)
def test_odd_json_is_read_as_by_python(text):
    assert parse(parse_json, text) == parse(json.loads, text) is not ValueError
