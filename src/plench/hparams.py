"""Hyperparameters: declared with default and search distribution, drawn exactly as the protocol says."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from plench.errors import UsageError
from plench.settings import BOUNDS, seed_hash

if TYPE_CHECKING:  # what reads runs draws nothing, and goes without numpy
    import numpy as np

Value = float | int | str | bool


@dataclass(frozen=True)
class DataTraits:
    """What hyperparameters may depend on: the kind of data and the protocol's noise rate, not the dataset."""

    kind: str
    protocol_noise_rate: float | None = None


class Distribution(Protocol):
    """A random-search distribution."""

    def draw(self, random: np.random.RandomState) -> Value:
        """Draw one value."""

    def __str__(self) -> str: ...


@dataclass(frozen=True)
class LogRange:
    """10 to the power of a uniform number in [low, high)."""

    low: float
    high: float

    def draw(self, random: np.random.RandomState) -> Value:
        """Draw one value."""
        return float(10 ** random.uniform(self.low, self.high))

    def __str__(self) -> str:
        return f"10^U({self.low:g}, {self.high:g})"


@dataclass(frozen=True)
class PowerOfTwo:
    """2 to the power of the integer part of a uniform number in [low, high)."""

    low: float
    high: float

    def draw(self, random: np.random.RandomState) -> Value:
        """Draw one value."""
        return int(2 ** int(random.uniform(self.low, self.high)))

    def __str__(self) -> str:
        return f"2^int U({self.low:g}, {self.high:g})"


class Choice:
    """One of the listed values, each equally likely."""

    def __init__(self, *values: Value) -> None:
        self.values = values

    def draw(self, random: np.random.RandomState) -> Value:
        """Draw one value."""
        drawn: Value = random.choice(list(self.values)).item()
        return drawn

    def __str__(self) -> str:
        return "one of " + ", ".join(f"{value}" for value in self.values)


@dataclass(frozen=True)
class Constant:
    """Always the same value: not searched."""

    value: Value

    def draw(self, random: np.random.RandomState) -> Value:
        """Return the value."""
        return self.value

    def __str__(self) -> str:
        return f"{self.value} (not searched)"


@dataclass(frozen=True)
class Hyperparameter:
    """One hyperparameter of an algorithm, declared in that algorithm's file.

    Parameters
    ----------
    name : str
        Key in the configuration.
    default : value or callable
        The default, or a function of `DataTraits` if it depends on the data (see `by_kind`).
    meaning : str
        One line for lists and pages.
    search : distribution or callable, optional
        What random search draws from: `LogRange`, `PowerOfTwo`, `Choice`, or a function of `DataTraits`.
        Without it the default is used in every configuration.
    type : type, optional
        Type of the value; by default that of the default.
    above, at_least, at_most : float, optional
        Bounds, checked whenever a value is given.
    one_of : tuple, optional
        The allowed values.

    Examples
    --------
    >>> Hyperparameter("temperature", 0.5, "temperature of the softmax", LogRange(-1, 0), above=0)
    """

    name: str
    default: Value | Callable[[DataTraits], Value]
    meaning: str
    search: Distribution | Callable[[DataTraits], Distribution] | None = None
    type: type | None = None
    above: float | None = None
    at_least: float | None = None
    at_most: float | None = None
    one_of: tuple[Value, ...] | None = None

    def default_for(self, traits: DataTraits) -> Value:
        """Return the default on data of these traits."""
        value: Value = self.convert(self.default(traits) if callable(self.default) else self.default)
        return value

    def search_for(self, traits: DataTraits) -> Distribution:
        """Return the search distribution on data of these traits."""
        if self.search is None:
            return Constant(self.default_for(traits))
        return self.search(traits) if callable(self.search) else self.search

    def range_text(self) -> str:
        """Return the bounds in words; empty if there are none."""
        if self.one_of is not None:
            return "one of " + ", ".join(map(str, self.one_of))
        bounds = {"> ": self.above, "≥ ": self.at_least, "≤ ": self.at_most}
        return ", ".join(f"{sign}{bound:g}" for sign, bound in bounds.items() if bound is not None)

    def convert(self, value: Any) -> Any:
        """Check a value given by a user and return it in this hyperparameter's type."""
        example = self.default(DataTraits("tabular")) if callable(self.default) else self.default
        kind = self.type or type(example)
        if kind is float and isinstance(value, int | float) and not isinstance(value, bool):
            value = float(value)
        elif kind is int and isinstance(value, float) and value.is_integer():
            value = int(value)
        given, expected = type(value), ""
        if given is not kind:
            expected = f"of type {kind.__name__}"
        elif isinstance(value, float) and not math.isfinite(value):
            expected = "finite"
        elif self.one_of is not None and value not in self.one_of:
            expected = f"one of {list(self.one_of)}"
        else:
            for name, holds in BOUNDS.items():
                bound = getattr(self, name, None)
                if bound is not None and not holds(value, bound):
                    expected = f"{name.replace('_', ' ')} {bound:g}"
        if expected:
            raise UsageError(f"hyperparameter {self.name} must be {expected}, not {value!r}")
        return value


def by_kind(tabular: Any, image: Any) -> Callable[[DataTraits], Any]:
    """Choose between two declarations by the kind of data."""
    return lambda traits: image if traits.kind == "image" else tabular


def by_noise_rate(unknown: Any, known: Callable[[float], Any]) -> Callable[[DataTraits], Any]:
    """Declare `known(rate)` for data whose noise rate the protocol gives, `unknown` for others."""
    return lambda traits: unknown if traits.protocol_noise_rate is None else known(traits.protocol_noise_rate)


SHARED: tuple[Hyperparameter, ...] = (
    Hyperparameter("lr", 1e-3, "learning rate of Adam", LogRange(-4.5, -2.5), above=0),
    Hyperparameter("weight_decay", 1e-5, "L2 term added to the gradient", LogRange(-6, -3), at_least=0),
    Hyperparameter(
        "batch_size",
        by_kind(128, 256),
        "examples per update (all of them if there are fewer)",
        by_kind(PowerOfTwo(5, 8), PowerOfTwo(6, 9)),
        at_least=1,
    ),
    Hyperparameter("model", by_kind("MLP", "ResNet"), "network, see `plench list models`"),
)


# One random state per thread, seeded anew for every value: making one takes 50 times as long.
_drawing = threading.local()


def draw_hparams(
    own: Iterable[Hyperparameter],
    traits: DataTraits,
    hparams_seed: int,
    trial_seed: int,
    overrides: Mapping[str, Any] | None = None,
    shared: bool = True,
) -> dict[str, Value]:
    """Return the configuration `hparams_seed` (0: defaults) of a split, with the user's values on top.

    Each value has its own random state seeded by its name, so adding a hyperparameter changes no other.
    `shared`: whether the algorithm has the shared hyperparameters.
    """
    declared = {parameter.name: parameter for parameter in (*(SHARED if shared else ()), *own)}
    unknown = sorted(set(overrides or {}) - set(declared))
    if unknown:
        raise UsageError(f"unknown hyperparameter {unknown[0]!r}; expected one of {', '.join(declared)}")
    values: dict[str, Value] = {}
    seed = seed_hash(hparams_seed, trial_seed)
    if not hasattr(_drawing, "state"):
        import numpy as np

        _drawing.state = np.random.RandomState(0)
    for name, parameter in declared.items():
        if overrides and name in overrides:
            values[name] = parameter.convert(overrides[name])
        elif hparams_seed == 0 or parameter.search is None:
            values[name] = parameter.default_for(traits)
        else:
            _drawing.state.seed(seed_hash(seed, name))
            values[name] = parameter.convert(parameter.search_for(traits).draw(_drawing.state))
    return values
