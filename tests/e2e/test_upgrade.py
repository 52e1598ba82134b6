"""A server that was upgraded finds agents of the version before, with a job below them: it goes on, with equal bits."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from edt_sdk.testing import LocalServer
from tests.e2e.gates import Gates
from tests.e2e.harness import Jobs
from tests.e2e.hosts import agent, below, hosts_of, running

TRAITS = {"EdtApp.threads_per_slot": 1, "EdtApp.local_hosts": {"a": 1, "b": 1}, "EdtApp.checkpoint_interval": 1.0}
EPOCHS = 30
LONG = ("--epochs", str(EPOCHS), "--samples", "60")


@pytest.mark.long  # test_upgrade_with_jobs.py, and server/agent/test_keeping.py with such an agent
def test_a_job_below_agents_of_an_older_version_goes_on_with_the_same_bits(tmp_path_factory, tmp_path: Path) -> None:
    with LocalServer(tmp_path_factory.mktemp("upgrade"), traits=TRAITS) as server:
        jobs = Jobs(server)
        alone = jobs.submit("cnn.py", *LONG, max_workers=1).wait(300)
        gates = Gates(tmp_path / "gates", EPOCHS)
        job = jobs.submit("cnn.py", *LONG, "--gates", str(gates.folder))
        gates.open_until(lambda: hosts_of(job) == {"a", "b"}, "workers on both hosts", ready=2)
        gates.open_until(lambda: len(jobs.commits(job)) > 5, "updates")
        old = {agent(jobs, host).identity.pid for host in "ab"}
        doomed = set.union(old, *(below(pid) for pid in old))
        server.stop(end_jobs=False)
        for host in "ab":
            path = server.data_dir / "control" / "hosts" / f"{host}.json"
            address = json.loads(path.read_bytes())
            path.write_text(json.dumps({**address, "protocol": 0, "endpoint": "ipc:///of/another/time"}))
        server.start()
        jobs.client = server.client()
        job = jobs.client.job(job.id)
        assert not running(doomed), "the agents of before and everything below them"
        assert "is of another version (it speaks protocol 0" in server.log.read_text()
        gates.open_all()
        job.wait(300)
        commits = [commit["update"] for commit in jobs.commits(job)]
        assert commits == list(range(len(jobs.commits(alone))))
        assert jobs.final_hash(job) == jobs.final_hash(alone)
