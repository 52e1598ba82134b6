"""Two Jupyter Servers over one job store: either answers everything, and one takes over from the other."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
import requests

from edt_sdk import ChangedMeanwhile, Client, Job, Search, choice, log
from edt_sdk.schemas.hosts import HostState
from edt_sdk.schemas.job import JobState
from edt_sdk.testing import LocalServer, _free_port
from edt_server.leadership.leader import MANY_HOSTS, ONE_HOST
from tests.chaos import processes
from tests.e2e.harness import JOBS, Jobs
from tests.e2e.test_search import SCRIPT
from tests.server.store.conftest import cluster
from tests.waiting import until

__all__ = ["cluster"]  # a fixture

PROMISED = 2.0  # seconds until another server leads


class Pair:
    """A leader and a follower."""

    def __init__(self, root: Path, db_url: str = "", **more: object) -> None:
        data_dir = root / "edt"
        traits = {"EdtApp.threads_per_slot": 1, "EdtApp.data_dir": data_dir, "EdtApp.db_url": db_url}
        traits |= {f"EdtApp.{name}": value for name, value in more.items()}
        self.leader = LocalServer(root / "a", slots=2, traits=traits)
        self.follower = LocalServer(root / "b", slots=2, traits=traits)
        for server in (self.leader, self.follower):
            server.data_dir = data_dir
            server.start()

    def stop(self) -> None:
        for server in (self.leader, self.follower):
            if server.running:
                os.kill(server.pid, signal.SIGCONT)
        for server in (self.follower, self.leader):
            server.stop()


@pytest.fixture(scope="module")
def lasting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """A pair for tests that let both live."""
    pair = Pair(tmp_path_factory.mktemp("pair"))
    yield pair
    pair.stop()


@pytest.fixture
def either(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Pair]:
    """A pair over either kind of store."""
    url = request.getfixturevalue("cluster").new_database() if request.param == "postgresql" else ""
    pair = Pair(tmp_path, url)
    yield pair
    pair.stop()


def submit(client: Client, main: str = "forever.py", **options: object) -> Job:
    return client.submit(JOBS, main=main, progress=False, max_workers=1, **options)  # type: ignore[arg-type]


def leads(server: LocalServer) -> bool:
    """Whether it has said last that it leads."""
    return "/edt/api/ is ready" in server.log.read_text(errors="replace")


def stop_between_transactions(pair: Pair) -> None:
    """Stop the leader while it does not hold SQLite's lock, which a stopped process would keep from everybody."""

    def stopped() -> bool:
        os.kill(pair.leader.pid, signal.SIGSTOP)
        with closing(sqlite3.connect(pair.leader.data_dir / "edt.sqlite", timeout=1)) as store:
            try:
                store.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError:
                os.kill(pair.leader.pid, signal.SIGCONT)
                return False
        return True

    if (pair.leader.data_dir / "edt.sqlite").exists():
        until(stopped, "the leader stopped between two transactions")
    else:
        os.kill(pair.leader.pid, signal.SIGSTOP)


def test_every_verb_is_answered_by_the_follower(lasting: Pair, tmp_path: Path) -> None:
    client, direct = lasting.follower.client(), lasting.leader.client()
    assert leads(lasting.leader)
    assert not leads(lasting.follower)
    job = submit(client, name="passed on")
    assert direct.job(job.id).view.name == "passed on"
    assert [each.id for each in client.jobs()] == [job.id]
    jobs = Jobs(lasting.follower)
    until(lambda: len(jobs.commits(job)) > 3, "the first updates")
    assert job.update(priority=7000).view.priority == 7000
    assert [worker["pid"] for worker in job.workers()] == [worker["pid"] for worker in direct.job(job.id).workers()]
    assert job.metrics().train
    assert job.story()
    assert client.cluster()["slots"][0]["job"] == job.id
    assert job.timeline()
    assert client.timeline()
    job.suspend()
    until(lambda: job.refresh().state is JobState.SUSPENDED, "the suspension")
    job.resume()
    until(lambda: job.refresh().state is JobState.RUNNING, "the job back")
    job.stop()
    until(lambda: job.refresh().state is JobState.KILLED, "the end")
    assert job.checkpoints() is not None
    place = job.download(tmp_path / "download")
    assert place.exists()
    short = submit(client, "cnn.py", args=["--epochs", "1", "--samples", "20"]).wait(300)
    assert str(short.logs()) == str(direct.job(short.id).logs())
    short.delete()
    assert short.id not in {each.id for each in direct.jobs()}
    assert client.stop_all() == []


def test_the_version_of_the_plan_passes_through_the_follower(lasting: Pair) -> None:
    client, direct = lasting.follower.client(), lasting.leader.client()
    read = client.plan()
    assert read.version == direct.plan().version != ""
    direct.update_instance_group("default", own=1)
    with pytest.raises(ChangedMeanwhile):
        client.set_plan(read)
    now = client.plan()
    assert now.instance_groups[0].own == 1
    groups = (msgspec.structs.replace(now.instance_groups[0], own=2),)
    assert client.set_plan(msgspec.structs.replace(now, instance_groups=groups)).version == direct.plan().version


def test_what_the_follower_refuses_and_what_the_leader_refuses(lasting: Pair) -> None:
    for path in ("edt/api/jobs", "edt/api/cluster"):
        assert requests.get(lasting.follower.url + path, timeout=120).status_code == 403
    own = {"Authorization": f"token {lasting.follower.token}"}
    answer = requests.get(f"{lasting.follower.url}edt/api/jobs/none-such", headers=own, timeout=120)
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
    posted = requests.post(f"{lasting.follower.url}edt/api/jobs", headers=own, data=b"x", timeout=120)
    assert (posted.status_code, posted.json()["code"]) == (400, "invalid_request")
    # The leader does not know the follower's token, nor anybody who only claims to be a server of the same folder.
    assert requests.get(f"{lasting.leader.url}edt/api/jobs", headers=own, timeout=120).status_code == 403
    guess = {"X-Edt-Forwarded": "guess", "X-Edt-User": "root"}
    assert requests.get(f"{lasting.leader.url}edt/api/jobs", headers=guess, timeout=120).status_code == 403
    key = lasting.leader.data_dir / "control" / "forwarding.key"
    assert key.stat().st_mode & 0o777 == 0o600


# The leadership itself is tested with both stores always: tests/server/leadership.
_LONG = pytest.param("postgresql", marks=pytest.mark.long)
EITHER = pytest.mark.parametrize("either", ["sqlite", _LONG], indirect=True)


@EITHER
def test_the_leader_is_killed_in_the_middle_of_a_stream(either: Pair) -> None:
    client = either.follower.client()
    job = submit(client)
    lines = iter(job.logs(follow=True, stream="driver"))
    pids = {worker["pid"] for worker in until(job.workers, "a worker")}
    either.leader.kill()
    # Requests that come while nobody leads wait for the next leader.
    assert client.job(job.id).view.id == job.id
    assert submit(client).id in {each.id for each in client.jobs()}
    assert leads(either.follower)
    assert {worker["pid"] for worker in job.workers()} == pids
    job.stop()
    until(lambda: job.refresh().state is JobState.KILLED, "the end, under the next leader")
    assert list(lines) is not None  # the stream went on with the next leader, and ended with the job


def test_a_host_goes_on_under_the_next_leader(tmp_path: Path) -> None:
    pair = Pair(tmp_path, local_slots=-1, fleet_listen=f"127.0.0.1:{_free_port()}")
    token = tmp_path / "token"
    token.write_text(pair.leader.client().host_token().token)
    command = [sys.executable, "-P", "-m", "edt_server.agent", "join", "--name", "a", "--slots", "1"]
    agent = subprocess.Popen([*command, "--folder", str(tmp_path / "host"), "--token-file", str(token)])
    try:
        job = submit(pair.leader.client())
        jobs = Jobs(pair.follower)
        until(lambda: jobs.commits(job), "an update on the host")
        (pid,) = (each["pid"] for each in job.workers())
        pair.leader.kill()
        until(lambda: leads(pair.follower), "the next leader")
        job = jobs.client.job(job.id)
        goal = len(jobs.commits(job)) + 3
        until(lambda: len(jobs.commits(job)) >= goal, "updates under the next leader")
        assert jobs.client.host("a").state is HostState.UP
        assert [each["pid"] for each in job.workers()] == [pid]
        assert not any(event.kind in ("worker_lost", "supervisor_lost") for event in job.story())
    finally:
        pair.stop()
        agent.terminate()
        agent.wait()


@EITHER
def test_a_search_decides_the_same_under_the_next_leader(either: Pair, tmp_path: Path) -> None:
    folder = tmp_path / "net"
    folder.mkdir()
    (folder / "train.py").write_text(SCRIPT)
    search = either.follower.client().search(
        folder, args=["{lr}", "{width}"], space={"lr": log(1e-4, 1.0), "width": choice(4, 8)},
        metric="test_loss", trials=6, epochs=4, min_epochs=1, eta=2, max_workers=1, seed=5, progress=False,
    )  # fmt: skip
    until(search.reports, "the first report")
    either.leader.kill()
    # The others have not been compared yet: a comparison needs all six, and there are two slots.
    assert search.refresh().view.counts.get("FINISHED", 0) == 0
    assert leads(either.follower)
    outcomes = [outcome(search), outcome(search.again())]
    assert outcomes[0] == outcomes[1]


def outcome(search: Search) -> tuple[object, ...]:
    """Return what a search has decided and its trials came to, bit by bit."""
    search.wait(300)
    assert search.replay() == ""
    trials = [(each.number, each.params, each.state, repr(each.value)) for each in search.trials]
    reports = sorted((each.trial, each.budget, repr(each.metrics["test_loss"])) for each in search.reports())
    return trials, reports, [(each.kind, each.trial, each.rung, each.inputs) for each in search.decisions()]


def test_the_paces_leave_time_for_what_is_promised() -> None:
    """A death on one host is seen at the next look; elsewhere the lease has to end first."""
    assert ONE_HOST.look < PROMISED / 2
    assert MANY_HOSTS.valid + MANY_HOSTS.look < PROMISED


@EITHER
def test_a_leader_that_was_stopped_leads_no_more_when_it_goes_on(either: Pair) -> None:
    job = submit(either.leader.client())
    stop_between_transactions(either)
    until(lambda: leads(either.follower), "the take-over")
    assert f"the one at {either.leader.url} is stopped" in either.follower.log.read_text()
    taken = either.follower.client().job(job.id)
    taken.update(priority=123)
    os.kill(either.leader.pid, signal.SIGCONT)
    # Whatever it is asked now it passes on, or it would answer with what it remembers.
    assert either.leader.client().job(job.id).view.priority == 123
    assert either.leader.client().job(job.id).update(priority=321).view.priority == 321
    assert taken.refresh().view.priority == 321
    until(lambda: "another server leads now" in either.leader.log.read_text(), "its stepping down")
    jobs = Jobs(either.follower)
    before = len(jobs.commits(job))
    until(lambda: len(jobs.commits(job)) > before + 3, "more updates")
    assert [commit["update"] for commit in jobs.commits(job)] == list(range(len(jobs.commits(job))))
    # What the next leader decides reaches the job although the connection to the one before still stands.
    taken.suspend()
    until(lambda: taken.refresh().state is JobState.SUSPENDED, "the suspension, told by the next leader")
    reports = processes.journal(jobs.private(job))
    assert {report["type"] for report in reports}.isdisjoint({"WorkerLost", "DriverLost"})
