"""Failures of machines that a training on two of them survives, each with the bits of one undisturbed worker."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from edt_sdk import EdtError, Job
from edt_sdk.schemas.hosts import HostState
from edt_sdk.schemas.wire.agent import AgentOrders
from tests.e2e.fleet import (
    ARGUMENTS,
    EPOCHS,
    Machines,
    committed,
    is_as_alone,
    more_updates,
    offered,
    on,
    on_two_machines,
)
from tests.e2e.gates import Gates
from tests.e2e.harness import Jobs
from tests.e2e.hosts import hosts_of
from tests.e2e.test_clock_leaps import HOUR, FakeTime
from tests.network import Network
from tests.server.store.trouble import fill, small_disk
from tests.waiting import until

ROOM = 160 << 20
# Looks in a row in which a training commits nothing.
STILL = 30
# Seconds of silence after which a host alone is lost for sure.
LONGER = 17
LOST = ("worker_lost", "supervisor_lost")


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    with Network("one", "two", "copy", "head") as network:
        yield network


@pytest.fixture(scope="module")
def machines(network: Network, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    """Machines with small disks."""
    machines = Machines(network, tmp_path_factory.mktemp("machines"))
    with contextlib.ExitStack() as disks:
        for folder in (machines.folder / "one", machines.folder / "two", machines.server.data_dir):
            folder.mkdir(parents=True, mode=0o700)
            if not disks.enter_context(small_disk(folder, ROOM)):
                pytest.skip("a small disk of its own can only be mounted as root, with the right to (CAP_SYS_ADMIN)")
        yield machines


@pytest.fixture(scope="module")
def jobs(machines: Machines) -> Iterator[Jobs]:
    with machines.serving() as jobs:
        yield jobs


@pytest.fixture(scope="module")
def alone(machines: Machines, jobs: Jobs) -> Job:
    machines.join(jobs, "one")
    return jobs.submit("cnn.py", *ARGUMENTS, max_workers=1).wait(300)


@pytest.fixture
def gates(machines: Machines, jobs: Jobs, tmp_path: Path) -> Iterator[Gates]:
    yield Gates(tmp_path / "gates", EPOCHS)
    # What a test that has failed leaves.
    for ballast in (*machines.folder.glob("*/ballast"), machines.server.data_dir / "ballast"):
        ballast.unlink(missing_ok=True)
    jobs.client.stop_all()
    until(lambda: all(job.view.state.final for job in jobs.client.jobs()), "the end of the job")


def lost(job: Job) -> list[str]:
    return [event.kind for event in job.story() if event.kind in LOST]


def written(machines: Machines, host: str, job: Job) -> int:
    """How many updates are in the commit log on the host of the job's supervisor."""
    log = machines.folder / host / "jobs" / job.id / "training-0.commits.jsonl"
    return len(log.read_text().splitlines())


def more_written(machines: Machines, host: str, job: Job, gates: Gates, more: int = 20) -> int:
    """Let the job through until so many more updates are in the log on that host. Return how many there are then."""
    goal = written(machines, host, job) + more
    gates.open_until(lambda: written(machines, host, job) >= goal, f"{more} more updates", ready=0)
    return goal


def is_outpost(pid: int) -> bool:
    return b"outpost" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")


@pytest.mark.parametrize("what", ["worker", pytest.param("outpost", marks=pytest.mark.long)])
def test_a_process_of_one_machine_is_killed(
    machines: Machines, network: Network, jobs: Jobs, alone: Job, gates: Gates, what: str
) -> None:
    job, near, far = on_two_machines(machines, jobs, gates)
    (survivor,) = (each["pid"] for each in job.workers() if each["host"] == near)
    since = jobs.client.host(far).since
    (worker,) = (each["pid"] for each in job.workers() if each["host"] == far)
    if what == "worker":
        killed = network.pid(far, worker)
    else:
        (killed,) = filter(is_outpost, network.pids(far))
    os.kill(killed, signal.SIGKILL)  # as the kernel does when there is no memory
    on(jobs, job, gates, {near, far}, workers=3)
    more_updates(jobs, job, gates)
    assert survivor in [each["pid"] for each in job.workers()], "nothing was lost but what ran below it"
    gates.open_all()
    is_as_alone(jobs, job, alone)
    assert jobs.client.host(far).since == since, "its agent was there all the time"


@pytest.mark.parametrize("in_time", [True, pytest.param(False, marks=pytest.mark.long)])
def test_a_machine_will_be_taken_away(
    machines: Machines, network: Network, jobs: Jobs, alone: Job, gates: Gates, in_time: bool
) -> None:
    job, near, far = on_two_machines(machines, jobs, gates)
    gates.reached()
    os.kill(network.pid(far, 1), signal.SIGTERM)
    until(lambda: jobs.client.host(far).state is HostState.DRAINING, "the notice")
    if not in_time:
        # The job is held at the begin of an epoch, and cannot leave before that.
        machines.crash(far)
        until(lambda: jobs.client.host(far).state is HostState.LOST, "the loss of the machine")
    gates.open_until(lambda: hosts_of(job) == {near}, "the job on the other machine", ready=0)
    more_updates(jobs, job, gates)
    # One that knows already that it has to leave is no loss.
    assert set(lost(job)) <= (set() if in_time else {"worker_lost"})
    gates.open_all()
    is_as_alone(jobs, job, alone)
    machines.agents[far].wait()


@pytest.mark.parametrize("where", ["near", pytest.param("far", marks=pytest.mark.long)])
def test_a_disk_of_a_machine_is_full(machines: Machines, jobs: Jobs, alone: Job, gates: Gates, where: str) -> None:
    job, near, far = on_two_machines(machines, jobs, gates)
    ballast = machines.folder / (near if where == "near" else far) / "ballast"
    fill(ballast)
    if where == "near":
        # Its commit log is there: the training waits for room.
        gates.open_all()
        looks = [0]

        def still() -> bool:
            fill(ballast)  # what was freed meanwhile
            now = len(committed(jobs, job))
            looks[:] = [*looks, now] if looks[-1] == now else [now]
            return len(looks) >= STILL

        until(still, "a training that stands still")
        assert not jobs.client.job(job.id).view.state.final
    else:
        more_updates(jobs, job, gates, 20)
    ballast.unlink()
    gates.open_all()
    is_as_alone(jobs, job, alone)
    assert not lost(job)


def test_the_servers_disk_is_full(machines: Machines, jobs: Jobs, alone: Job, gates: Gates) -> None:
    job, near, _ = on_two_machines(machines, jobs, gates)
    ballast = machines.server.data_dir / "ballast"
    fill(ballast)
    goal = more_written(machines, near, job, gates)
    with pytest.raises(EdtError, match="no room left"):
        jobs.submit("cnn.py", *ARGUMENTS)
    assert len(committed(jobs, job)) < goal
    ballast.unlink()
    until(lambda: len(committed(jobs, job)) >= goal, "what was trained without room on the server")
    gates.open_all()
    is_as_alone(jobs, job, alone)
    assert not lost(job)


def test_a_job_ends_while_the_server_is_away(machines: Machines, jobs: Jobs, alone: Job, gates: Gates) -> None:
    job, near, _ = on_two_machines(machines, jobs, gates)
    machines.server.kill()
    gates.open_all()
    updates = len(jobs.commits(alone))
    until(lambda: written(machines, near, job) == updates, "the last update")
    result = machines.folder / near / Path(job.view.result_dir).relative_to(machines.server.data_dir)
    until(lambda: (result / "model" / "train" / "model_epoch_final.pth").exists(), "the trained model there")
    machines.server.start()
    jobs.client = machines.server.client()
    job = jobs.client.job(job.id)
    is_as_alone(jobs, job, alone)
    assert not lost(job)


def silence(jobs: Jobs, host: str) -> int:
    """For how many seconds the server has not heard a host, 0 where it does not say so."""
    found = re.match(r"No word for (\d+) s", jobs.client.host(host).why)
    return int(found[1]) if found else 0


def test_the_server_is_cut_off_from_all_machines(
    machines: Machines, network: Network, jobs: Jobs, alone: Job, gates: Gates
) -> None:
    job, near, far = on_two_machines(machines, jobs, gates)
    pids = {each["pid"] for each in job.workers()}
    network.cut("head")
    until(lambda: all(silence(jobs, each) > LONGER for each in (near, far)), "a silence that takes a single host away")
    goal = more_written(machines, near, job, gates)
    network.heal("head")
    until(lambda: len(committed(jobs, job)) >= goal, "what was trained without the server")
    on(jobs, job, gates, {near, far}, workers=2)
    assert pids == {each["pid"] for each in job.workers()}
    gates.open_all()
    is_as_alone(jobs, job, alone)
    assert not lost(job)


def test_a_copy_of_a_machine_is_refused(machines: Machines, jobs: Jobs, alone: Job) -> None:
    """It has the key of the first, which is a host all the time."""
    since = jobs.client.host("one").since
    copied(machines, "one")
    machines.start(jobs, "copy")
    until(lambda: "Another machine is the host one already" in machines.log("copy"), "the refusal")
    machines.leave("copy")
    host = jobs.client.host("one")
    assert (host.state, host.since) == (HostState.UP, since)


def copied(machines: Machines, name: str) -> None:
    """Give the machine `copy` the key of another one."""
    folder = machines.folder / "copy"
    folder.mkdir(mode=0o700, exist_ok=True)
    orders = msgspec.json.decode((machines.folder / name / "agent.json").read_bytes(), type=AgentOrders)
    place = str(folder / "r")
    changed = msgspec.structs.replace(orders, data_dir=str(folder), runtime_dir=place)
    (folder / "agent.json").write_bytes(msgspec.json.encode(changed))


def test_a_machine_is_removed_and_its_key_opens_nothing_any_more(
    machines: Machines, jobs: Jobs, alone: Job, gates: Gates
) -> None:
    job, near, far = on_two_machines(machines, jobs, gates)
    copied(machines, far)
    jobs.client.remove_host(far, force=True)
    until(lambda: machines.agents[far].poll() is not None, "the end of its agent")
    more_updates(jobs, job, gates)
    refused = machines.server.log.read_text().count("unknown key refused")
    machines.start(jobs, "copy")
    until(lambda: machines.server.log.read_text().count("unknown key refused") > refused, "the refusal of the key")
    assert [host.name for host in jobs.client.hosts()] == [near]
    machines.leave("copy")
    gates.open_all()
    is_as_alone(jobs, job, alone)
    (machines.folder / far / "agent.json").unlink()
    machines.join(jobs, far)


@pytest.mark.long  # as test_clock_leaps.py; the steady clock of the server has tests of its own
def test_the_clock_of_a_machine_is_wrong_and_runs_backwards(
    machines: Machines, network: Network, jobs: Jobs, alone: Job, gates: Gates, tmp_path: Path
) -> None:
    clock = FakeTime(tmp_path)
    clock.set(int(HOUR))
    if "two" in machines.agents:
        machines.leave("two")
    else:
        machines.join(jobs, "two")
        machines.leave("two")
    until(lambda: not offered(jobs, "two"), "the end of the host")
    folder = machines.folder / "two"
    orders = msgspec.json.decode((folder / "agent.json").read_bytes(), type=AgentOrders)
    # Not by `join`, which passes no such variables on. Without a sandbox: whoever waits for its end sleeps, and the
    # library takes Python's sleep for an error.
    command = ["env", "PATH=", sys.executable, "-P", "-m", "edt_server.agent", str(folder / "agent.json")]
    machines.agents["two"] = network.start(
        "two",
        [*command, str(Path(orders.runtime_dir) / "host.lock")],
        log=machines.folder / "two.log",
        environ={**os.environ, **clock.environ},
        hidden=[machines.server.data_dir],
    )
    until(lambda: offered(jobs, "two"), "the host with the other clock")
    jobs.client.drain_host("one")
    # With such a variable its supervisor is not forked from a template, whose clock stays as it was. Its workers sleep.
    job = jobs.submit("cnn.py", *ARGUMENTS, "--gates", str(gates.folder), env={"LD_PRELOAD": ""})
    on(jobs, job, gates, {"two"}, workers=1)
    (journal,) = machines.folder.glob(f"two/jobs/{job.id}/journal.jsonl")
    assert time.time() + HOUR / 2 < json.loads(journal.read_text().splitlines()[0])["time"], "its clock is wrong"
    assert max(event.time for event in job.story()) <= time.time(), "and what people read is right"
    jobs.client.drain_host("one", undo=True)
    on(jobs, job, gates, {"one", "two"}, workers=2)
    more_updates(jobs, job, gates)
    clock.set(-int(HOUR))
    more_updates(jobs, job, gates, 20)
    gates.open_all()
    is_as_alone(jobs, job, alone)
    assert not lost(job)
