"""The scheduler on a back end without processes: what is run again, how, and what fails."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from plench.errors import StorageError
from plench.runs.folder import RunStore
from plench.sweeps.engines.local import LocalEngine
from plench.sweeps.executor import RunAttempt, RunEnded
from plench.sweeps.plan import PlannedRun, Task
from plench.sweeps.progress import RunProgress, SweepCallback
from plench.sweeps.scheduler import Assignment, Crash, Job, Limits, Message, Scheduler
from plench.sweeps.status import read_states
from plench.training.loop import StopRequest
from tests.sweep.driving import DATASETS, plan_one, plan_runs

Script = Callable[[Job], Sequence[Message]]


class Recorder(SweepCallback):
    def __init__(self) -> None:
        self.ends: list[tuple[PlannedRun, RunAttempt]] = []

    def ended(self, run: PlannedRun, attempt: RunAttempt) -> None:
        self.ends.append((run, attempt))


class FakeBackend:
    """One slot; what a job does after its start is up to a function."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.started: list[Task] = []
        self.killed: list[Task] = []
        self.stopped = False
        self.job: Job | None = None
        self.messages: list[tuple[Job, Message]] = []

    def has_room(self) -> bool:
        return self.job is None

    def start(self, job: Job) -> None:
        self.job = job
        self.started.append(job.task)
        job.started_at = 0.0
        self.messages = [(job, message) for message in self.script(job)]

    def poll(self, timeout: float) -> list[tuple[Job, Message]]:
        messages, self.messages = self.messages, []
        return messages

    def finish(self, job: Job) -> None:
        self.job = None

    def kill(self, job: Job) -> None:
        self.killed.append(job.task)
        self.job = None

    def ask_to_stop(self) -> None:
        self.stopped = True
        if self.job is not None:
            self.messages += [(self.job, RunEnded(name, RunAttempt("interrupted"))) for name in self.job.left]


def all_end(job: Job, status: str = "done") -> list[Message]:
    return [RunEnded(run.folder, RunAttempt(status)) for run in job.task]  # type: ignore[arg-type]


def schedule(
    folder: Path, runs: Task, script: Script, timeout: float = math.inf, stop: StopRequest | None = None
) -> tuple[FakeBackend, Recorder]:
    backend, recorder = FakeBackend(script), Recorder()
    assignment = Assignment([*runs], 0, folder, DATASETS, Limits(run_timeout=timeout), recorder, [runs])
    Scheduler(assignment, backend, stop or StopRequest()).run()
    return backend, recorder


@pytest.fixture(scope="module")
def runs() -> Task:
    return tuple(plan_runs("CC", n_hparams=3, n_trials=1))


@pytest.mark.parametrize("end", ["crash", "timeout"])
def test_interrupted_members_of_a_job_that_ends_are_run_again(end: str, runs: Task, tmp_path: Path) -> None:
    def script(job: Job) -> Sequence[Message]:
        if job.task != runs:
            return all_end(job)
        first = [
            RunEnded(runs[0].folder, RunAttempt("interrupted")),
            RunEnded(runs[1].folder, RunAttempt("done")),
        ]
        return [*first, Crash("gone")] if end == "crash" else first

    backend, _ = schedule(tmp_path, runs, script, timeout=math.inf if end == "crash" else 0.001)
    again = (runs[0], runs[2])
    assert backend.started == [runs, *([again] if end == "crash" else [(run,) for run in again])]
    assert backend.killed == [runs]


@pytest.mark.parametrize("end", ["interrupted", "crash"])
def test_a_stack_that_starts_again_keeps_the_order_of_its_runs(end: str, runs: Task, tmp_path: Path) -> None:
    def script(job: Job) -> Sequence[Message]:
        if len(backends) > 0 or job.task != runs:
            return all_end(job)
        backends.append(job)
        ends = [RunEnded(run.folder, RunAttempt("interrupted")) for run in reversed(runs)]
        return ends if end == "interrupted" else [ends[0], Crash("gone")]

    backends: list[Job] = []
    backend, _ = schedule(tmp_path, runs, script)
    assert backend.started == [runs, runs]


def test_crashes_of_a_stack_do_not_count_for_its_first_run(runs: Task, tmp_path: Path) -> None:
    backend, recorder = schedule(
        tmp_path, runs, lambda job: [Crash("signal 9")] if runs[0] in job.task else all_end(job)
    )
    assert backend.started == [runs, runs, *[runs[:1]] * 3, *[(run,) for run in runs[1:]]]
    ((failed, attempt),) = [(run, attempt) for run, attempt in recorder.ends if attempt.status != "done"]
    assert (failed, attempt.message) == (runs[0], "WorkerDied: signal 9; 3 times without progress")
    assert [entry.state for entry in read_states(runs[:1], tmp_path)] == ["failed"]


def test_crashes_count_only_without_progress(runs: Task, tmp_path: Path) -> None:
    updates = iter([0, 0, 50, 50, 80, 80])

    def script(job: Job) -> Sequence[Message]:
        resumed = next(updates, None)
        if resumed is None:
            return all_end(job)
        return [RunProgress(runs[0].folder, resumed, started=True), Crash("signal 9")]

    backend, recorder = schedule(tmp_path, runs[:1], script)
    assert len(backend.started) == 7
    assert [attempt.status for _, attempt in recorder.ends] == ["done"]
    updates = iter([0, 50, 50, 50, 80])
    assert len(schedule(tmp_path, runs[:1], script)[0].started) == 4
    assert next(updates) == 80


def test_a_timeout_is_recorded(runs: Task, tmp_path: Path) -> None:
    _, recorder = schedule(tmp_path, runs[:1], lambda job: [], timeout=0.001)
    (state,) = read_states(runs[:1], tmp_path)
    assert (state.state, state.message) == ("failed", "Timeout: did not end within 0.001 s (--run-timeout)")
    assert recorder.ends[0][1].status == "failed"


def test_a_stop_is_passed_on_and_starts_nothing(runs: Task, tmp_path: Path) -> None:
    stop = StopRequest()

    def script(job: Job) -> Sequence[Message]:
        stop.asked = True
        return []

    backend, recorder = schedule(tmp_path, runs, script, stop=stop)
    assert backend.stopped
    assert backend.started == [runs]
    assert [attempt.status for _, attempt in recorder.ends] == ["interrupted"] * 3


def test_a_folder_that_cannot_be_written_ends_the_sweep(runs: Task, tmp_path: Path) -> None:
    with pytest.raises(StorageError):
        schedule(tmp_path, runs, lambda job: all_end(job, "unwritable"))


def test_a_run_that_cannot_be_recorded_as_failed_does_not_end_the_sweep(tmp_path: Path) -> None:
    run, recorder = plan_one(), Recorder()
    assignment = Assignment([run], 0, tmp_path, DATASETS, Limits(), recorder)
    with RunStore(tmp_path / run.folder).locked():  # a child of the run, say, that was not killed with it
        assignment.fail_run(run, "Timeout", "did not end")
    assignment.fail_run(run, "Timeout", "did not end")
    assert [attempt.status for _, attempt in recorder.ends] == ["busy", "failed"]
    assert run.folder in assignment.busy


def test_a_sweep_stops_between_rounds_if_too_little_time_is_left(tmp_path: Path) -> None:
    runs, recorder = [plan_one("PL_KNN"), plan_one("LR_EM"), plan_one("CC")], Recorder()
    stop = StopRequest(ends_at=0.0)
    LocalEngine(workers=1, stop=stop).run(Assignment(runs, 0, tmp_path, DATASETS, Limits(), recorder))
    assert stop.asked
    ends = [(run.algorithm, attempt.status, attempt.updates_made) for run, attempt in recorder.ends]
    assert ends == [("PL_KNN", "done", 2), ("LR_EM", "interrupted", 2)]
    assert [entry.state for entry in read_states(runs, tmp_path)] == ["done", "interrupted", "missing"]
