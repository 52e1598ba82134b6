"""The server's copy of a data set travels to the machines of a job, and one that is too large is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from edt_sdk.schemas.errors import JobFailed
from edt_sdk.schemas.job import JobState
from tests.e2e.fleet import Machines
from tests.e2e.hosts import hosts_of
from tests.network import Network
from tests.waiting import until

LIMIT = 1 << 20
SCRIPT = """
import os, sys, time
from pathlib import Path

import torch
from fabric_model import FabricModel

free = Path(sys.argv[1])


class Data(torch.utils.data.Dataset):
    def __init__(self):
        self.x = torch.load(Path(os.environ["DATA_DIR"], "train", "x.pt"), weights_only=True)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        if not free.exists():
            time.sleep(0.05)
        return self.x[index], index % 3


if __name__ == "__main__":
    model = torch.nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    FabricModel(model, lambda: (Data(), None), torch.nn.functional.cross_entropy, optimizer).train(200, 4, 4)
"""


def test_a_copied_data_set_is_on_every_machine_of_its_job(tmp_path: Path) -> None:
    for name, rows in (("small", 24), ("large", LIMIT)):
        (tmp_path / name / "train").mkdir(parents=True)
        torch.save(torch.randn(rows, 4), tmp_path / name / "train" / "x.pt")
    gates = tmp_path / "gates"
    gates.mkdir()
    with Network("one", "two", "head") as network:
        machines = Machines(network, tmp_path, more={"EdtApp.host_dataset_bytes": LIMIT})
        with machines.serving() as jobs:
            client = jobs.client
            for name in ("small", "large"):
                client.add_dataset(name, tmp_path / name)
            for name in ("one", "two"):
                machines.join(jobs, name)
            job = client.submit(SCRIPT, args=[str(gates / "free")], dataset="small", max_workers=2, progress=False)
            until(lambda: hosts_of(job) == {"one", "two"}, "workers on both machines")
            (gates / "free").touch()
            assert job.wait(300).view.state is JobState.FINISHED
            for name in ("one", "two"):
                until(lambda name=name: not list((tmp_path / name / "jobs").iterdir()), "the end of what was copied")
            large = client.submit(SCRIPT, args=[str(gates / "free")], dataset="large", progress=False)
            with pytest.raises(JobFailed, match=r"data set large has .* at most 1,048,576 are sent to a host"):
                large.wait(300)
            assert large.view.state is JobState.ERROR
