"""A submission of WMLA's clients, from its command line to what its program finds, on a real service."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from edt_sdk.schemas.job import JobState, JobView
from edt_server.outputs.logs import LogReader
from edt_server.service import Service, open_service
from edt_server.settings import Settings
from edt_server.system.runtime import runtime_dir
from edt_server.wmla.args import parse
from edt_server.wmla.request import job_spec
from tests.packages import packed

SCRIPT = b"""
import argparse, os, sys
parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int)
print("epochs", parser.parse_args().epochs)
for name in ("DATA_DIR", "GREETING", "DLI_LOGGER_LEVEL", "DLI_CS_DATASTORE_META", "FRAME_WORK"):
    print(name, os.environ[name])
print("file", open("config.json").read(), os.path.basename(os.getcwd()))
"""


def package(path: Path) -> Path:
    path.write_bytes(packed({"mnist/main.py": SCRIPT, "mnist/config.json": b"{}"}))
    return path


async def ended(service: Service, job: str) -> JobView:
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline:
        view = await service.job("ann", job)
        if view.state.final:
            return view
        await asyncio.sleep(0.05)
    raise AssertionError(f"it does not end: {view}")


async def lines(service: Service, job: str) -> list[str]:
    paths = service.paths(await service.mine("ann", job))
    return [line.text for line in LogReader(paths).read(final=True).lines]


@pytest.mark.asyncio
async def test_a_command_line_becomes_a_program_s_surroundings(tmp_path: Path) -> None:
    (tmp_path / "fs" / "digits").mkdir(parents=True)
    data_dir = tmp_path / "data"
    place = runtime_dir(tmp_path / "run", data_dir)
    settings = Settings(
        data_dir=data_dir,
        runtime_dir=place,
        local_slots=2,
        threads_per_slot=1,
        warm_workers=0,
        data_fs=str(tmp_path / "fs"),
    )
    async with open_service(settings) as service:
        line = (
            "--exec-start PyTorch --cs-datastore-meta type=fs,data_path=digits --model-dir mnist "
            "--model-main main.py --debug-level debug --msd-env GREETING=hello --msd-label team=a "
            "--workerDeviceNum 1 --python-version 3.6  --epochs 3 "
        )
        spec = job_spec(parse(line), code_dir="mnist", slots=2)
        view = await ended(service, (await service.submit("ann", spec, package(tmp_path / "p.tar.gz"))).id)
        said = await lines(service, view.id)
        assert view.state is JobState.FINISHED, said
        assert said == [
            "epochs 3",
            f"DATA_DIR {tmp_path / 'fs' / 'digits'}",
            "GREETING hello",
            "DLI_LOGGER_LEVEL debug",
            "DLI_CS_DATASTORE_META type=fs,data_path=digits",
            "FRAME_WORK PyTorch",
            "file {} mnist",
        ]
        told = [event.text for event in await service.events("ann", view.id) if event.kind == "remark"]
        assert told == [
            "--msd-label team=a has no meaning here: there are no pods here",
            "--python-version 3.6 has no meaning here: jobs run in the server's interpreter; what it lacks is "
            "installed there",
        ]
        command = "--exec-start distPyTorch --numWorker 2 --user-cmd -- echo rank $RANK of $WMLA_NWORKER; test -d ."
        spec = job_spec(parse(command), code_dir="mnist")
        view = await ended(service, (await service.submit("ann", spec, tmp_path / "p.tar.gz")).id)
        said = await lines(service, view.id)
        assert (view.state, sorted(said)) == (JobState.FINISHED, ["rank 0 of 2", "rank 1 of 2"])
