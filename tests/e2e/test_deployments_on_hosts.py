"""A deployment on a server with hosts: its replicas are on the server's own machine, whatever else there is."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from edt_sdk.schemas.errors import Unprocessable
from tests.e2e.fleet import Machines
from tests.network import Network
from tests.packages import WRITES_WEIGHTS
from tests.waiting import until

HERE = socket.gethostname()
PREDICTOR = """
class Predictor:
    def __init__(self, model_dir, params):
        pass

    def predict(self, inputs):
        return [each.upper() for each in inputs]
"""


def test_replicas_are_on_the_servers_own_machine(tmp_path: Path) -> None:
    code = tmp_path / "code"
    code.mkdir()
    (code / "train.py").write_bytes(WRITES_WEIGHTS)
    (code / "predictor.py").write_text(PREDICTOR)
    with Network("one", "head") as network:
        machines = Machines(network, tmp_path, slots=1)
        with machines.serving() as jobs:
            machines.join(jobs, "one", slots=2)
            client = jobs.client
            job = client.submit(code, main="train.py", args=["w"], framework="PyTorch", progress=False)
            version = client.register(job.wait(120, progress=False), "upper")
            with pytest.raises(Unprocessable, match=f"on its own machine {HERE} only") as refused:
                client.deploy(version)
            assert f"edt resource create serving --host {HERE}" in refused.value.hint
            client.create_resource_group("serving", hosts=[HERE])
            client.create_instance_group("serving", resource_group="serving")
            made = client.deploy(version, instance_group="serving", replicas=(1, 3)).wait_ready(120)
            assert made.predict(["a"]) == ["A"]
            (serves,) = (each for each in client.jobs() if each.view.framework == "serve")
            assert [worker["host"] for worker in serves.workers()] == [HERE]
            # The plan takes its machine away.
            client.update_resource_group("serving", hosts=["one"])
            until(lambda: serves.refresh().state.final, "the end of its job")
            assert "Replicas are reached on the server's own machine only, and not on one." in serves.view.message
