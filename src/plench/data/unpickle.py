"""Pickles from outside, read without running anything in them.

A pickle is a program for a small machine with a stack, and may name any importable function and call it.
Python's own machine also lets a pickle of a few bytes take all memory or time: by a number for its memo, by
tuples within tuples as a key. So the machine here is our own. It knows lists, tuples, dicts, sets, numbers,
text, bytes and numpy arrays of numbers, counts what it makes, and refuses a pickle at the first name of
anything else. What numpy would be called for is done by `pickled_arrays`.
"""

from __future__ import annotations

import codecs
import re
import struct
from collections.abc import Callable
from typing import Any

from plench.data.pickled_arrays import ALLOWED, CALL_ONLY, Allowed, Arguments, ArrayStandIn, TypeStandIn
from plench.errors import DataError
from plench.text import short_repr

MAX_STEPS = 2**26  # the release of PLCIFAR10, the largest known in steps, has 3 million
MAX_CONTAINERS = 2**22  # and half a million lists
MAX_LINE = 2**12  # of a number or a name written out; text can be longer
MAX_NUMBER_BYTES = 2**12
SMALL_NUMBER, LIST, END = b"K]."
# Behind the start of a list: its place in the memo, then one number (K.a) or several ((K.K.K.e).
SHORT_LIST = re.compile(rb"(?:q(.)|r(.{4})|\x94)(?:K(.)a|\(K((?:.K)*.)e)", re.DOTALL)
ATOMS = frozenset(
    (str, bytes, int, float, bool, type(None))
)  # what a key may be: hashing a tuple may not end


def read_pickle(content: bytes, name: str) -> Any:
    """Return what a pickle holds; text of Python 2 comes as bytes. Raises DataError, with `name` in front."""
    try:
        return PickleMachine(content).run()
    except DataError as error:
        raise DataError(f"{name} is refused: {error}") from None
    except (IndexError, KeyError, ValueError, struct.error, UnicodeError, OverflowError) as error:
        raise DataError(f"{name} is damaged or no pickle ({type(error).__name__}: {error})") from None


class PickleMachine:
    """Carries a pickle out. Its limits grow with the pickle: what is made of a byte is a few bytes."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.place = 0
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}
        self.containers = 0
        self.copied = 0  # bytes that calls may have copied out of the pickle

    def run(self) -> Any:
        """Return the value that the pickle ends with."""
        content, stack, memo = self.content, self.stack, self.memo
        place = 0
        for _ in range(min(len(content), MAX_STEPS)):
            code = content[place]
            place += 1
            if code == SMALL_NUMBER:  # the most frequent, without a call
                stack.append(content[place])
                place += 1
            elif code == LIST:  # with its place in the memo and the small numbers in it, if these follow
                found = SHORT_LIST.match(content, place)
                self.push_new([] if found is None else list(found[3] or found[4][::2]))
                if found is not None:
                    place = found.end()
                    index = found[2] if found[2] is not None else found[1]
                    self.put(len(memo) if index is None else int.from_bytes(index, "little"))
            elif code == END:
                return self.check_plain(self.pop(1))[0]
            else:
                self.place = place
                STEPS.get(code, refuse)(self)
                place = self.place
        if len(content) > MAX_STEPS:
            raise DataError(f"it has more than {MAX_STEPS:,} steps")
        raise ValueError("it has no end")

    # What the steps are made of.

    def take(self, size: int) -> bytes:
        """Return the next bytes."""
        end = self.place + size
        if end > len(self.content):
            raise ValueError("it is truncated")
        piece = self.content[self.place : end]
        self.place = end
        return piece

    def take_sized(self, width: int) -> bytes:
        """Return the bytes whose number stands before them, in `width` bytes."""
        return self.take(int.from_bytes(self.take(width), "little"))

    def take_line(self, limit: int = MAX_LINE) -> bytes:
        """Return the bytes up to the end of the line."""
        end = self.content.find(b"\n", self.place, self.place + limit)
        if end < 0:
            raise ValueError("a line has no end")
        piece = self.content[self.place : end]
        self.place = end + 1
        return piece

    def top(self) -> Any:
        """Return the newest value that lies above the newest mark."""
        if len(self.stack) <= (self.marks[-1] if self.marks else 0):
            raise ValueError("a value is missing")
        return self.stack[-1]

    def pop(self, count: int) -> list[Any]:
        """Take values from the stack, none from below the newest mark."""
        start = len(self.stack) - count
        if start < (self.marks[-1] if self.marks else 0):
            raise ValueError("a value is missing")
        values = self.stack[start:]
        del self.stack[start:]
        return values

    def pop_mark(self) -> list[Any]:
        """Take all values above the newest mark."""
        start = self.marks.pop()
        values = self.stack[start:]
        del self.stack[start:]
        return values

    def put(self, number: int) -> None:
        """Keep the newest value under a number."""
        if not 0 <= number <= max(len(self.content), 255):
            raise DataError(f"it counts its values up to {number:,} and has {len(self.content):,} bytes")
        self.memo[number] = self.top()

    def get(self, number: int) -> None:
        """Bring back what was kept under a number."""
        if number not in self.memo:
            raise ValueError(f"it has kept no value {number:,}")
        found = self.memo[number]
        self.stack.append(
            found.array if isinstance(found, ArrayStandIn) and found.array is not None else found
        )

    def push_new(self, container: Any) -> None:
        """Push a container, which has to be one of not too many."""
        self.containers += 1
        if self.containers > MAX_CONTAINERS:
            raise DataError(f"it has more than {MAX_CONTAINERS:,} lists, tuples, dicts and sets")
        self.stack.append(container)

    def push_tuple(self, values: list[Any]) -> None:
        """Push a tuple; one that only a call may take is marked as such."""
        self.push_new(tuple(values) if CALL_ONLY.isdisjoint(map(type, values)) else Arguments(values))

    def check_plain(self, values: list[Any]) -> list[Any]:
        """Return the values if none of them is a type, a function or half an array."""
        if not CALL_ONLY.isdisjoint(map(type, values)):
            raise DataError("it holds a type, a function or an array without content")
        return values

    def extend_list(self, values: list[Any]) -> None:
        """Add values to the list on the stack."""
        target = self.top()
        if type(target) is not list:
            raise ValueError(f"it adds values to {short_repr(target)}")
        target += self.check_plain(values)

    def fill_dict(self, target: Any, values: list[Any]) -> None:
        """Add keys and values, which take turns."""
        if type(target) is not dict or len(values) % 2:
            raise ValueError(f"it adds keys and values to {short_repr(target)}")
        self.check_plain(values)
        target.update(zip(self.check_keys(values[::2]), values[1::2], strict=True))

    def check_keys(self, keys: list[Any]) -> list[Any]:
        """Return keys of a dict or members of a set if they are numbers, text or bytes."""
        if not ATOMS.issuperset(map(type, keys)):
            wrong = next(key for key in keys if type(key) not in ATOMS)
            raise DataError(f"it has {short_repr(wrong)} as a key; allowed are numbers, text and bytes")
        return keys

    def fill_set(self, values: list[Any]) -> None:
        """Add members to the set on the stack."""
        target = self.top()
        if type(target) is not set:
            raise ValueError(f"it adds members to {short_repr(target)}")
        target.update(self.check_keys(values))

    def name(self, module: Any, name: Any) -> None:
        """Push the stand-in of an allowed name; refuse any other."""
        if not isinstance(module, str) or not isinstance(name, str):
            raise ValueError("a name is no text")
        found = ALLOWED.get((module.replace("numpy._core.", "numpy.core."), name))
        if found is None:
            asked = f"{module[:MAX_LINE]}.{name[:MAX_LINE]}"
            raise DataError(f"it asks for {asked}; allowed are lists, dicts, numbers, text, bytes and arrays")
        self.stack.append(found)

    def call(self) -> None:
        """Call one of the allowed functions."""
        function, arguments = self.pop(2)
        if not isinstance(function, Allowed) or not isinstance(arguments, tuple):
            raise DataError("it calls what is no function")
        self.count_copy(arguments)
        try:
            self.stack.append(function(*arguments))
        except TypeError:
            raise DataError("it calls a function in an unknown way") from None

    def build(self) -> None:
        """Give an array or a number type its content."""
        (state,) = self.pop(1)
        target = self.top()
        if not isinstance(target, ArrayStandIn | TypeStandIn):
            raise DataError("it tries to change a function or a value")
        self.count_copy(state if isinstance(state, tuple) else ())
        target.set_state(state)
        if isinstance(target, ArrayStandIn):
            self.stack[-1] = target.array

    def count_copy(self, arguments: tuple[Any, ...]) -> None:
        """Refuse calls that copy the same bytes again and again: each byte of a pickle is needed once."""
        self.copied += sum(len(value) for value in arguments if isinstance(value, str | bytes | bytearray))
        if self.copied > 2 * len(self.content):
            raise DataError("it makes more of its bytes than there are")

    def refuse(self) -> None:
        """Say why a step is not carried out."""
        code = chr(self.content[self.place - 1])
        if code in "PQ":
            raise DataError("it refers to objects outside the file")
        if code == "i":  # an instance, with the name of its class
            self.name(self.take_line().decode(), self.take_line().decode())
        if code in "io\x81\x92\x82\x83\x84\x97\x98":
            raise DataError("it makes an object in a way that is not allowed")
        raise ValueError(f"unknown step {code!r}")


def scan_pickle(content: bytes) -> None:
    """Raise DataError for a pickle whose values take far more time or memory than its bytes, or is broken.

    Names and calls are passed over: it is for those who read the pickle with other rules afterwards.
    """
    try:
        ScanningMachine(content).run()
    except (IndexError, KeyError, ValueError, struct.error, UnicodeError, OverflowError) as error:
        raise DataError(f"its pickle is damaged ({type(error).__name__}: {error})") from None


class Unknown:
    """Stands for whatever a name or a call would give."""


class ScanningMachine(PickleMachine):
    """Carries a pickle out without names, calls and references."""

    def name(self, module: Any, name: Any) -> None:
        """Push something unknown in the place of what is named."""
        self.stack.append(Unknown())

    def call(self) -> None:
        """Push something unknown in the place of what a call would give."""
        self.pop(2)
        self.stack.append(Unknown())

    def build(self) -> None:
        """Drop what an unknown value would be given."""
        self.pop(1)
        self.top()

    def fill_dict(self, target: Any, values: list[Any]) -> None:
        """Look at the keys; an unknown value may be a mapping."""
        super().fill_dict({} if isinstance(target, Unknown) else target, values)

    def refuse(self) -> None:
        """Let a reference to an object outside the pickle (Q) be something unknown."""
        if self.content[self.place - 1 : self.place] != b"Q":
            super().refuse()
        self.pop(1)
        self.stack.append(Unknown())


def parse_number(line: bytes) -> int | bool:
    """Return a number of the oldest protocol, in which 00 and 01 are truth values."""
    return line == b"01" if line in (b"00", b"01") else parse_digits(line)


def parse_digits(line: bytes) -> int:
    """Return a number written in digits; Python 2 has an L behind some."""
    return int(line.removesuffix(b"L"))


def parse_long(piece: bytes) -> int:
    """Return a number written in bytes."""
    if len(piece) > MAX_NUMBER_BYTES:
        raise DataError(f"it has a number of {len(piece):,} bytes")
    return int.from_bytes(piece, "little", signed=True)


def parse_quoted(line: bytes) -> bytes:
    """Return text of the oldest protocol, which stands between quotes."""
    if len(line) < 2 or line[:1] != line[-1:] or line[:1] not in (b"'", b'"'):
        raise ValueError("text without quotes")
    return codecs.escape_decode(line[1:-1])[0]


def decode_text(piece: bytes) -> str:
    """Return text; single surrogates are as Python writes them."""
    return piece.decode("utf-8", "surrogatepass")


def make_push(parse: Callable[[PickleMachine], Any]) -> Callable[[PickleMachine], None]:
    """Return the step that pushes what `parse` takes from the pickle."""

    def push(machine: PickleMachine) -> None:
        machine.stack.append(parse(machine))

    return push


def pop_one(machine: PickleMachine) -> None:
    """Drop the newest value, or the newest mark if nothing lies above it."""
    if machine.marks and machine.marks[-1] == len(machine.stack):
        machine.marks.pop()
    else:
        machine.pop(1)


def make_dict(machine: PickleMachine) -> None:
    """Make a dict of all values above the mark."""
    made: dict[Any, Any] = {}
    machine.fill_dict(made, machine.pop_mark())
    machine.push_new(made)


def set_items(machine: PickleMachine, values: list[Any]) -> None:
    """Add keys and values to the dict on the stack."""
    machine.fill_dict(machine.top(), values)


def refuse(machine: PickleMachine) -> None:
    """Say why a step is not carried out."""
    machine.refuse()


def take_frame(machine: PickleMachine) -> None:
    """Pass over the size of a frame, which only helps those who read from a stream."""
    machine.take(8)


def take_protocol(machine: PickleMachine) -> None:
    """Read the protocol, of which there are 0 to 5."""
    if machine.take(1)[0] > 5:
        raise ValueError("an unknown protocol")


STEPS: dict[int, Callable[[PickleMachine], object]] = {
    ord("\x80"): take_protocol,
    ord("\x95"): take_frame,
    ord("("): lambda m: m.marks.append(len(m.stack)),
    ord("0"): pop_one,
    ord("1"): PickleMachine.pop_mark,
    ord("2"): lambda m: m.stack.append(m.top()),
    ord("N"): make_push(lambda m: None),
    ord("\x88"): make_push(lambda m: True),
    ord("\x89"): make_push(lambda m: False),
    ord("I"): make_push(lambda m: parse_number(m.take_line())),
    ord("J"): make_push(lambda m: int.from_bytes(m.take(4), "little", signed=True)),
    ord("M"): make_push(lambda m: int.from_bytes(m.take(2), "little")),
    ord("L"): make_push(lambda m: parse_digits(m.take_line())),
    ord("\x8a"): make_push(lambda m: parse_long(m.take_sized(1))),
    ord("\x8b"): make_push(lambda m: parse_long(m.take_sized(4))),
    ord("F"): make_push(lambda m: float(m.take_line())),
    ord("G"): make_push(lambda m: struct.unpack(">d", m.take(8))[0]),
    ord("S"): make_push(lambda m: parse_quoted(m.take_line(len(m.content)))),
    ord("T"): make_push(lambda m: m.take_sized(4)),
    ord("U"): make_push(lambda m: m.take_sized(1)),
    ord("V"): make_push(lambda m: m.take_line(len(m.content)).decode("raw-unicode-escape")),
    ord("X"): make_push(lambda m: decode_text(m.take_sized(4))),
    ord("\x8c"): make_push(lambda m: decode_text(m.take_sized(1))),
    ord("\x8d"): make_push(lambda m: decode_text(m.take_sized(8))),
    ord("B"): make_push(lambda m: m.take_sized(4)),
    ord("C"): make_push(lambda m: m.take_sized(1)),
    ord("\x8e"): make_push(lambda m: m.take_sized(8)),
    ord("\x96"): make_push(lambda m: bytearray(m.take_sized(8))),
    ord("]"): lambda m: m.push_new([]),
    ord("}"): lambda m: m.push_new({}),
    ord("\x8f"): lambda m: m.push_new(set()),
    ord(")"): make_push(lambda m: ()),
    ord("a"): lambda m: m.extend_list(m.pop(1)),
    ord("e"): lambda m: m.extend_list(m.pop_mark()),
    ord("l"): lambda m: m.push_new(m.check_plain(m.pop_mark())),
    ord("s"): lambda m: set_items(m, m.pop(2)),
    ord("u"): lambda m: set_items(m, m.pop_mark()),
    ord("d"): make_dict,
    ord("\x90"): lambda m: m.fill_set(m.pop_mark()),
    ord("\x91"): lambda m: m.push_new(frozenset(m.check_keys(m.pop_mark()))),
    ord("t"): lambda m: m.push_tuple(m.pop_mark()),
    ord("\x85"): lambda m: m.push_tuple(m.pop(1)),
    ord("\x86"): lambda m: m.push_tuple(m.pop(2)),
    ord("\x87"): lambda m: m.push_tuple(m.pop(3)),
    ord("g"): lambda m: m.get(parse_digits(m.take_line())),
    ord("h"): lambda m: m.get(m.take(1)[0]),
    ord("j"): lambda m: m.get(int.from_bytes(m.take(4), "little")),
    ord("r"): lambda m: m.put(int.from_bytes(m.take(4), "little")),
    ord("\x94"): lambda m: m.put(len(m.memo)),
    ord("p"): lambda m: m.put(parse_digits(m.take_line())),
    ord("q"): lambda m: m.put(m.take(1)[0]),
    ord("c"): lambda m: m.name(m.take_line().decode(), m.take_line().decode()),
    ord("\x93"): lambda m: m.name(*m.pop(2)),
    ord("R"): lambda m: m.call(),
    ord("b"): lambda m: m.build(),
}
