"""Two people on a server with hosts: what eve's driver and workers reach on a machine where bob's job runs."""

from __future__ import annotations

import json
import os
import shutil
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from edt_sdk import Client, Job
from edt_sdk.testing import LocalServer
from edt_server.supervisor.processes.memory import host_mark
from tests.e2e.fleet import Machines
from tests.e2e.harness import JOBS, Jobs, last_word
from tests.e2e.hosts import hosts_of
from tests.e2e.test_isolation import OWN, ROOT
from tests.network import Network
from tests.sandboxes import needs_bubblewrap
from tests.waiting import until

HERE = socket.gethostname()
TRAITS = {
    "ServerApp.identity_provider_class": "tests.jupyter.users.Tokens",
    "EdtApp.admins": "bob",
}


@pytest.fixture(scope="module", params=["sandbox", pytest.param("same", marks=pytest.mark.long)])
def machines(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    needs_bubblewrap()
    folder = tmp_path_factory.mktemp(request.param)
    (folder / "gates").mkdir()
    more = {**TRAITS, "EdtApp.isolation": request.param, "EdtApp.sandbox_paths": folder / "gates"}
    options = {"app": "edt serve", "token": "bob-secret", "environ": {"PYTHONPATH": str(ROOT)}}
    with Network("one", "head") as network:
        yield Machines(network, folder, slots=1, more=more, **options)


def on_the_host(machines: Machines, bob: Job) -> dict[str, object]:
    """What eve would like to have on the machine "one"."""
    folder = machines.folder / "one"
    runtime = Path(json.loads((folder / "agent.json").read_text())["runtime_dir"])
    orders = folder / "jobs" / bob.id / "launch.json"
    pids: dict[str, int] = {}
    commands = []
    for pid in machines.network.pids("one"):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
        for word, name in (("join", "the server"), (str(orders), "bob's supervisor")):
            if words[0] == sys.executable and word in words:
                # Its pid on that machine.
                status = Path(f"/proc/{pid}/status").read_text().partition("NSpid:")[2]
                pids[name] = int(status.splitlines()[0].split()[-1])
                commands.append(last_word(pid))
    assert len(pids) == 2
    result = folder / "results" / "bob" / "batchworkdir" / bob.id
    return {
        "files": {
            "bob's package": str(next(result.rglob("*.py"))),
            "bob's orders": str(orders),
            "bob's progress": str(folder / "jobs" / bob.id / "training-0.commits.jsonl"),
            "the key of the host": str(folder / "agent.json"),
            "the server's address": str(folder / "control" / "server.json"),
        },
        "folders": {
            "bob's results": str(result),
            "bob's memory": f"/dev/shm/edt-{os.getuid()}-{bob.id}{host_mark('one', runtime)}",
            "all jobs": str(folder / "jobs"),
            "the keys of the host": str(folder / "control"),
            "kept files": str(folder / "cache"),
        },
        "sockets": {"bob's supervisor": str(runtime / bob.id / "link.sock")},
        "pids": pids,
        "commands": commands,
        "secrets": [bob.id],
    }


def on_the_server(jobs: Jobs, *others: Job) -> dict[str, object]:
    """What she would like to have on the server's own machine, of the server and of other people's jobs."""
    control = jobs.server.data_dir / "control"
    folders = {f"the results of {job.id}": str(job.view.result_dir) for job in others}
    return {
        "files": {
            "the key of the control channel": str(control / "server.key"),
            **{f"the orders of {job.id}": str(jobs.private(job) / "launch.json") for job in others},
            **{f"the progress of {job.id}": str(jobs.private(job) / "training-0.commits.jsonl") for job in others},
        },
        "folders": {**folders, "the server's keys": str(control), "all hosts": str(control / "hosts")},
        "sockets": {},
        "pids": {"the server": jobs.server.pid},
        "commands": [last_word(jobs.server.pid)],
        "secrets": [job.id for job in others],
    }


def trains_on(job: Job, epoch: Path, hosts: set[str]) -> bool:
    """Let the job into one more epoch, and return whether it is on these hosts."""
    epoch.write_text(str(int(epoch.read_text()) + 1))
    return hosts_of(job) == hosts


def test_what_eve_gets_and_that_her_training_has_the_same_bits(machines: Machines, tmp_path: Path) -> None:
    gates = machines.folder / "gates"
    epoch = gates / "epoch"
    epoch.write_text("0")
    code = shutil.copytree(JOBS, tmp_path / "code")
    with machines.serving() as jobs:
        eve = Client(machines.server.url, "eve-secret")
        options = {"main": "eve_trains.py", "args": [str(gates)], "progress": False}
        spread = eve.submit(code, max_workers=2, **options)
        until((jobs.private(spread) / "streams" / "worker-0.stdout").exists, "her worker on the server's machine")
        machines.join(jobs, "one", slots=3)
        bob = jobs.submit("forever.py", max_workers=1, name="bob")
        until(lambda: len(jobs.commits(bob)) > 2, "bob's first updates")
        before = len(jobs.commits(bob))
        assert hosts_of(bob) == {"one"}
        alone = eve.submit(code, max_workers=1, **options)
        (gates / "one.json").write_text(json.dumps(on_the_host(machines, bob)))
        (gates / f"{HERE}.json").write_text(json.dumps(on_the_server(jobs, bob)))
        result = Path(spread.view.result_dir)
        until((result / "got-worker-one.json").exists, "her worker on the other machine")

        until(lambda: trains_on(spread, epoch, {"one", HERE}), "a training on both machines")
        epoch.write_text("1000")
        for job in (spread, alone):
            job.wait(300, progress=False)
        assert jobs.file_hashes(spread) == jobs.file_hashes(alone)
        assert 2 in jobs.worlds(spread)
        found = {
            name: json.loads((result / f"got-{name}.json").read_text())
            for name in (f"driver-{HERE}", f"worker-{HERE}", "worker-one")
        }
        for role in ("driver", "worker"):
            found[f"alone {role}"] = json.loads((Path(alone.view.result_dir) / f"got-{role}-one.json").read_text())
        for who, got in found.items():
            if machines.server.traits["EdtApp.isolation"] == "same":
                # So the attempts are real ones. Some machines allow less anyway.
                machine = {"make a user namespace", "read a server's memory", "write into the interpreter"}
                assert {what for what, worked in got.items() if not worked} <= machine, who
            else:
                assert {what for what, worked in got.items() if worked} == {OWN}, who
        until(lambda: len(jobs.commits(bob)) > before + 2, "more updates of bob's")
        bob.stop()
        until(lambda: not list((machines.folder / "one" / "jobs").iterdir()), "the end of all jobs' files there")


def test_named_hosts_of_one_machine_have_a_sandbox_each(tmp_path: Path) -> None:
    needs_bubblewrap()
    epoch = tmp_path / "gates" / "epoch"
    epoch.parent.mkdir()
    epoch.write_text("0")
    traits = {
        "EdtApp.threads_per_slot": 1,
        "EdtApp.local_hosts": {"a": 1, "b": 1},
        "EdtApp.isolation": "sandbox",
        "EdtApp.sandbox_paths": epoch.parent,
    }
    with LocalServer(tmp_path / "server", traits=traits) as server:
        jobs = Jobs(server)
        job = jobs.submit("eve_trains.py", str(epoch.parent), max_workers=2)
        (epoch.parent / f"{HERE}.json").write_text(json.dumps(on_the_server(jobs)))
        until(lambda: trains_on(job, epoch, {"a", "b"}), "a training on both hosts")
        # Neither has removed what the other one shows as /tmp.
        assert {path.name for path in (jobs.private(job) / "tmp").iterdir()} == {"_", "b"}
        epoch.write_text("1000")
        alone = jobs.submit("eve_trains.py", str(epoch.parent), max_workers=1).wait(300)
        assert jobs.file_hashes(job.wait(300)) == jobs.file_hashes(alone)
        got = json.loads((Path(job.view.result_dir) / f"got-worker-{HERE}.json").read_text())
        assert {what for what, worked in got.items() if worked} == {OWN}
        until(lambda: not (jobs.private(job) / "tmp").exists(), "the end of its temporary files")
