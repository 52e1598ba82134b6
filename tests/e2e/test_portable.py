"""Machines that round otherwise offer no slots in a common group, unless it is portable: then its jobs' bits agree."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
import torch

from edt_sdk.schemas.errors import Conflict
from edt_sdk.schemas.hosts import HostState
from tests.e2e.fleet import Machines, offered
from tests.e2e.gates import Gates
from tests.e2e.hosts import hosts_of
from tests.network import Network
from tests.waiting import until

ARGUMENTS = ("--epochs", "12", "--samples", "60")
# Other instructions than this machine's own.
OTHER = "avx2" if torch.backends.cpu.get_cpu_capability() == "AVX512" else "default"


def test_a_portable_training_is_on_machines_that_round_otherwise(tmp_path: Path) -> None:
    own = socket.gethostname()
    with Network("other", "head") as network:
        machines = Machines(network, tmp_path, slots=1)
        with machines.serving() as jobs:
            client = jobs.client
            until(lambda: offered(jobs, own) == 1, "the server's own slot")
            machines.start(jobs, "other", env={"ATEN_CPU_CAPABILITY": OTHER})
            kept_out = "what keeps the machine out"
            other = until(lambda: next((each for each in client.hosts() if "rounds" in each.why), None), kept_out)
            assert (other.state, other.slots) == (HostState.UP, 0)
            assert f"rounds otherwise than that of {own}" in other.why
            assert "--portable" in other.why
            exact = jobs.submit("cnn.py", *ARGUMENTS, max_workers=1).wait(300)

            client.update_resource_group("default", portable=True)
            assert client.host("other").why == ""
            assert offered(jobs, "other") == 1
            gates = Gates(tmp_path / "gates", 12)
            both = jobs.submit("cnn.py", *ARGUMENTS, "--gates", str(gates.folder))
            opened = gates.folder / "opened"
            until(lambda: opened.exists() and len(opened.read_text().split()) >= 2, "two workers with the data")
            gates.open_until(lambda: hosts_of(both) == {own, "other"}, "workers on both machines", ready=0)
            with pytest.raises(Conflict, match=both.id):
                client.update_resource_group("default", portable=False)
            gates.open_all()
            both.wait(300)
            assert both.view.progress.inexact == ""
            for host in (own, "other"):
                rest = client.create_resource_group("rest", hosts=[own if host == "other" else "other"], portable=True)
                alone = jobs.submit("cnn.py", *ARGUMENTS, max_workers=1).wait(300)
                assert {slot["host"] for slot in client.cluster()["slots"] if slot["resource_group"] == "default"} == {
                    host
                }
                assert jobs.file_hashes(alone) == jobs.file_hashes(both)
                client.delete_resource_group(rest.name)
            assert jobs.file_hashes(exact) != jobs.file_hashes(both), "the variables had no effect"
