"""Pickles made to stop the process or to fill its memory, and good ones of every protocol."""

import pickle
import struct

import pytest

from plench.data.sources.cifar import check_image_labels
from plench.data.sources.plcifar10 import parse_annotations
from plench.data.unpickle import read_pickle
from plench.errors import DataError


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\x80\x02}N" + b"2\x86" * 64 + b"K\x01s.", "a tuple of 2 as a key"),  # 2⁶⁴ values to hash
        (b"\x80\x02}N" + b"\x85" * 300_000 + b"K\x01s.", "a tuple of 1 as a key"),  # a stack of 300,000
        (b"\x80\x04\x8f(N" + b"2\x86" * 64 + b"\x90.", "a tuple of 2 as a key"),
        (b"\x80\x04(N" + b"2\x86" * 64 + b"\x91.", "a tuple of 2 as a key"),
        (b"\x80\x02(N" + b"2\x86" * 64 + b"K\x01d.", "a tuple of 2 as a key"),
        (b"Nr\xff\xff\xff\x7f.", "counts its values up to 2,147,483,647 and has 7 bytes"),
        (b"Np99999999999999999999\n.", "counts its values up to"),
        (b"Np-1\n.", "counts its values up to"),
        (b"\x8b" + struct.pack("<i", 9000) + b"\x01" * 9000 + b".", "a number of 9,000 bytes"),
        (b"I" + b"9" * 5000 + b"\n.", "a line has no end"),
        (b"B\xff\xff\xff\x7fabc.", "truncated"),
        (b"\x8e" + b"\xff" * 8 + b"abc.", "truncated"),
        (b"}]K\x01s.", "a list of 0 as a key"),
        (b"((e.", "damaged"),
        (b"2.", "damaged"),
        (b"\x80\x63N.", "unknown protocol"),
        (b"(i__builtin__\neval\n.", "it asks for __builtin__.eval"),
        (b"\x82\x01.", "not allowed"),
        (b"cnumpy\ndtype\n(lR.", "no function|no plain"),
        (b"cnumpy\ndtype\n]a.", "damaged"),
        (b"]cnumpy\ndtype\na.", "a type, a function or an array without content"),
        (b"]cnumpy\ndtype\n\x85a.", "a type, a function or an array without content"),
        (b"K\x05K\x06b.", "tries to change"),
        (b"cnumpy\ndtype\nU\x0d(99999999,)u1\x85R.", "allowed are arrays of numbers"),
        (b"cnumpy\ndtype\nU\x02u3\x85R.", "allowed are arrays of numbers"),
    ],
)
def test_pickles_that_would_stop_the_process(content: bytes, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_pickle(content, "it")


def test_pickles_that_make_much_of_little(monkeypatch: pytest.MonkeyPatch) -> None:
    text = b"X\x00\x10\x00\x00" + b"a" * 4096 + b"q\x000"
    call = b"c_codecs\nencode\nh\x00X\x06\x00\x00\x00latin1\x86R0"
    with pytest.raises(DataError, match="more of its bytes than there are"):
        read_pickle(text + call * 1000 + b"N.", "it")
    monkeypatch.setattr("plench.data.unpickle.MAX_CONTAINERS", 10)
    with pytest.raises(DataError, match="more than 10 lists"):
        read_pickle(b"]" * 11 + b".", "it")
    monkeypatch.setattr("plench.data.unpickle.MAX_STEPS", 10)
    with pytest.raises(DataError, match="more than 10 steps"):
        read_pickle(b"N" * 11 + b".", "it")


def test_deep_values_are_given_and_let_go() -> None:
    """Nesting alone does no harm: nothing here walks down by calls."""
    found = read_pickle(b"N" + b"\x85" * 300_000 + b".", "it")
    for _ in range(300_000):
        (found,) = found
    assert found is None


def test_pickles_are_read_as_python_reads_them() -> None:
    shared = [1, 2]
    value = {
        "short lists": [[], [1], [255, 0, 75, 101], [256], [-1, 3], [[1], [2]]],
        "memo": [shared, shared, (shared, ()), {"x": shared}],
        "numbers": [0, 255, 256, 65536, -1, 2**31, -(2**63), 2**200, 1e300, -0.5, False],
        "text": ["", "ä\ud800", "x" * 300, b"", b"\xff" * 300, "line\nbreak '\" \\u0041"],
        "sets": [{1, 2}, frozenset(("a", b"b"))],
        "tuples": [(), (1,), (1, 2), (1, 2, 3), tuple(range(10))],
        **{f"image {index}": [[index % 10], [index % 7, index % 3]] for index in range(300)},
    }
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        if protocol < 4:
            value.pop("sets", None)  # a call in the old protocols
        content = pickle.dumps(value, protocol)
        expected = pickle.loads(content, encoding="bytes")
        found = read_pickle(content, "it")
        assert found == expected
        memo = found["memo"]
        assert memo[0] is memo[1] is memo[2][0] is memo[3]["x"]


def test_values_of_a_pickle_are_shown_in_few_words() -> None:
    nested: object = 1
    for _ in range(64):
        nested = [nested, nested]
    with pytest.raises(DataError, match="image 0 has the label a list of 2"):
        parse_annotations({0: [[nested]]}, 1, "it")
    with pytest.raises(DataError, match="labels must be whole numbers"):
        check_image_labels([nested, nested], 2, 10, "it")
    with pytest.raises(DataError, match=r"labels must be whole numbers|allowed are 0…9"):
        check_image_labels([1, 2**70], 2, 10, "it")
    many: list[object] = [[0] * 10] * 1000
    with pytest.raises(DataError, match="20,000 sets for 20 images; allowed are 200 per image"):
        parse_annotations(dict.fromkeys(range(20), many), 20, "it")
    with pytest.raises(DataError, match="labels for 20 images"):
        parse_annotations({index: [[0] * 1000] for index in range(20)}, 20, "it")
