"""Stand-ins for what pickled arrays name: no function of numpy runs on values before they are checked."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from plench.errors import DataError
from plench.text import short_repr

NUMBER_TYPE = re.compile(r"[|<>=]?[biuf][0-9]{1,2}")
MAX_AXES = 32
BYTE_ORDERS: dict[object, Literal["|", "<", ">", "="]] = {"|": "|", "<": "<", ">": ">", "=": "="}


class Allowed:
    """A function that a pickle may call."""

    __slots__ = ("function",)

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    def __call__(self, *arguments: Any) -> Any:
        """Call the function."""
        return self.function(*arguments)


class Arguments(tuple[Any, ...]):
    """A tuple with a type, a function or half an array in it: only a call may take it."""


class ArrayStandIn:
    """An array that has no content yet."""

    array: np.ndarray | None = None

    def set_state(self, state: Any) -> None:
        """Make the array of its shape, type and bytes."""
        if not isinstance(state, tuple) or len(state) not in (4, 5):
            raise DataError("it holds an array in an unknown form")
        shape, dtype, by_columns, raw = state[-4:]
        self.array = build_array(raw, dtype, shape, "F" if by_columns is True or by_columns == 1 else "C")


class TypeStandIn:
    """A number type named by a pickle."""

    def __init__(self, code: Any, align: Any = False, copy: Any = True) -> None:
        text = read_short_text(code)
        try:
            known = text is not None and NUMBER_TYPE.fullmatch(text) is not None
            dtype = np.dtype(text if known else "O")
        except TypeError:  # a size that no number has
            dtype = np.dtype("O")
        if dtype.kind == "O":
            raise DataError(f"it holds an array of type {short_repr(code)}; allowed are arrays of numbers")
        self.dtype = dtype

    def set_state(self, state: Any) -> None:
        """Set the byte order."""
        order = read_short_text(state[1]) if isinstance(state, tuple) and len(state) > 1 else None
        if order not in BYTE_ORDERS:
            raise DataError("it holds a number type in an unknown form")
        self.dtype = self.dtype.newbyteorder(BYTE_ORDERS[order])


def read_short_text(value: Any) -> str | None:
    """Return a short text, which Python 2 has as bytes; None for anything else."""
    if not isinstance(value, str | bytes) or len(value) > 16:
        return None
    return value.decode("ascii", "replace") if isinstance(value, bytes) else value


def build_array(raw: Any, dtype: Any, shape: Any, order: Any) -> np.ndarray:
    """Lay bytes out as an array, if type, shape and size agree."""
    if not isinstance(dtype, TypeStandIn) or not isinstance(raw, bytes | bytearray):
        raise DataError("it holds an array that is not one of plain numbers")
    if not isinstance(shape, tuple) or len(shape) > MAX_AXES:
        raise DataError(f"it holds an array whose shape is {short_repr(shape)}")
    if not all(type(side) is int and 0 <= side < 2**63 for side in shape):
        raise DataError(f"it holds an array of shape ({', '.join(map(short_repr, shape))})")
    if math.prod(shape) * dtype.dtype.itemsize != len(raw):
        raise DataError(f"it holds {len(raw):,} bytes for an array of shape {shape} and type {dtype.dtype}")
    array = np.frombuffer(raw, dtype.dtype).reshape(shape, order="F" if order in ("F", b"F") else "C")
    return array.astype(dtype.dtype.newbyteorder("="), copy=False)


def start_array(subtype: Any, shape: Any, code: Any) -> ArrayStandIn:
    """Stand in for numpy's `_reconstruct`: an empty array, to be filled by its state."""
    if subtype is not ALLOWED["numpy", "ndarray"]:
        raise DataError("it holds an array of a special kind")
    return ArrayStandIn()


def wrap_buffer(raw: Any, dtype: Any, shape: Any, order: Any) -> np.ndarray:
    """Stand in for numpy's `_frombuffer`, which newer pickles use."""
    return build_array(raw, dtype, shape, order)


def read_scalar(dtype: Any, raw: Any) -> Any:
    """Stand in for numpy's `scalar`: a plain number."""
    return build_array(raw, dtype, (), "C").item()


def encode_latin1(text: Any, encoding: Any = "latin1") -> bytes:
    """Stand in for `_codecs.encode`, by which Python 3 writes bytes in old protocols."""
    if not isinstance(text, str) or read_short_text(encoding) != "latin1":
        raise DataError("it holds text in an unknown encoding")
    return text.encode("latin1")


def make_empty_bytes() -> bytes:
    """Stand in for `bytes`, by which Python 3 writes empty bytes in old protocols."""
    return b""


def refuse_call() -> None:
    """Stand in for the array type, which good pickles name and never call."""
    raise DataError("it makes an array in an unknown way")


CALL_ONLY: frozenset[type] = frozenset((Allowed, Arguments, ArrayStandIn, TypeStandIn))
ALLOWED: dict[tuple[str, str], Allowed] = {
    ("numpy", "ndarray"): Allowed(refuse_call),
    ("numpy", "dtype"): Allowed(TypeStandIn),
    ("numpy.core.multiarray", "_reconstruct"): Allowed(start_array),
    ("numpy.core.multiarray", "scalar"): Allowed(read_scalar),
    ("numpy.core.numeric", "_frombuffer"): Allowed(wrap_buffer),
    ("_codecs", "encode"): Allowed(encode_latin1),
    ("__builtin__", "bytes"): Allowed(make_empty_bytes),
}
