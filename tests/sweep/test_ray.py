"""The Ray engine on a real cluster of two nodes: nodes and drivers are killed, nothing is lost or doubled."""

import os
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import skip_without
from tests.sweep.driving import (
    FITTED,
    STACKS,
    compare_stacks,
    count,
    finish,
    grid_of,
    launch,
    odd,
    read_outcomes,
    read_run_json,
    start,
    succeed,
    sweep,
    wait_for,
)

if find_spec("ray") is None:
    skip_without("ray", "plench[ray] is not installed")

pytestmark = pytest.mark.real

GRID = grid_of(["PRODEN", "CC", "LWS", *FITTED], n_hparams=2, n_trials=2, steps=400, checkpoint_freq=100)
N_RUNS = 24
NODE = {"num_cpus": 1, "object_store_memory": 80_000_000}


@pytest.fixture
def cluster() -> Iterator[Any]:
    """Yield a running cluster with a head of one CPU."""
    from ray.cluster_utils import Cluster

    running = Cluster(initialize_head=True, head_node_args={**NODE, "include_dashboard": False})
    yield running
    running.shutdown()


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return the outcomes of the local engine."""
    outcomes = launch(GRID, tmp_path_factory.mktemp("calm"), "--skip_model_save")
    assert len(outcomes) == N_RUNS
    return outcomes


def ray_command(cluster: Any, folder: Path, grid: list[str] = GRID) -> list[object]:
    address = ["--command_launcher", "ray", "--ray_address", cluster.address]
    return ["launch", *grid, *address, "--output_dir", folder, "--skip_model_save"]


def test_a_node_dies_and_a_new_one_joins(cluster: Any, calm: dict[str, Any], tmp_path: Path) -> None:
    second = cluster.add_node(**NODE)
    driver = start(*ray_command(cluster, tmp_path), "--save_steps", 1)
    wait_for(lambda: count(tmp_path) >= 5, 120, driver=driver)
    cluster.remove_node(second, allow_graceful=False)
    at_death = count(tmp_path)
    wait_for(lambda: count(tmp_path) >= at_death + 2, 120, driver=driver)
    cluster.add_node(**NODE)
    output = succeed(driver)
    assert at_death < N_RUNS
    assert read_outcomes(tmp_path) == calm
    assert f"done {N_RUNS}" in output


def test_a_run_whose_node_dies_resumes_from_its_checkpoint(
    counted: Path, cluster: Any, tmp_path: Path
) -> None:
    steps, every = 600, 50  # the cluster inherits the name of the file, so the file comes first
    second = cluster.add_node(**NODE)
    folder = tmp_path / "runs"
    grid = grid_of([odd("Counting")], n_hparams=1, n_trials=2, steps=steps)
    driver = start(*ray_command(cluster, folder, grid), "--save_steps", every)
    wait_for(lambda: counted.stat().st_size >= 1.4 * steps, 180, "updates", driver)
    assert count(folder) == 0  # both runs are in progress, each on a node of its own
    cluster.remove_node(second, allow_graceful=False)
    assert "it is started again" in succeed(driver)
    assert count(folder) == 2
    # Lost are the updates since the last checkpoint and those made until the node was gone for good.
    assert 0 < counted.stat().st_size - 2 * steps < 4 * every


def test_a_killed_driver_is_started_again(cluster: Any, calm: dict[str, Any], tmp_path: Path) -> None:
    cluster.add_node(**NODE)
    command = [*ray_command(cluster, tmp_path), "--save_steps", 100]
    driver = start(*command)
    wait_for(lambda: count(tmp_path) >= 5, 120, driver=driver)
    driver.kill()
    driver.communicate()
    assert count(tmp_path) < N_RUNS
    succeed(start(*command))
    assert read_outcomes(tmp_path) == calm


def test_failures_on_ray_are_recorded_with_their_reason(cluster: Any, tmp_path: Path) -> None:
    names = {"Raising": "ZeroDivisionError", "Dying": "WorkerDied", "Endless": "Timeout", "Plain": None}
    grid = grid_of([odd(name) for name in names], n_hparams=1, n_trials=1, steps=40)
    code, output = sweep(*ray_command(cluster, tmp_path, grid), "--run_timeout", 60)
    assert code == 1, output
    assert output.splitlines()[-1] == "3 runs failed: `plench sweep retry` runs them again"
    found = read_run_json(tmp_path)
    assert {name: (found[name]["error"] or {}).get("type") for name in names} == names
    assert (next(tmp_path.glob("*Plain*")) / "algorithm.py").exists()


def test_a_ray_of_its_own_has_as_many_slots_as_asked(calm: dict[str, Any], tmp_path: Path) -> None:
    room = ["--workers", 2, "--cpus_per_run", 0.5]  # one CPU has room for two halves
    output = succeed(
        start(
            *("launch", *GRID, "--output_dir", tmp_path, "--skip_model_save", "--command_launcher", "ray"),
            *room,
        )
    )
    assert f"{N_RUNS} runs to do, 2 at a time" in output
    assert read_outcomes(tmp_path) == calm


def test_stacks_survive_the_death_of_a_node(cluster: Any, tmp_path: Path) -> None:
    folder = tmp_path / "ray"
    calm = launch(STACKS, tmp_path / "calm")
    separate = launch(STACKS, tmp_path / "separate", "--stack", "off")
    second = cluster.add_node(**NODE)
    driver = start(*ray_command(cluster, folder, STACKS), "--save_steps", 100)
    wait_for(lambda: count(folder, "checkpoint.pt") == len(calm), 180, driver=driver)
    assert count(folder) == 0  # both stacks are in progress, each on a node of its own
    cluster.remove_node(second, allow_graceful=False)
    assert "started again" in succeed(driver)
    compare_stacks(folder, calm, separate)


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("127.0.0.1:9", "cannot connect to Ray at 127.0.0.1:9"),
        ("ray://here", "expected auto or HOST:PORT"),
    ],
)
def test_no_cluster_at_the_address_is_a_clear_error(tmp_path: Path, address: str, reason: str) -> None:
    options = ["--output_dir", tmp_path, "--command_launcher", "ray", "--ray_address", address]
    code, output = finish(start("launch", *GRID, *options), timeout=180)
    assert code == 2
    assert reason in output
    assert "Traceback" not in output


def test_a_ray_of_its_own_listens_on_loopback_and_wants_a_token(monkeypatch: pytest.MonkeyPatch) -> None:
    import ray

    from plench.sweeps.engines.ray import CLUSTERS, connect, keep_to_loopback

    for name in (CLUSTERS, "RAY_AUTH_MODE"):
        monkeypatch.delenv(name, raising=False)
    connect(None, 1, 1.0)
    try:
        (node,) = ray.nodes()
        assert node["NodeManagerAddress"] == "127.0.0.1"
        assert ray.get_runtime_context().gcs_address.startswith("127.0.0.1:")
        assert os.environ["RAY_AUTH_MODE"] == "token"
    finally:
        ray.shutdown()
        keep_to_loopback(False)
    assert CLUSTERS not in os.environ
