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

REGISTRIES = (ALGORITHMS, CRITERIA, DATASETS, NETWORKS)

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
    folder = tmp_path / "made_package"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    yield folder
    forget_modules("made_package", "made_by_others")


@pytest.fixture
def fresh() -> Iterator[None]:
    """Let all registries look again, now and after the test."""
    for registry in REGISTRIES:
        registry.clear()
    yield
    for registry in REGISTRIES:
        registry.clear()
    forget_modules("made_by_others")


def forget_modules(*packages: str) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] in packages]:
        del sys.modules[name]


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


def test_members_of_every_file_are_found(package: Path) -> None:
    write_thing(package / "two.py", "A")
    write_thing(package / "one.py", "B")
    write_thing(package / "base.py", "C")
    (package / "again.py").write_text("from made_package.one import THING\n")
    assert things().names == ["B", "A"]
    assert things().items["A"].member == Thing("A")


def test_packages_below_are_searched_last(package: Path) -> None:
    write_thing(package / "one.py", "A")
    write_thing(package / "more" / "two.py", "B")
    (package / "more" / "__init__.py").touch()
    assert things().names == ["A", "B"]


def test_a_duplicate_name_is_an_error_that_names_the_files(package: Path) -> None:
    write_thing(package / "one.py", "aa")
    write_thing(package / "two.py", "A_a")
    with pytest.raises(
        DiscoveryError, match=r"thing 'A_a' is declared twice: in made_package\.one and made_package\.two"
    ):
        _ = things().own


def test_a_file_that_fails_to_import_is_an_error_that_names_it(package: Path) -> None:
    (package / "broken.py").write_text("1 / 0")
    with pytest.raises(
        DiscoveryError, match=r"thing file made_package\.broken fails to import.*ZeroDivisionError"
    ):
        _ = things().own


def test_names_are_found_in_any_spelling(package: Path) -> None:
    write_thing(package / "one.py", "Big_One", ("huge",))
    registry = things()
    assert registry.find("big one") is registry.own["Big_One"]
    assert registry.find("HUGE") is registry.own["Big_One"]
    assert registry.knows("big-one")
    assert not registry.knows("small")
    with pytest.raises(UsageError, match="unknown thing 'bigger'; did you mean Big_One"):
        registry.find("bigger")


def test_a_third_party_s_name_carries_a_hash_and_is_known_once_loaded(package: Path, tmp_path: Path) -> None:
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


def test_a_copy_elsewhere_is_found_after_the_first_is_gone(package: Path, tmp_path: Path) -> None:
    first = write_thing(tmp_path / "first" / "made.py", "Mine")
    second = write_thing(tmp_path / "second" / "made.py", "Mine")
    registry = things()
    name = registry.find(f"{first}:THING").name
    first.unlink()
    assert registry.find(f"{second}:THING").name == name
    assert registry.find(f"{second}:THING").source == str(second)


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


def test_an_entry_point_is_found_by_its_name_in_records(package: Path, tmp_path: Path) -> None:
    path = write_thing(tmp_path / "made_by_others.py", "Mine")
    install(tmp_path, "made.things", Theirs="made_by_others:THING")
    registry = things(group="made.things")
    assert registry.find(f"Mine@{short_hash(path)}").spec == "Theirs"
    with pytest.raises(UsageError, match="unknown thing 'Mine@00000000'"):
        registry.find("Mine@00000000")


def test_an_entry_point_with_a_name_of_ours_is_an_error(package: Path, tmp_path: Path) -> None:
    write_thing(package / "one.py", "Ours")
    install(tmp_path, "made.things", ours="made_by_others:THING")
    with pytest.raises(
        DiscoveryError, match=r"'ours' is declared twice: by plench \(Ours\) and the entry point made_by"
    ):
        _ = things(group="made.things").names


@pytest.fixture
def others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fresh: None) -> Path:
    """A third party's module with a dataset, a network and a criterion."""
    path = tmp_path / "made_by_others.py"
    path.write_text(OTHERS)
    monkeypatch.syspath_prepend(tmp_path)
    return path


@pytest.mark.parametrize("way", ["path", "module", "entry point"])
@pytest.mark.parametrize("kind", KINDS)
def test_others_come_by_path_module_and_entry_point(kind: str, way: str, others: Path) -> None:
    registry, attribute, name = KINDS[kind]
    if way == "entry point":
        install(others.parent, f"plench.{kind}", Theirs=f"made_by_others:{attribute}")
        spec = "theirs"
    else:
        spec = f"{others if way == 'path' else 'made_by_others'}:{attribute}"
    entry = registry.find(spec)
    assert entry.name == f"{name}@{short_hash(others)}"
    assert entry.source == str(others)
    assert registry.find(entry.name).member == entry.member


def test_others_are_listed(others: Path, capsys: pytest.CaptureFixture[str]) -> None:
    targets = {kind: attribute for kind, (_, attribute, _) in KINDS.items()}
    for kind, attribute in targets.items():
        install(others.parent, f"plench.{kind}", Theirs=f"made_by_others:{attribute}")
    for what in ("datasets", "models", "criteria"):
        assert main(["list", what, "--json"]) == 0
        assert "Theirs" in [row["name"] for row in json.loads(capsys.readouterr().out)]
    assert "Theirs" in dataset_names()
    assert all("Theirs" not in grid.datasets for grid in make_suite("lite"))
    assert list(criteria)[:4] == ["CR", "AA", "OA", "OA_ES"]


def test_a_dataset_of_others_is_loaded_under_its_name_in_records(others: Path) -> None:
    dataset = load_dataset(f"{others}:SOURCE")
    assert dataset.card == dataset_card(f"{others}:SOURCE")
    assert dataset.card.name == f"Peas@{short_hash(others)}"
    assert dataset.input_shape == (60, 4)
    others.write_text(OTHERS.replace("Source(CARD, load_peas)", "Source(CARD, lambda data_dir: None)"))
    with pytest.raises(DataError, match=r"load returned NoneType; expected a plench.data.Dataset"):
        load_dataset(f"{others}:SOURCE")


def test_a_network_of_others_is_built_by_its_name_in_records(others: Path) -> None:
    entry = find_network(f"{others}:NETWORK")
    assert Featurizer((10, 4), {"model": entry.name}).n_outputs == 7
    assert NETWORKS.own.keys() >= {"MLP", "ResNet"}


def test_a_criterion_of_others_is_measured_once_loaded(others: Path) -> None:
    logits, candidates = np.eye(3), np.ones((3, 3), bool)
    ours = measure_all(logits, candidates, None)
    assert "val_set_size" not in ours
    criterion = find_criterion(f"{others}:CRITERION")
    assert criterion.name == f"Size@{short_hash(others)}"
    assert measure_all(logits, candidates, None) == ours
    assert measure_all(logits, candidates, None, [criterion]) == {**ours, "val_set_size": 3.0}
    assert list(criteria) == ["CR", "AA", "OA", "OA_ES", criterion.name]


def test_a_criterion_of_an_entry_point_is_always_measured_but_not_imported_for_views(others: Path) -> None:
    install(others.parent, "plench.criteria", Size="made_by_others:CRITERION")
    assert list(criteria) == ["CR", "AA", "OA", "OA_ES"]
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
def test_a_criterion_of_others_keeps_off_the_record_s_other_figures(
    key: str, message: str, others: Path
) -> None:
    others.write_text(OTHERS.replace("val_set_size", key))
    with pytest.raises(UsageError, match=message):
        find_criterion(f"{others}:CRITERION")


def test_a_run_on_others_data_and_network(others: Path, tmp_path: Path) -> None:
    model = json.dumps({"model": f"{others}:NETWORK"})
    arguments = ["train", "-a", "PRODEN", "-d", f"{others}:SOURCE", "--hparams", model, "--steps", "4"]
    arguments += ["--more_criteria", f"{others}:CRITERION", "--checkpoint_freq", "2"]
    assert main([*arguments, "--output_dir", str(tmp_path / "out")]) == 0
    folder = only_folder(tmp_path / "out")
    config = read_description(folder)["config"]
    assert config["hparams"]["model"] == f"Tiny@{short_hash(others)}"
    assert config["dataset"] == f"Peas@{short_hash(others)}"
    assert config["more_criteria"] == f"Size@{short_hash(others)}"
    assert [record["val_set_size"] for record in read_records(folder)] == [1.0, 1.0, 1.0]


@pytest.mark.real
def test_a_sweep_on_others_parts_gives_models_that_load_without_them(others: Path, tmp_path: Path) -> None:
    parts = ["--datasets", f"{others}:SOURCE", "--hparams", json.dumps({"model": f"{others}:NETWORK"})]
    parts += ["--more_criteria", f"{others}:CRITERION", "--algorithms", "CC", "--n_hparams", "1"]
    numbers = ["--n_trials", "1", "--steps", "4", "--checkpoint_freq", "2", "--workers", "1"]
    command = [sys.executable, "-m", "plench", "sweep", "launch", *parts, *numbers, "--output_dir", "runs"]
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


@pytest.mark.parametrize("module", ["plench.registry", "plench.sweeps.engines", "plench.data.sources"])
def test_registries_import_no_torch(module: str) -> None:
    code = f"import sys, {module}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_viewing_imports_nobody_s_dataset(tmp_path: Path, fresh: None) -> None:
    trap = tmp_path / "trap.py"
    trap.write_text("raise SystemExit('imported')")
    with pytest.raises(UsageError, match="unknown dataset"):
        dataset_card(f"{trap}:SOURCE", own_only=True)
    assert dataset_card("lost", own_only=True).name == "Lost"


def test_which_datasets_keep_their_name(
    others: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, "plench.datasets", Theirs="made_by_others:SOURCE")
    (tmp_path / "pets").mkdir()
    monkeypatch.chdir(tmp_path)
    assert all(map(keeps_name, ("Lost", "PLCIFAR10_Annotators_3", "NoLongerThere")))
    assert not any(map(keeps_name, ("./Lost", "x.npz", "x.mat", "pets", "x.py:A", "a:B", "Theirs")))
    assert "made_by_others" not in sys.modules
