"""Pickles from outside: what they may hold, and that nothing else is ever run."""

import os
import pickle
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plench.data.unpickle import read_pickle
from plench.errors import DataError
from tests.images.layouts import draw_pixels, python2_batch


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_plain_values_and_arrays(protocol: int) -> None:
    value = {
        "numbers": [1, -5, 2**70, 1.5, True, None],
        "nested": ([[1], [2, 3]], {"x": "text"}),
        "bytes": b"\x00\xff",
        "empty": b"",
        "array": np.arange(6.0).reshape(2, 3),
        "columns": np.asfortranarray(np.arange(6, dtype=np.uint8).reshape(2, 3)),
        "other end": np.arange(3, dtype=">i4"),
        "nothing": np.zeros((0, 3), np.float32),
        "scalar": np.int64(7),
    }
    found = read_pickle(pickle.dumps(value, protocol), "it")
    for key, expected in value.items():
        if isinstance(expected, np.ndarray):
            assert np.array_equal(found[key], expected)
            assert found[key].dtype == expected.dtype.newbyteorder("=")
        else:
            assert found[key] == expected


def test_python_2_text_is_bytes() -> None:
    pixels = draw_pixels(300)
    found = read_pickle(python2_batch(pixels, [3, 1, 4]), "it")
    assert set(found) == {b"data", b"labels"}
    assert np.array_equal(found[b"data"], pixels)
    assert found[b"labels"] == [3, 1, 4]


class Calls:
    """Pickles to a call of a function."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> Any:
        return self.call


@pytest.mark.parametrize(
    ("hostile", "asked"),
    [
        (Calls(os.system, "touch {mark}"), "system"),
        (Calls(subprocess.call, ["touch", "{mark}"]), "subprocess.call"),
        (Calls(eval, "open({mark!r}, 'w')"), "eval"),
        (Calls(open, "{mark}", "w"), "open"),
        (Calls(getattr, "x", "upper"), "getattr"),
        (Calls(np.fromfile, "{mark}"), "fromfile"),
        (Calls(np.load, "{mark}"), "load"),
        (Calls(np.save, "{mark}", 1), "save"),
        (Calls(bytearray, 10**18), "bytearray"),
        (Path("x"), "Path"),
        (np.random.RandomState(0), "numpy.random"),
        (np.ma.masked_array([1]), "numpy.ma"),
        (range(10), "range"),
        (print, "print"),
    ],
)
def test_anything_else_is_refused_before_it_runs(hostile: Any, asked: str, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    if isinstance(hostile, Calls):
        function, arguments = hostile.call
        fill = [a.format(mark=str(mark)) if isinstance(a, str) else a for a in arguments]
        fill = [[w.format(mark=str(mark)) for w in a] if isinstance(a, list) else a for a in fill]
        hostile = Calls(function, *fill)
    for protocol in (0, 2, 4):
        content = pickle.dumps({"good": [1], "bad": hostile}, protocol)
        with pytest.raises(DataError, match=r"it is refused: it asks for .*" + asked.rpartition(".")[2]):
            read_pickle(content, "it")
    assert not mark.exists()


@pytest.mark.parametrize(
    "array",
    [
        np.array([object()], dtype=object),
        np.array([{"a": 1}], dtype=object),
        np.array([(1, 2.0)], dtype="i4,f8"),
        np.array(["text"]),
        np.array(["2020-01-01"], dtype="M8[D]"),
        np.array([1j]),
    ],
)
def test_only_arrays_of_numbers(array: np.ndarray) -> None:
    content = pickle.dumps(array, 2)
    with pytest.raises(DataError, match="refused"):
        read_pickle(content, "it")


def forged(shape: tuple[Any, ...], raw: bytes) -> bytes:
    """A pickled array whose shape and bytes do not agree."""
    good = np.zeros(2, np.uint8)
    rebuild, arguments, _ = good.__reduce__()

    class Forged:
        def __reduce__(self) -> Any:
            return rebuild, arguments, (1, shape, good.dtype, False, raw)

    return pickle.dumps(Forged(), 2)


@pytest.mark.parametrize(
    ("shape", "raw"),
    [
        ((10**15,), b"ab"),
        ((3,), b"ab"),
        ((-2,), b"ab"),
        ((2**40, 2**40), b""),
        ((1.5,), b"a"),
        ((2, "x"), b""),
    ],
)
def test_forged_shapes(shape: tuple[Any, ...], raw: bytes) -> None:
    with pytest.raises(DataError, match="refused"):
        read_pickle(forged(shape, raw), "it")


def test_values_that_occur_many_times_are_visited_once() -> None:
    """Sixty tuples, each twice the one before: 2⁶⁰ places, which no reader may walk through."""
    value: Any = np.arange(3)
    for _ in range(60):
        value = (value, value)
    found = read_pickle(pickle.dumps(value, 4), "it")
    for _ in range(60):
        assert found[0] is found[1]
        found = found[0]
    assert found.tolist() == [0, 1, 2]


def test_stand_ins_cannot_be_abused() -> None:
    for content in (
        b"cnumpy\nndarray\n.",  # the type itself
        b"cnumpy\ndtype\nU\x02u1\x85R.",  # a bare number type
        b"cnumpy\nndarray\n)\x81.",  # an array without content
        b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\ndtype\nK\x00\x85U\x01b\x87R.",
        b"c_codecs\nencode\nX\x01\x00\x00\x00aX\x05\x00\x00\x00utf-8\x86R.",
        b"cnumpy.core.multiarray\nscalar\nK\x01K\x02\x86R.",
        b"c_codecs\nencode\n}X\x01\x00\x00\x00aK\x01sb.",  # sets an attribute of a function
        b"c_codecs\nencode\nN}X\x0c\x00\x00\x00__defaults__K\x01\x85s\x86b.",
        b"Pxyz\n.",  # a reference to something outside
    ):
        with pytest.raises(DataError):
            read_pickle(content, "it")


def test_cycles_and_shared_parts() -> None:
    loop: list[Any] = [np.arange(3)]
    loop.append(loop)
    found = read_pickle(pickle.dumps(loop), "it")
    assert found[1] is found
    assert found[0].tolist() == [0, 1, 2]
    shared: list[Any] = [1]
    for _ in range(60):  # 2⁶⁰ paths, 60 lists
        shared = [shared, shared]
    assert len(read_pickle(pickle.dumps(shared), "it")) == 2


def test_truncated_and_empty() -> None:
    content = pickle.dumps({b"data": draw_pixels(5), b"labels": [1] * 5})
    for length in (0, 1, 10, 100, len(content) // 2, len(content) - 1):
        with pytest.raises(DataError, match="it is damaged or no pickle"):
            read_pickle(content[:length], "it")


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=60), st.integers(0, 200), st.binary(min_size=1, max_size=4))
def test_damage_never_escapes(noise: bytes, place: int, patch: bytes) -> None:
    content = bytearray(pickle.dumps({b"data": np.arange(20, dtype=np.uint8), b"labels": [1, 2, 3]}, 2))
    place %= len(content)
    content[place : place + len(patch)] = patch
    for damaged in (noise, bytes(content)):
        try:
            read_pickle(damaged, "it")
        except DataError:
            continue
