"""A PyTorch Elastic script that knows nothing of jupyter-edt (`jobs/elastic_script.py`), scaled by the scheduler."""

from __future__ import annotations

import itertools
import json
import os
import signal
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from edt_sdk import Job
from edt_sdk.schemas.errors import JobFailed
from edt_sdk.schemas.job import JobState
from edt_sdk.testing import LocalServer
from tests.e2e.harness import Jobs
from tests.e2e.hosts import hosts_of
from tests.waiting import until

ENDLESS = 1_000_000


class Script:
    """One job of the script, and what its processes have written."""

    def __init__(self, jobs: Jobs, folder: Path, options: str, *args: str, steps: int = ENDLESS, **given: Any) -> None:
        folder.mkdir(exist_ok=True)
        self.jobs = jobs
        self.folder = folder
        self.job: Job = jobs.submit(
            "elastic_script.py", str(folder), str(steps), *args, framework="torchrun", torchrun=options, **given
        )

    def lines(self, kind: str) -> list[dict[str, Any]]:
        """In the order in which they were written; a last one may be half there."""
        path = self.folder / "log.jsonl"
        text = path.read_text() if path.exists() else ""
        lines = [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]
        return [line for line in lines if line["kind"] == kind]

    def trains_on(self, world: int, after: float = 0.0) -> dict[str, Any]:
        """The first step by that many since then."""

        def found() -> dict[str, Any] | None:
            assert not self.job.refresh().state.final, f"{self.job.view.message}\n{self.job.logs()}"
            steps = self.lines("step")
            return next((step for step in steps if step["world"] == world and step["time"] > after), None)

        step: dict[str, Any] = until(found, f"a step on {world} workers")
        return step

    def now(self) -> float:
        """When the newest step was made."""
        return float(self.lines("step")[-1]["time"])

    def finish(self) -> None:
        """Let the script come to its end, and wait for that."""
        (self.folder / "finish").touch()
        self.job.wait(300)

    def restart_counts(self) -> set[str]:
        """TORCHELASTIC_RESTART_COUNT of every process there ever was."""
        return {line["env"]["TORCHELASTIC_RESTART_COUNT"] for line in self.lines("start")}

    def pids(self) -> list[int]:
        """Of its processes that run, in the order of their start."""
        return [line["pid"] for line in self.lines("start") if psutil.pid_exists(line["pid"])]

    def told_to_end(self) -> set[int]:
        """Processes that had SIGTERM and wrote so."""
        return {line["pid"] for line in self.lines("sigterm")}

    def all_were_told_or_torn(self, pids: list[int]) -> None:
        """All of these heard SIGTERM, but for those whose collective broke before because a peer had heard it first."""
        told = self.told_to_end() & set(pids)
        assert told
        torn = len(set(pids) - told)
        assert self.job.logs().count("by peer") >= torn, self.job.logs()


@pytest.fixture
def ends(four_slots: Jobs) -> Iterator[list[Script]]:
    """Jobs that are stopped when the test is over, whatever came of it."""
    scripts: list[Script] = []
    yield scripts
    for script in scripts:
        if not script.job.refresh().state.final:
            script.job.stop()
            until(lambda script=script: script.job.refresh().state.final, "its end")


def test_one_three_two_workers_without_a_restart(four_slots: Jobs, tmp_path: Path, ends: list[Script]):
    script = Script(four_slots, tmp_path / "out", "--rdzv-backend=c10d --rdzv-id=7", max_workers=1)
    ends.append(script)
    script.trains_on(1)
    for world in (3, 2):
        script.job.update(max_workers=world)
        script.trains_on(world, after=script.now())
        until(lambda world=world: len(script.job.workers()) == world, f"{world} workers")
    script.finish()
    assert script.job.status is JobState.FINISHED
    assert script.restart_counts() == {"0"}
    # It went on from its own checkpoint each time: no step was skipped, and the last round began where one had ended.
    steps = [line["step"] for line in script.lines("step") if line["rank"] == 0]
    assert all(after - before <= 1 for before, after in itertools.pairwise(steps))
    assert steps[-1] == max(steps)
    # Its processes knew when they were to end, and had the time for it.
    pids = [line["pid"] for line in script.lines("start")]
    assert pids[0] in script.told_to_end()
    script.all_were_told_or_torn(pids[1:4])
    told = [event.text for event in script.job.story()]
    assert any("--rdzv-backend=c10d and --rdzv-id=7" in text for text in told)


@pytest.mark.long  # test_elastic_agents.py has who trains; this is that the Trainer follows
def test_a_trainer_keeps_batch_and_length_on_one_three_and_two_workers(four_slots: Jobs, tmp_path: Path):
    def trained(name: str) -> tuple[Path, Job]:
        folder = tmp_path / name
        folder.mkdir()
        given = {"framework": "torchrun", "torchrun": "--units=6", "max_workers": 1}
        return folder, four_slots.submit("trainer_script.py", str(folder), **given)

    def losses(folder: Path) -> dict[int, dict[str, Any]]:
        path = folder / "log.jsonl"
        return {(line := json.loads(text))["step"]: line for text in path.read_text().splitlines()}

    def open_epochs(folder: Path, *epochs: int) -> None:
        for epoch in epochs:
            (folder / f"open-{epoch}").touch()

    def size(folder: Path) -> int:
        return int(losses(folder)[max(losses(folder))]["world"]) if (folder / "log.jsonl").exists() else 0

    fixed, job = trained("fixed")
    open_epochs(fixed, 0, 1, 2, 3)
    job.wait(300)
    moving, job = trained("moving")
    for epoch, workers in ((0, 1), (1, 3), (2, 2), (3, 2)):
        job.update(max_workers=workers)
        until(lambda workers=workers: len(job.workers()) == workers, f"{workers} workers")
        open_epochs(moving, epoch)
        until(lambda workers=workers: size(moving) == workers, f"updates of {workers} workers")
        until(lambda epoch=epoch: max(losses(moving)) >= 20 * (epoch + 1), f"the end of epoch {epoch}")
    job.wait(300)
    expected, found = losses(fixed), losses(moving)
    assert sorted(found) == sorted(expected) == list(range(1, 81)), "all epochs"
    assert "EDT_UNITS_HERE" not in str(job.story()), "its size is not held for its steps"
    for epoch in range(4):
        steps = range(20 * epoch + 1, 20 * epoch + 21)
        mean, moved = (sum(of[step]["loss"] for step in steps) / 20 for of in (expected, found))
        assert abs(moved - mean) < 0.01 * mean


def test_what_a_process_is_given(four_slots: Jobs, tmp_path: Path, ends: list[Script]):
    script = Script(four_slots, tmp_path / "out", "--nnodes=2 --nproc_per_node=2 --max-restarts=3 --role=trainer")
    ends.append(script)
    script.trains_on(4)
    assert script.job.view.slots_per_unit == 2
    script.finish()
    starts = {line["env"]["RANK"]: line for line in script.lines("start")}
    assert sorted(starts) == ["0", "1", "2", "3"]
    last = starts["3"]
    expected = {
        "LOCAL_RANK": "1",
        "WORLD_SIZE": "4",
        "LOCAL_WORLD_SIZE": "2",
        "GROUP_RANK": "1",
        "GROUP_WORLD_SIZE": "2",
        "ROLE_RANK": "3",
        "ROLE_WORLD_SIZE": "4",
        "ROLE_NAME": "trainer",
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": "3",
        "TORCHELASTIC_RUN_ID": script.job.id,
        "WMLA_NWORKER": "2",
        "WMLA_WORKER_NDEVICE": "2",
        "NODE_RANK": "1",
        "FRAME_WORK": "torchrun",
    }
    assert {name: last["env"].get(name) for name in expected} == expected
    assert last["env"]["MASTER_ADDR"] == "127.0.0.1"
    assert last["env"]["RESULT_DIR"] == script.job.view.result_dir
    assert not [name for name in last["env"] if name.startswith("EDT_")]
    assert last["argv"][1:] == [str(script.folder), str(ENDLESS)]
    assert Path(last["argv"][0]).name == "elastic_script.py"
    # What each process prints is in a stream of its own.
    for number in range(4):
        assert f"script started, rank {number}" in script.job.logs(worker=number)


@pytest.mark.long  # units of two in the test before, other sizes in the one before that
def test_units_of_two(four_slots: Jobs, tmp_path: Path, ends: list[Script]):
    script = Script(four_slots, tmp_path / "out", "--nnodes=1:2 --nproc-per-node=2")
    ends.append(script)
    script.trains_on(4)
    script.job.update(max_workers=2)
    script.trains_on(2, after=script.now())
    until(lambda: len(script.job.workers()) == 2, "two processes")
    assert {worker["slot"] for worker in script.job.workers()} == {0, 1}
    script.finish()
    assert script.restart_counts() == {"0"}


def test_an_agent_that_is_killed_leaves_nobody_and_is_replaced(four_slots: Jobs, tmp_path: Path, ends: list[Script]):
    script = Script(four_slots, tmp_path / "out", "--nnodes=1:3")
    ends.append(script)
    script.trains_on(3)
    before = set(script.pids())
    victim = max(script.job.workers(), key=lambda worker: worker["rank"])
    agent = psutil.Process(victim["pid"])
    its = {child.pid for child in agent.children(recursive=True)}
    assert its & before
    os.kill(agent.pid, signal.SIGKILL)
    script.trains_on(3, after=script.now())
    until(lambda: not any(psutil.pid_exists(pid) for pid in its), "the end of its processes")
    script.finish()
    # Nobody asked for a restart, and --max-restarts is 0.
    assert script.restart_counts() == {"0"}
    assert any("killed by SIGKILL" in event.text for event in script.job.story())


def test_a_crash_costs_one_of_the_restarts(four_slots: Jobs, tmp_path: Path, ends: list[Script]):
    script = Script(four_slots, tmp_path / "out", "--nnodes=1:2 --max-restarts=1", "--crash-at", "5", steps=20)
    ends.append(script)
    script.job.wait(300)
    assert script.restart_counts() == {"0", "1"}
    assert {line["step"] for line in script.lines("end")} == {20}
    (lost,) = [event for event in script.job.story() if event.kind == "worker_lost"]
    assert "ended with exit code 1. Restart 1 of 1" in lost.text


def test_a_crash_too_many_fails_the_job_with_its_last_lines(four_slots: Jobs, tmp_path: Path, ends: list[Script]):
    script = Script(four_slots, tmp_path / "out", "--nnodes=1:2", "--crash-at", "5", steps=20)
    ends.append(script)
    with pytest.raises(JobFailed):
        script.job.wait(300)
    message = script.job.view.message
    assert message.startswith("Worker 1 (rank 1, slot 1) ended with exit code 1.")
    assert message.endswith("RuntimeError: crashed at step 5, as asked")
    assert "edt_sdk" not in message, "the traceback is the script's"


@pytest.mark.long
def test_stop_leaves_nobody_and_may_be_taken_back(four_slots: Jobs, tmp_path: Path, ends: list[Script]):
    script = Script(four_slots, tmp_path / "out", "--nnodes=1:2")
    ends.append(script)
    script.trains_on(2)
    pids = script.pids()
    script.job.stop()
    until(lambda: script.job.refresh().state is JobState.KILLED, "its end")
    assert not any(psutil.pid_exists(pid) for pid in pids)
    assert len(script.lines("sigterm")) == 2
    # It may come back, and goes on from its own checkpoint.
    reached = max(line["step"] for line in script.lines("step"))
    script.job.resume()
    assert abs(script.trains_on(2, after=script.now())["step"] - reached) <= 2
    script.finish()


def test_suspend_and_resume(four_slots: Jobs, tmp_path: Path, ends: list[Script]):
    script = Script(four_slots, tmp_path / "out", "--nnodes=1:2")
    ends.append(script)
    script.trains_on(2)
    script.job.suspend()
    until(lambda: script.job.refresh().state is JobState.SUSPENDED, "its suspension")
    assert script.pids() == []
    reached = max(line["step"] for line in script.lines("step"))
    script.job.resume()
    first = script.trains_on(2, after=script.now())
    assert abs(first["step"] - reached) <= 2
    script.finish()
    assert script.restart_counts() == {"0"}


@pytest.mark.long
def test_a_module_and_a_program(four_slots: Jobs, tmp_path: Path):
    module = four_slots.client.submit(
        Path(__file__).parent / "jobs",
        framework="torchrun",
        torchrun="-m this",
        progress=False,
    )
    module.wait(300)
    assert "Beautiful is better than ugly." in module.logs()
    program = four_slots.client.submit(
        Path(__file__).parent / "jobs",
        framework="torchrun",
        torchrun=["--nnodes=2", "--no-python", "bash", "-c", "echo program $RANK of $WORLD_SIZE"],
        progress=False,
    )
    program.wait(300)
    assert "program 1 of 2" in program.logs(worker=1)


def test_a_torchrun_of_the_jobs_own(four_slots: Jobs, tmp_path: Path, ends: list[Script]):
    """`torchrun --rdzv-backend=edt`: found by the entry point, led by the supervisor."""
    declared = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]["entry-points"]
    # As an installation of this tree would have it; the one here may be older than the entry point.
    installed = tmp_path / "site" / "edt_handlers-0.dist-info"
    installed.mkdir(parents=True)
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: edt-handlers\nVersion: 0\n")
    (installed / "entry_points.txt").write_text(
        "[torchrun.handlers]\nedt = " + declared["torchrun.handlers"]["edt"] + "\n"
    )
    folder = tmp_path / "out"
    folder.mkdir()
    command = "torchrun --nnodes=1:2 --rdzv-backend=edt --monitor-interval=0.05 elastic_script.py"
    job = four_slots.client.submit(
        Path(__file__).parent / "jobs",
        framework="torchrun",
        command=[*command.split(), str(folder), str(ENDLESS)],
        max_workers=1,
        env={"PYTHONPATH": str(tmp_path / "site")},
        progress=False,
    )
    script = Script.__new__(Script)
    script.jobs, script.folder, script.job = four_slots, folder, job
    ends.append(script)
    script.trains_on(1)
    job.update(max_workers=2)
    script.trains_on(2, after=script.now())
    script.finish()
    assert job.status is JobState.FINISHED
    assert script.restart_counts() == {"0"}


@pytest.mark.long
def test_a_supervisor_that_is_killed_is_replaced(four_slots: Jobs, tmp_path: Path, ends: list[Script]):
    script = Script(four_slots, tmp_path / "out", "--nnodes=1:2")
    ends.append(script)
    script.trains_on(2)
    before = script.pids()
    os.kill(psutil.Process(script.job.workers()[0]["pid"]).ppid(), signal.SIGKILL)
    until(lambda: set(script.pids()) - set(before), "its next processes")
    script.trains_on(2, after=script.lines("start")[-1]["time"])
    assert not set(before) & set(script.pids())
    # They heard of it in time to write what they had, and two sets of them never ran at once.
    script.all_were_told_or_torn(before)
    ended = max(line["time"] for line in script.lines("step") if line["pid"] in before)
    began = min(line["time"] for line in script.lines("start") if line["pid"] not in before)
    assert began > ended
    script.finish()
    assert script.restart_counts() == {"0"}


@pytest.mark.long
def test_a_unit_is_on_one_host(tmp_path: Path):
    traits = {"EdtApp.threads_per_slot": 1, "EdtApp.local_hosts": {"a": 2, "b": 2}}
    with LocalServer(tmp_path / "server", traits=traits) as server:
        script = Script(Jobs(server), tmp_path / "out", "--nnodes=1:2 --nproc-per-node=2")
        script.trains_on(4)
        assert hosts_of(script.job) == {"a", "b"}
        by_agent: dict[int, set[str]] = {}
        for worker in script.job.workers():
            by_agent.setdefault(worker["worker"] // 2, set()).add(worker["host"])
        assert sorted(map(sorted, by_agent.values())) == [["a"], ["b"]]
        script.finish()
        assert script.restart_counts() == {"0"}


@pytest.mark.long
def test_the_server_may_be_restarted(tmp_path: Path):
    with LocalServer(tmp_path / "server", slots=2, traits={"EdtApp.threads_per_slot": 1}) as server:
        script = Script(Jobs(server), tmp_path / "out", "--nnodes=1:2")
        script.job.update(max_workers=1)
        script.trains_on(1)
        before = script.pids()
        server.kill()
        server.start()
        script.jobs = Jobs(server)
        script.job = script.jobs.client.job(script.job.id)
        assert script.pids() == before
        script.job.update(max_workers=2)
        script.trains_on(2, after=script.now())
        script.finish()
        assert script.restart_counts() == {"0"}
