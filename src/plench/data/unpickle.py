"""Pickles from outside, read without running anything in them.

A pickle may name any importable function and call it. This reader knows lists, tuples, dicts, sets, numbers,
strings, bytes and numpy arrays of numbers, and refuses a pickle at the first name of anything else. The numpy
names in a pickle are answered by small stand-ins, so that no function of numpy runs on values from the file
before they are checked.
"""

from __future__ import annotations

import io
import math
import pickle
from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from plench.errors import DataError

NUMBER_KINDS = "biuf"
BYTE_ORDERS: dict[object, Literal["|", "<", ">", "="]] = {"|": "|", "<": "<", ">": ">", "=": "="}


def read_pickle(content: bytes, name: str) -> Any:
    """Return what a pickle holds; text of Python 2 comes as bytes. Raises DataError, with `name` in front."""
    unpickler = PlainUnpickler(content)
    try:
        value = unpickler.load()
        return replace_arrays(value, {}) if unpickler.met_names else value
    except DataError as error:
        raise DataError(f"{name} is refused: {error}") from None
    except Exception as error:  # a damaged pickle can make the unpickler raise nearly anything
        raise DataError(f"{name} is damaged or no pickle ({type(error).__name__}: {error})") from None


class PlainUnpickler(pickle.Unpickler):
    """An unpickler that resolves no name but those of numpy arrays, and those to stand-ins."""

    def __init__(self, content: bytes) -> None:
        super().__init__(io.BytesIO(content), encoding="bytes")
        self.met_names = False

    def find_class(self, module: str, name: str) -> Any:
        """Return the stand-in of an allowed name; refuse any other."""
        found = ALLOWED.get((module.replace("numpy._core.", "numpy.core."), name))
        if found is None:
            raise DataError(
                f"it asks for {module}.{name}; allowed are lists, dicts, numbers, text, bytes and arrays"
            )
        self.met_names = True
        return found

    def persistent_load(self, pid: Any) -> Any:
        """Refuse references to objects outside the file."""
        raise DataError("it refers to objects outside the file")


class Allowed:
    """A function that a pickle may call. It cannot be changed from within the pickle."""

    __slots__ = ("function",)

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    def __call__(self, *arguments: Any) -> Any:
        """Call the function."""
        return self.function(*arguments)

    def __setstate__(self, state: Any) -> None:
        raise DataError("it tries to change a function")


class ArrayStandIn:
    """Holds what a pickle says of an array, checked, until the array takes its place."""

    array: np.ndarray | None = None

    def __setstate__(self, state: Any) -> None:
        if not isinstance(state, tuple) or len(state) not in (4, 5):
            raise DataError("it holds an array in an unknown form")
        shape, dtype, by_columns, raw = state[-4:]
        self.array = build_array(raw, dtype, shape, "F" if by_columns else "C")


class TypeStandIn:
    """Holds a number type named by a pickle."""

    def __init__(self, code: Any, align: Any = False, copy: Any = True) -> None:
        text = code.decode("ascii", "replace") if isinstance(code, bytes) else code
        try:
            dtype = np.dtype(text) if isinstance(text, str) else np.dtype("O")
        except TypeError:
            dtype = np.dtype("O")
        if dtype.kind not in NUMBER_KINDS:
            raise DataError(f"it holds an array of type {code!r}; allowed are arrays of numbers")
        self.dtype = dtype

    def __setstate__(self, state: Any) -> None:
        order = state[1] if isinstance(state, tuple) and len(state) > 1 else None
        order = order.decode("ascii", "replace") if isinstance(order, bytes) else order
        if order not in BYTE_ORDERS:
            raise DataError("it holds a number type in an unknown form")
        self.dtype = self.dtype.newbyteorder(BYTE_ORDERS[order])


def build_array(raw: Any, dtype: Any, shape: Any, order: Any) -> np.ndarray:
    """Lay bytes out as an array, if type, shape and size agree."""
    if not isinstance(dtype, TypeStandIn) or not isinstance(raw, bytes | bytearray):
        raise DataError("it holds an array that is not one of plain numbers")
    if not isinstance(shape, tuple) or not all(type(side) is int and side >= 0 for side in shape):
        raise DataError(f"it holds an array of shape {shape!r}")
    if math.prod(shape) * dtype.dtype.itemsize != len(raw):
        raise DataError(f"it holds {len(raw):,} bytes for an array of shape {shape} and type {dtype.dtype}")
    array = np.frombuffer(raw, dtype.dtype).reshape(shape, order="F" if order == "F" else "C")
    return array.astype(dtype.dtype.newbyteorder("="), copy=False)


def start_array(subtype: Any, shape: Any, code: Any) -> ArrayStandIn:
    """Stand in for numpy's `_reconstruct`: an empty array, to be filled by its state."""
    if subtype is not ALLOWED["numpy", "ndarray"]:
        raise DataError("it holds an array of a special kind")
    return ArrayStandIn()


def wrap_buffer(raw: Any, dtype: Any, shape: Any, order: Any) -> ArrayStandIn:
    """Stand in for numpy's `_frombuffer`, which newer pickles use."""
    made = ArrayStandIn()
    made.array = build_array(raw, dtype, shape, order)
    return made


def read_scalar(dtype: Any, raw: Any) -> Any:
    """Stand in for numpy's `scalar`: a plain number."""
    return build_array(raw, dtype, (), "C").item()


def encode_latin1(text: Any, encoding: Any = "latin1") -> bytes:
    """Stand in for `_codecs.encode`, by which Python 3 writes bytes in old protocols."""
    if not isinstance(text, str) or encoding not in ("latin1", b"latin1"):
        raise DataError("it holds text in an unknown encoding")
    return text.encode("latin1")


def make_empty_bytes() -> bytes:
    """Stand in for `bytes`, by which Python 3 writes empty bytes in old protocols."""
    return b""


def refuse_call() -> None:
    """Stand in for the array type, which good pickles name and never call."""
    raise DataError("it makes an array in an unknown way")


ALLOWED: dict[tuple[str, str], Allowed] = {
    ("numpy", "ndarray"): Allowed(refuse_call),
    ("numpy", "dtype"): Allowed(TypeStandIn),
    ("numpy.core.multiarray", "_reconstruct"): Allowed(start_array),
    ("numpy.core.multiarray", "scalar"): Allowed(read_scalar),
    ("numpy.core.numeric", "_frombuffer"): Allowed(wrap_buffer),
    ("_codecs", "encode"): Allowed(encode_latin1),
    ("__builtin__", "bytes"): Allowed(make_empty_bytes),
}


def replace_arrays(value: Any, done: dict[int, tuple[Any, Any]]) -> Any:
    """Put arrays in the place of their stand-ins, in lists, tuples and the values of dicts.

    `done` has, by identity, what was replaced by what: a value that occurs many times is visited once.
    """
    if isinstance(value, ArrayStandIn):
        if value.array is None:
            raise DataError("it holds an array without content")
        return value.array
    if isinstance(value, TypeStandIn | Allowed):
        raise DataError("it holds a type or a function")
    if id(value) in done:
        return done[id(value)][1]
    if isinstance(value, dict):
        done[id(value)] = value, value
        for key, item in value.items():
            value[key] = replace_arrays(item, done)
    elif isinstance(value, list):
        done[id(value)] = value, value
        for place, item in enumerate(value):
            if not isinstance(item, int):
                value[place] = replace_arrays(item, done)
    elif isinstance(value, tuple):
        replaced = tuple(replace_arrays(item, done) for item in value)
        done[id(value)] = value, replaced
        return replaced
    return value
