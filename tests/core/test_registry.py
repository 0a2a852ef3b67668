"""The one registry: members of a package, of entry points, and those given by path or module."""

import hashlib
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from plench.algorithms.registry import ALGORITHMS
from plench.cli import main
from plench.criteria import CRITERIA, criteria, find_criterion, measure_all
from plench.data import dataset_card, dataset_names, load_dataset
from plench.data.sources import DATASETS, keeps_name
from plench.errors import DataError, UsageError
from plench.networks import NETWORKS, Featurizer, find_network
from plench.registry import DiscoveryError, Registry, is_third_party
from plench.sweeps.engines import ENGINES
from plench.sweeps.plan import make_suite
from tests.training.harness import only_folder, read_description, read_records

OTHERS = """
import numpy as np
from torch import nn

from plench.criteria import Criterion
from plench.data import Dataset, DatasetCard
from plench.data.sources.base import Source
from plench.networks import FeatureExtractor, Network


class Tiny(FeatureExtractor):
    n_outputs = 7

    def __init__(self, shape):
        super().__init__()
        self.layer = nn.Linear(shape[0], 7)

    def forward(self, x):
        return self.layer(x).tanh()


NETWORK = Network("Tiny", "seven units", Tiny)

CARD = DatasetCard("Peas", "tabular", "sorting peas", "our garden", "CC0", "none", default_steps=20)


def load_peas(data_dir):
    labels = np.arange(60) % 3
    return Dataset(np.random.RandomState(0).rand(60, 4), labels[:, None] == np.arange(3), labels, CARD)


SOURCE = Source(CARD, load_peas)


def mean_set_size(logits, candidates, labels):
    return float(np.asarray(candidates).sum(1).mean())


CRITERION = Criterion("Size", "Size", "Mean set size.", "val_set_size", mean_set_size, False, position=9)
"""

KINDS = {
    "datasets": (DATASETS, "SOURCE", "Peas"),
    "networks": (NETWORKS, "NETWORK", "Tiny"),
    "criteria": (CRITERIA, "CRITERION", "Size"),
}


@dataclass(frozen=True)
class Thing:
    name: str
    also: tuple[str, ...] = ()


def things(**options: Any) -> Registry[Thing]:
    return Registry[Thing](
        "thing",
        "made_package",
        "a Thing",
        lambda value: isinstance(value, Thing),
        lambda thing: thing.name,
        rename=lambda thing, name: Thing(name),
        aliases_of=lambda thing: thing.also,
        **options,
    )


def write_thing(path: Path, name: str, also: tuple[str, ...] = ()) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"from tests.core.test_registry import Thing\n\nTHING = Thing({name!r}, {also!r})\n")
    return path


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty package whose parent is importable, and registries that search again."""
    folder = tmp_path / "made_package"
    folder.mkdir()
    (folder / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    yield folder
    for registry in (ALGORITHMS, CRITERIA, DATASETS, NETWORKS):
        registry.clear()
    for name in [name for name in sys.modules if name.startswith(("made_package", "made_by_others"))]:
        del sys.modules[name]


@pytest.fixture
def others(package: Path) -> Path:
    """A third-party module with a dataset, a network and a criterion."""
    for registry in (ALGORITHMS, CRITERIA, DATASETS, NETWORKS):
        registry.clear()
    path = package.parent / "made_by_others.py"
    path.write_text(OTHERS)
    return path


def install(site: Path, group: str, **points: str) -> None:
    """Make a distribution with entry points, as an installer would."""
    metadata = site / "others-1.0.dist-info"
    metadata.mkdir(exist_ok=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: others\nVersion: 1.0\n")
    lines = "".join(f"{name} = {target}\n" for name, target in points.items())
    with (metadata / "entry_points.txt").open("a") as file:
        file.write(f"[{group}]\n{lines}\n")


def short_hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:8]


def test_members_of_every_file_are_found_once(package: Path) -> None:
    write_thing(package / "two.py", "A")
    write_thing(package / "one.py", "B")
    write_thing(package / "base.py", "C")
    write_thing(package / "more" / "two.py", "Big_One", ("huge",))
    (package / "more" / "__init__.py").touch()
    (package / "again.py").write_text("from made_package.one import THING\n")
    registry = things()
    assert registry.names == ["B", "A", "Big_One"]
    assert registry.items["A"].member == Thing("A")
    assert registry.find("big one") is registry.find("HUGE") is registry.own["Big_One"]
    assert registry.knows("big-one")
    assert not registry.knows("small")
    with pytest.raises(UsageError, match="unknown thing 'bigger'; did you mean Big_One"):
        registry.find("bigger")


def test_bad_files_of_a_package_are_named(package: Path) -> None:
    write_thing(package / "one.py", "aa")
    write_thing(package / "two.py", "A_a")
    twice = r"thing 'A_a' is declared twice: in made_package\.one and made_package\.two"
    with pytest.raises(DiscoveryError, match=twice):
        _ = things().own
    (package / "two.py").unlink()
    (package / "broken.py").write_text("1 / 0")
    with pytest.raises(DiscoveryError, match=r"file made_package\.broken fails to import.*ZeroDivisionError"):
        _ = things().own


def test_a_third_party_name_carries_a_hash_and_is_known_once_loaded(package: Path, tmp_path: Path) -> None:
    path = write_thing(tmp_path / "made_by_others.py", "Mine")
    registry = things()
    full_name = f"Mine@{short_hash(path)}"
    with pytest.raises(UsageError, match="it is third-party and not loaded; name it as path"):
        registry.find(full_name)
    entry = registry.find(f"{path}:THING")
    assert (entry.name, entry.member.name, entry.source) == (full_name, full_name, str(path))
    assert entry.spec == f"{path}:THING"
    assert registry.find(full_name) is entry
    by_module = registry.find("made_by_others:THING")
    assert (by_module.name, by_module.spec) == (full_name, "made_by_others:THING")
    write_thing(path, "Mine", ("changed",))
    assert registry.find(f"{path}:THING").name == f"Mine@{short_hash(path)}" != full_name
    assert set(registry.loaded) == {full_name, f"Mine@{short_hash(path)}"}
    copy = write_thing(tmp_path / "elsewhere" / "made_by_others.py", "Mine", ("changed",))
    path.unlink()  # a copy is found although the first is gone
    assert registry.find(f"{copy}:THING").source == str(copy)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("{path}:OTHER", "has no thing 'OTHER'; it has THING: write path/to/file.py:NAME"),
        ("{path}", "a name is missing; it has THING"),
        ("{path}:Thing", "is not a Thing"),
        ("nowhere.py:THING", "cannot read the thing's file nowhere.py"),
        ("no_such_module:THING", "module 'no_such_module' fails to import"),
        (":THING", "expected path/to/file.py:NAME or module:NAME"),
    ],
)
def test_a_bad_spec_says_what_is_wrong(spec: str, message: str, package: Path, tmp_path: Path) -> None:
    path = write_thing(tmp_path / "made_by_others.py", "Mine")
    with pytest.raises(UsageError, match=message):
        things().find(spec.format(path=path))


def test_paths_that_are_no_specs() -> None:
    assert not any(map(is_third_party, (r"C:\data\x.npz", "C:/data/x.npz", "./a:b", "Lost", "x.mat")))
    assert all(map(is_third_party, ("x.py", "x.py:A", r"C:\x.py:A", "a.b:C")))


def test_entry_points_are_imported_one_by_one_when_asked_for(package: Path, tmp_path: Path) -> None:
    write_thing(package / "one.py", "Ours")
    path = write_thing(tmp_path / "made_by_others.py", "Mine")
    install(tmp_path, "made.things", Theirs="made_by_others:THING", Broken="no_such_module:THING")
    registry = things(group="made.things")
    assert sorted(registry.names) == ["Broken", "Ours", "Theirs"]
    assert registry.find("ours").source is None
    assert "made_by_others" not in sys.modules
    entry = registry.find("theirs")
    assert (entry.name, entry.spec, entry.source) == (f"Mine@{short_hash(path)}", "Theirs", str(path))
    with pytest.raises(DiscoveryError, match="entry point Broken = no_such_module:THING fails to load"):
        _ = registry.items
    install(tmp_path, "other.things", Theirs="made_by_others:THING")
    registry = things(group="other.things")
    assert registry.find(f"Mine@{short_hash(path)}").spec == "Theirs"  # by its name in records
    with pytest.raises(UsageError, match="unknown thing 'Mine@00000000'"):
        registry.find("Mine@00000000")
    install(tmp_path, "bad.things", ours="made_by_others:THING")
    with pytest.raises(DiscoveryError, match=r"'ours' is declared twice: by plench \(Ours\) and the entry"):
        _ = things(group="bad.things").names


@pytest.mark.parametrize("way", ["path", "module", "entry point"])
@pytest.mark.parametrize("kind", KINDS)
def test_others_come_by_path_module_and_entry_point(kind: str, way: str, others: Path, cli) -> None:
    registry, attribute, name = KINDS[kind]
    spec = f"{others if way == 'path' else 'made_by_others'}:{attribute}"
    if way == "entry point":
        install(others.parent, f"plench.{kind}", Theirs=f"made_by_others:{attribute}")
        spec = "theirs"
        listed = cli("list", "models" if kind == "networks" else kind, "--json").out
        assert "Theirs" in [row["name"] for row in json.loads(listed)]
    entry = registry.find(spec)
    assert (entry.name, entry.source) == (f"{name}@{short_hash(others)}", str(others))
    assert registry.find(entry.name).member == entry.member


def test_a_dataset_of_others(others: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, "plench.datasets", Theirs="made_by_others:SOURCE")
    (tmp_path / "pets").mkdir()
    monkeypatch.chdir(tmp_path)
    assert all(map(keeps_name, ("Lost", "PLCIFAR10_Annotators_3", "NoLongerThere")))
    assert not any(map(keeps_name, ("./Lost", "x.npz", "x.mat", "pets", "x.py:A", "a:B", "Theirs")))
    with pytest.raises(UsageError, match="unknown dataset"):
        dataset_card(f"{others}:SOURCE", own_only=True)
    assert dataset_card("lost", own_only=True).name == "Lost"
    assert "made_by_others" not in sys.modules
    assert "Theirs" in dataset_names()
    assert all("Theirs" not in grid.datasets for grid in make_suite("lite"))
    dataset = load_dataset(f"{others}:SOURCE")
    assert dataset.card == dataset_card(f"{others}:SOURCE")
    assert (dataset.card.name, dataset.input_shape) == (f"Peas@{short_hash(others)}", (60, 4))
    others.write_text(OTHERS.replace("Source(CARD, load_peas)", "Source(CARD, lambda data_dir: None)"))
    with pytest.raises(DataError, match="load returned NoneType"):
        load_dataset(f"{others}:SOURCE")


def test_a_criterion_of_others_is_measured_once_loaded(others: Path) -> None:
    logits, candidates = np.eye(3), np.ones((3, 3), bool)
    ours = measure_all(logits, candidates, None)
    assert "val_set_size" not in ours
    criterion = find_criterion(f"{others}:CRITERION")
    assert measure_all(logits, candidates, None) == ours
    assert measure_all(logits, candidates, None, [criterion]) == {**ours, "val_set_size": 3.0}
    assert list(criteria) == [*CRITERIA.own, criterion.name]


def test_a_criterion_of_an_entry_point_is_always_measured_but_not_imported_for_tables(others: Path) -> None:
    install(others.parent, "plench.criteria", Size="made_by_others:CRITERION")
    assert list(criteria) == list(CRITERIA.own)
    assert find_criterion("OA w/ ES").name == "OA_ES"
    assert "made_by_others" not in sys.modules
    assert measure_all(np.eye(3), np.ones((3, 3), bool), None)["val_set_size"] == 3.0


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("val_accuracy", "record_key val_accuracy is that of OA"),
        ("test_acc", "record_key must begin with val_"),
    ],
)
def test_a_criterion_of_others_needs_a_record_key_of_its_own(key: str, message: str, others: Path) -> None:
    others.write_text(OTHERS.replace("val_set_size", key))
    with pytest.raises(UsageError, match=message):
        find_criterion(f"{others}:CRITERION")


def test_a_run_on_others_data_and_network(others: Path, tmp_path: Path) -> None:
    assert Featurizer((10, 4), {"model": find_network(f"{others}:NETWORK").name}).n_outputs == 7
    model = json.dumps({"model": f"{others}:NETWORK"})
    words = ["train", "-a", "PRODEN", "-d", f"{others}:SOURCE", "--hparams", model, "--steps", "4"]
    words += ["--more-criteria", f"{others}:CRITERION", "--checkpoint-freq", "2"]
    assert main([*words, "--output-dir", str(tmp_path / "out")]) == 0
    folder = only_folder(tmp_path / "out")
    config = read_description(folder)["config"]
    found = (config["hparams"]["model"], config["dataset"], config["more_criteria"])
    assert found == tuple(f"{name}@{short_hash(others)}" for name in ("Tiny", "Peas", "Size"))
    assert [record["val_set_size"] for record in read_records(folder)] == [1.0, 1.0, 1.0]


@pytest.mark.real
def test_a_sweep_on_others_parts_gives_models_that_load_without_them(others: Path, tmp_path: Path) -> None:
    parts = ["--datasets", f"{others}:SOURCE", "--hparams", json.dumps({"model": f"{others}:NETWORK"})]
    parts += ["--more-criteria", f"{others}:CRITERION", "--algorithms", "CC", "--n-hparams", "1"]
    numbers = ["--n-trials", "1", "--steps", "4", "--checkpoint-freq", "2", "--workers", "1"]
    command = [sys.executable, "-m", "plench", "sweep", "launch", *parts, *numbers, "--output-dir", "runs"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (folder,) = (path for path in (tmp_path / "runs").iterdir() if path.is_dir())
    assert [record["val_set_size"] for record in read_records(folder)] == [1.0, 1.0, 1.0]
    others.unlink()
    code = f"import plench; print(plench.load({str(folder)!r}).predict([[0.0] * 4]))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert loaded.returncode == 0, loaded.stderr
    assert loaded.stdout.strip() in ("[0]", "[1]", "[2]")


def test_engines_are_found_by_name_and_alias() -> None:
    assert sorted(ENGINES.names) == ["dummy", "local", "ray", "slurm"]
    assert ENGINES.find("multi_gpu").name == "local"
    with pytest.raises(UsageError, match="unknown engine 'slurn'; did you mean slurm"):
        ENGINES.find("slurn")
