"""The Ray engine on a real cluster of two nodes: nodes and drivers die, nothing is lost or doubled."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.sweep.driving import (
    compare_stacks,
    finish,
    fitted_arguments,
    grid_arguments,
    launch_calmly,
    odd,
    read_outcomes,
    read_run_json,
    stack_arguments,
    start,
    sweep,
    wait_for,
)

pytest.importorskip("ray", reason="ray is not installed (plench[ray])")

pytestmark = pytest.mark.real

GRID = grid_arguments(n_hparams=4, n_trials=2, steps=400, checkpoint_freq=100)
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
    """Return what the local engine leaves behind."""
    folder = tmp_path_factory.mktemp("calm")
    code, output = sweep("launch", *GRID, "--output_dir", str(folder), "--workers", "2", "--skip_model_save")
    assert code == 0, output
    outcomes = read_outcomes(folder)
    assert len(outcomes) == N_RUNS
    return outcomes


def ray_command(cluster: Any, folder: Path, *grid: str) -> list[str]:
    address = ["--command_launcher", "ray", "--ray_address", cluster.address]
    return ["launch", *(grid or GRID), *address, "--output_dir", str(folder), "--skip_model_save"]


def count_done(folder: Path) -> int:
    return len(list(folder.glob("*/done")))


def test_a_node_dies_and_a_new_one_joins(cluster: Any, calm: dict[str, Any], tmp_path: Path) -> None:
    second = cluster.add_node(**NODE)
    driver = start(*ray_command(cluster, tmp_path), "--save_steps", "100")
    wait_for(lambda: count_done(tmp_path) >= 5 or driver.poll() is not None, timeout=120)
    cluster.remove_node(second, allow_graceful=False)
    at_death = count_done(tmp_path)
    wait_for(lambda: count_done(tmp_path) >= at_death + 2 or driver.poll() is not None, timeout=120)
    cluster.add_node(**NODE)
    code, output = finish(driver)
    assert code == 0, output
    assert at_death < N_RUNS
    assert read_outcomes(tmp_path) == calm
    assert f"done {N_RUNS}" in output


@pytest.fixture
def counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a file that grows by a byte an update; ask for it before the cluster, which inherits it."""
    file = tmp_path / "count"
    file.touch()
    monkeypatch.setenv("PLENCH_TEST_COUNT", str(file))
    return file


def test_a_run_whose_node_dies_continues_from_its_checkpoint(
    counted: Path, cluster: Any, tmp_path: Path
) -> None:
    steps, every = 600, 50
    second = cluster.add_node(**NODE)
    folder = tmp_path / "runs"
    grid = grid_arguments([odd("Counting")], n_hparams=1, n_trials=2, steps=steps)
    driver = start(*ray_command(cluster, folder, *grid), "--save_steps", str(every))
    wait_for(
        lambda: counted.stat().st_size >= 1.4 * steps or driver.poll() is not None,
        timeout=180,
        what="updates",
    )
    assert count_done(folder) == 0  # both runs are on their way, each on a node of its own
    cluster.remove_node(second, allow_graceful=False)
    code, output = finish(driver)
    assert code == 0, output
    assert "it is started again" in output
    assert count_done(folder) == 2
    # Lost are the updates since the last checkpoint and those made until the node was gone for good.
    assert 0 < counted.stat().st_size - 2 * steps < 4 * every


def test_a_killed_driver_is_started_again(cluster: Any, calm: dict[str, Any], tmp_path: Path) -> None:
    cluster.add_node(**NODE)
    command = [*ray_command(cluster, tmp_path), "--save_steps", "100"]
    driver = start(*command)
    wait_for(lambda: count_done(tmp_path) >= 5 or driver.poll() is not None, timeout=120)
    driver.send_signal(signal.SIGKILL)
    driver.communicate()
    assert count_done(tmp_path) < N_RUNS
    code, output = sweep(*command)
    assert code == 0, output
    assert read_outcomes(tmp_path) == calm


def test_failures_on_ray_are_recorded_with_their_reason(cluster: Any, tmp_path: Path) -> None:
    names = ("Raising", "Dying", "Endless", "Plain")
    grid = grid_arguments([odd(name) for name in names], n_hparams=1, n_trials=1, steps=40)
    code, output = sweep(*ray_command(cluster, tmp_path, *grid), "--run_timeout", "20")
    assert code == 1, output
    assert output.splitlines()[-1] == "3 runs failed: `plench sweep retry` runs them again"
    found = read_run_json(tmp_path)
    reasons = {name: (found[name]["error"] or {}).get("type") for name in names}
    assert reasons == {
        "Raising": "ZeroDivisionError",
        "Dying": "WorkerDied",
        "Endless": "Timeout",
        "Plain": None,
    }
    assert (next(tmp_path.glob("*Plain*")) / "algorithm.py").exists()


def test_a_ray_of_its_own_has_as_many_slots_as_asked(calm: dict[str, Any], tmp_path: Path) -> None:
    room = ["--workers", "2", "--cpus_per_run", "0.5"]  # one CPU has room for two halves
    command = ["launch", *GRID, "--output_dir", str(tmp_path), "--skip_model_save"]
    code, output = sweep(*command, "--command_launcher", "ray", *room)
    assert code == 0, output
    assert f"{N_RUNS} runs to do, 2 at a time" in output
    assert read_outcomes(tmp_path) == calm


def test_methods_fitted_in_rounds_survive_the_death_of_a_node(cluster: Any, tmp_path: Path) -> None:
    calm, folder = tmp_path / "calm", tmp_path / "ray"
    grid = fitted_arguments()
    assert sweep("launch", *grid, "--output_dir", str(calm), "--workers", "2")[0] == 0
    second = cluster.add_node(**NODE)
    driver = start(*ray_command(cluster, folder, *grid), "--save_steps", "1")
    wait_for(lambda: list(folder.glob("*/checkpoint.pt")) or driver.poll() is not None, timeout=180)
    cluster.remove_node(second, allow_graceful=False)
    code, output = finish(driver)
    assert code == 0, output
    assert count_done(folder) == 6
    assert read_outcomes(folder) == read_outcomes(calm)


def test_fleets_survive_the_death_of_a_node(cluster: Any, tmp_path: Path) -> None:
    grid, folder = stack_arguments(2000), tmp_path / "ray"
    calm = launch_calmly(grid, tmp_path / "calm")
    alone = launch_calmly(grid, tmp_path / "alone", "--stack", "off")
    second = cluster.add_node(**NODE)
    driver = start(*ray_command(cluster, folder, *grid), "--save_steps", "100")
    wait_for(
        lambda: len(list(folder.glob("*/checkpoint.pt"))) == len(calm) or driver.poll() is not None,
        timeout=180,
    )
    assert count_done(folder) == 0  # both fleets are on their way, each on a node of its own
    cluster.remove_node(second, allow_graceful=False)
    code, output = finish(driver)
    assert code == 0, output
    assert "started again" in output
    compare_stacks(folder, calm, alone)


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("127.0.0.1:9", "cannot connect to Ray at 127.0.0.1:9"),
        ("ray://here", "expected auto or HOST:PORT"),
    ],
)
def test_no_cluster_at_the_address_is_a_clear_error(tmp_path: Path, address: str, reason: str) -> None:
    code, output = sweep(
        *("launch", *GRID, "--output_dir", str(tmp_path)),
        *("--command_launcher", "ray", "--ray_address", address),
        timeout=60,
    )
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
