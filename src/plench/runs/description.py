"""run.json: its keys, its one author, and the one way to read it. Needs no torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from plench.hparams import DataTraits
from plench.plain_files import read_plain
from plench.runs.json_text import find_parser, parse_json
from plench.settings import PROTOCOL_VERSION
from plench.text import short_repr

if TYPE_CHECKING:  # these import torch
    from plench.algorithms import AlgorithmCard, AlgorithmEntry
    from plench.data import Dataset, DatasetCard
    from plench.training.config import RunConfig
    from plench.training.data import PreparedData

SCHEMA = 1
STATUSES = ("running", "done", "diverged", "failed", "interrupted")
FINISHED = ("done", "diverged")
MAX_BYTES = 2**24  # of a run.json: a thousand times what it has
# Keys of the upper level are indented by one space, no value has a line break in it. A file is cut where what
# is a run's own begins and ends.
_OWN = (b"run_id", b"config", b"timings")
_FIRST_CUTS = tuple(b'\n "%b": ' % name for name in (b"run_id", b"protocol", b"config", b"algorithm_card"))
_LAST_CUT = b'\n "timings": '


@dataclass(frozen=True)
class Key:
    """A key of run.json: type of its value, whether a description is of no use without it, meaning."""

    type: type | tuple[type, ...]
    needed: bool
    meaning: str


_TEXT = (str, type(None))
# The end of the notice of a run whose method makes no use of weights that it was given.
IGNORES_WEIGHTS = "ignores the weights of candidates"
# What a card says of the public code, and of how runs are carried out.
NOT_RECORDED = ("objective", "public_fault", "public_fault_on", "stacked", "not_stackable")

# The schema of run.json. Another version of plench may have written more.
KEYS = {
    "schema": Key(int, False, "version of this list of keys"),
    "run_id": Key(str, False, "the run's identity: a hash of all that decides its numbers"),
    "protocol": Key((int, type(None)), False, "version of the protocol the numbers belong to"),
    "experiment": Key(dict, True, "what a cell of a table stands for: runs that differ in it are kept apart"),
    "config": Key(dict, True, "the configuration: algorithm, dataset, hyperparameters, settings"),
    "algorithm_card": Key(dict, False, "the algorithm's card, hyperparameters with default and search"),
    "algorithm_class": Key(str, False, "name of the algorithm's class"),
    "algorithm_spec": Key(_TEXT, False, "how the algorithm is asked for; null if it is in algorithm.py"),
    "network": Key(str, False, "name of a third party's network in network.py"),
    "dataset": Key(dict, False, "the dataset's card, fingerprint, sizes of the split, noise rate"),
    "status": Key(str, True, "running, done, diverged, failed or interrupted"),
    "error": Key((dict, str, type(None)), False, "type, message and traceback of a failed run"),
    "diverged_after_step": Key((int, type(None)), False, "step of the last record before divergence"),
    "state": Key(list, False, "what the algorithm keeps beside its weights, with memory"),
    "versions": Key(dict, False, "versions and conditions that exact numbers may depend on"),
    "commit": Key(_TEXT, False, "commit of plench's own checkout"),
    "device": Key(str, False, "device"),
    "threads": Key(int, False, "compute threads"),
    "timings": Key(dict, False, "when the run began and was last written; seconds spent"),
    "updates": Key(int, False, "updates made so far"),
    "notices": Key(list, False, "notices and warnings"),
    "fleet_size": Key(int, False, "runs that were trained as one, where there were several"),
}

NEEDED = {name: key for name, key in KEYS.items() if key.needed}
_TYPES = {name: key.type for name, key in KEYS.items()}


def describe_run(
    config: RunConfig, dataset: Dataset, entry: AlgorithmEntry, data: PreparedData | None = None
) -> dict[str, Any]:
    """Describe a run by what is known before its first update; without `data`, but for its split."""
    fingerprint = dataset.fingerprint
    described: dict[str, Any] = {
        "schema": SCHEMA,
        "run_id": config.run_id(fingerprint),
        "protocol": PROTOCOL_VERSION,
        "experiment": config.experiment(fingerprint),
        "config": config.to_json(),
        "algorithm_card": describe_card(entry.card, dataset.card),
        "algorithm_class": entry.cls.__name__,
        "algorithm_spec": None if entry.by_path else entry.spec,
        "dataset": {**asdict(dataset.card), "fingerprint": fingerprint, "verified": dataset.verified},
    }
    from plench.networks import find_network

    network = None if config.fitted else find_network(str(config.hparams["model"]))
    if network is not None and network.source is not None:
        described["network"] = network.spec.rpartition(":")[2]
    if dataset.class_names is None:
        del described["dataset"]["class_names"]
    if data is not None:
        described["dataset"] |= {
            "n_train": len(data.train),
            "n_validation": len(data.validation.stored),
            "n_test": len(data.test.stored),
            "n_classes": int(data.train_candidates.shape[1]),
            "input_shape": list(data.input_shape),
            "train_mean_candidates": float(data.train_candidates.sum(1).mean()),
            "train_noise_rate": data.train_noise_rate,
        }
    return described


def describe_card(card: AlgorithmCard, dataset: DatasetCard) -> dict[str, Any]:
    """Return an algorithm's card as plain JSON, its hyperparameters as they are on this kind of data."""
    traits = DataTraits(dataset.kind, dataset.protocol_noise_rate)
    # Fields that came later are named only where they say something.
    later = ("shared", "answers")
    usual = {name: type(card).__dataclass_fields__[name].default for name in later}
    recorded = {
        name: value
        for name, value in vars(card).items()
        if name not in NOT_RECORDED and (name not in later or value != usual[name])
    }
    return {
        **recorded,
        "hyperparameters": [
            {
                "name": parameter.name,
                "default": parameter.default_for(traits),
                "search": str(parameter.search_for(traits)),
                "meaning": parameter.meaning,
            }
            for parameter in card.hyperparameters
        ],
    }


class DescriptionError(ValueError):
    """A run.json that is of no use; the text says why."""


def read_description(path: str) -> dict[str, Any]:
    """Return the content of a run.json; `check_description` says what is odd about it.

    Raises FileNotFoundError where there is none, DescriptionError where it is of no use.
    """
    return _parse(_read(path))


def _read(path: str) -> bytes:
    try:
        return read_plain(path, MAX_BYTES)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise DescriptionError(f"cannot be read ({error.strerror or error})") from error


def _parse(text: bytes) -> dict[str, Any]:
    try:
        content = parse_json(text)
    except (ValueError, RecursionError) as error:
        raise DescriptionError(f"cannot be read ({error})") from error
    if not isinstance(content, dict):
        raise DescriptionError("not a JSON object")
    return content


class DescriptionReader:
    """Reads the run.json of many runs: what several of them share is parsed once.

    Files as we write them are cut at keys of the upper level. Where each part is members of a JSON object,
    all of them are what the whole file says; any other file is read as a whole. Values are shared by what
    is returned: nobody may change them.
    """

    def __init__(self) -> None:
        self._known: dict[bytes, dict[str, Any]] = {}

    def read(self, path: str) -> tuple[dict[str, Any], list[str]]:
        """Return what `read_description` does and what is odd about it; raise what that raises."""
        text = _read(path)
        content = self._put_together(text)
        if content is not None:
            return content, []
        content = _parse(text)
        return content, check_description(content)

    def _put_together(self, text: bytes) -> dict[str, Any] | None:
        """Return what a file says; None where it is not as we write it, or odd."""
        if not (text.startswith(b"{\n ") and text.endswith((b"\n}", b"\n}\n"))):
            return None
        cuts = [1]
        for mark in _FIRST_CUTS:  # in the order in which they are written, so that each letter is seen once
            cuts.append(text.find(mark, cuts[-1]))
            if cuts[-1] < 0:
                return None
        last = text.rfind(_LAST_CUT, cuts[-1])
        if last < 0:
            return None
        parts = [text[start + 2 : stop] for start, stop in pairwise((*cuts, last, text.rindex(b"\n}")))]
        parts[-1] += b","
        content: dict[str, Any] = {}
        parse = find_parser(b"\n".join([part for part in parts if part not in self._known]))
        for part in parts:
            members = self._known.get(part)
            if members is None:
                members = _parse_members(part, parse)
                if members is None:
                    return None
                if not part[1:].startswith(_OWN):
                    self._known[part] = members
            content.update(members)
        return content if content.get("schema") == SCHEMA else None


def _parse_members(part: bytes, parse: Callable[[bytes], Any]) -> dict[str, Any] | None:
    """Return what `"key": value, …,` says as an object; None if it is no JSON or a type is another."""
    try:
        members: dict[str, Any] = parse(b"{%b}" % part[:-1])
    except (ValueError, RecursionError):
        return None
    right = part.endswith(b",") and bool(members)
    types = [_TYPES.get(name, object) for name in members]
    return members if right and all(map(isinstance, members.values(), types)) else None


def check_description(content: dict[str, Any]) -> list[str]:
    """Say what is odd about a run.json that can be used: another schema, values of other types."""
    odd = []
    if content.get("schema") != SCHEMA:
        odd.append(f"schema {short_repr(content.get('schema'))}, this version knows {SCHEMA}")
    odd += [
        f"{name} is {type(content[name]).__name__}, not {_name_types(key)}"
        for name, key in KEYS.items()
        if name in content and name != "schema" and not isinstance(content[name], key.type)
    ]
    return odd


def find_lack(content: dict[str, Any]) -> str | None:
    """Return what a run.json lacks that is needed to identify its run; None if nothing."""
    for name, key in NEEDED.items():
        if not isinstance(content.get(name), key.type):
            return f"has no {name}"
    if content["status"] not in STATUSES:
        return f"status {short_repr(content['status'])} is none of {', '.join(STATUSES)}"
    return None


def format_keys() -> str:
    """Return the table of keys in Markdown, for docs/runs.md."""
    rows = [f"| `{name}` | {key.meaning} |" for name, key in KEYS.items()]
    return "\n".join(["| key of run.json | meaning |", "|---|---|", *rows])


def _name_types(key: Key) -> str:
    kinds = key.type if isinstance(key.type, tuple) else (key.type,)
    return " or ".join("null" if kind is type(None) else kind.__name__ for kind in kinds)
