"""Jobs that hold at the end of an epoch, on a real service, and the same training without an interruption."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from edt_sdk.schemas.errors import Conflict, Unprocessable
from edt_sdk.schemas.job import JobPatch, JobSpec, JobState
from edt_server.service import Service, open_service
from edt_server.settings import Settings
from tests.e2e.elastic import DATA, becomes, package, service, settings, weights
from tests.server.service.running import cleaned
from tests.waiting import until_async

__all__ = ["service", "settings"]
pytestmark = pytest.mark.asyncio
EPOCHS, UPDATES = 4, 6
SCRIPT = f"""
{DATA}
import sys, time
from pathlib import Path
from callbacks import Callback

class Gate(Callback):
    def on_update_end(self, update):
        if update == 4 and len(sys.argv) > 1:
            gate = Path(sys.argv[1])
            (gate / "at").touch()
            while (gate / "hold").exists():
                time.sleep(0.01)

def datasets():
    return data(47, 1), data(13, 2)

def spread(outputs, labels):
    return outputs.std()

torch.manual_seed(3)
model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, {EPOCHS})
FabricModel(
    model, datasets, nn.functional.cross_entropy, optimizer, user_callback=[Gate()], metrics=[spread],
    lr_scheduler=schedule,
).train({EPOCHS}, 4, 2, checkpoint_freq=0)
"""


async def submit(service: Service, *args: str, budget: int | None = None, max_workers: int = 2) -> str:
    spec = JobSpec(name="trial", main="train.py", max_workers=max_workers, args=args)
    return (await service.submit("ann", spec, package(service, SCRIPT), budget=budget)).id


async def data_of(service: Service, job: str, kind: str) -> list[dict[str, Any]]:
    return [event.data for event in await service.events("ann", job) if event.kind == kind]


async def final_hash(service: Service, job: str) -> str:
    """The weights at the end, after a look at the commits: each update once."""
    paths = service.paths(await service.mine("ann", job))
    commits = [json.loads(line)["update"] for line in paths.commits(0).read_text().splitlines()]
    assert commits == list(range(EPOCHS * UPDATES))
    return await weights(service, job)


_alone: list[str] = []


async def alone(service: Service) -> str:
    """The same training without an interruption, once for all tests: its hash."""
    if not _alone:
        job = await submit(service, max_workers=1)
        await becomes(service.job, job, JobState.FINISHED)
        assert await data_of(service, job, "validated") == []
        _alone.append(await final_hash(service, job))
    return _alone[0]


async def holds(service: Service, job: str, epoch: int) -> None:
    """It is suspended after that epoch, has said so, and everything up to there is known to the server."""
    view = await becomes(service.job, job, JobState.SUSPENDED)
    assert view.reason.text == f"It has reached {epoch} of {EPOCHS} epochs; its search decides."
    assert (view.slots, await service._writer.read(service._ledger.core.free)) == (0, (0, 1))
    paths = service.paths(await service.mine("ann", job))
    assert len(paths.commits(0).read_text().splitlines()) == epoch * UPDATES
    assert (paths.checkpoints(0) / f"epoch-{epoch}.ckpt").exists()
    validated = await data_of(service, job, "validated")
    tests = [json.loads(line) for line in paths.metrics(0).read_text().splitlines() if '"kind":"test"' in line]
    assert [each["epoch"] for each in validated] == list(range(1, epoch + 1))
    for report, line in zip(validated, tests, strict=True):
        assert report == {**{name: line[name] for name in ("loss", "accuracy", "metrics")}, "training": 0,
                          "epoch": line["epoch"] + 1}  # fmt: skip


async def test_held_twice_and_killed_in_between_it_ends_with_the_same_bits(settings: Settings) -> None:
    async with cleaned(settings):
        async with open_service(settings) as service:
            expected = await alone(service)
            trial = await submit(service, budget=1, max_workers=1)
            await holds(service, trial, 1)
            with pytest.raises(Conflict, match="its search decides"):
                await service.resume("ann", trial)
            # The driver dies while it holds, and its script runs again up to train().
            (driver,) = await data_of(service, trial, "driver_started")
            os.kill(driver["pid"], signal.SIGKILL)

            async def again() -> bool:
                return len(await data_of(service, trial, "driver_started")) == 2

            await until_async(again, "another driver")
        async with open_service(settings) as service:
            await holds(service, trial, 1)
            await service.set_budget("ann", trial, 3)
            await holds(service, trial, 3)
            # The supervisor dies while it holds: the next one starts with the next slot.
            row = await service.mine("ann", trial)
            assert row.supervisor is not None
            os.kill(row.supervisor.pid, signal.SIGKILL)

            async def lost() -> bool:
                return bool(await data_of(service, trial, "supervisor_lost"))

            await until_async(lost, "the loss of the supervisor")
            await holds(service, trial, 3)
            await service.set_budget("ann", trial, EPOCHS)
            await becomes(service.job, trial, JobState.FINISHED)
            assert await final_hash(service, trial) == expected
            held = [(data["epoch"], data["epochs"]) for data in await data_of(service, trial, "job_held")]
            assert held == [(1, EPOCHS), (3, EPOCHS)]
            assert [each["epoch"] for each in await data_of(service, trial, "validated")] == [1, 2, 3, 4]


def closed(gate: Path) -> Path:
    gate.mkdir()
    (gate / "hold").touch()
    return gate


async def last_update(service: Service, gate: Path) -> str:
    """A trial with a budget of one epoch, before the last update of that epoch, with a second worker on its way."""
    trial = await submit(service, str(gate), budget=1)

    async def two() -> bool:
        return len(await data_of(service, trial, "worker_started")) == 2

    await until_async((gate / "at").exists, "the last update of the epoch")
    await until_async(two, "the second worker")
    return trial


async def test_more_budget_or_another_size_during_the_last_update(service: Service, tmp_path: Path) -> None:
    expected = await alone(service)
    gate = closed(tmp_path / "raised")
    raised = await last_update(service, gate)
    await service.set_budget("ann", raised, EPOCHS)
    (gate / "hold").unlink()
    await becomes(service.job, raised, JobState.FINISHED)
    assert await data_of(service, raised, "job_held") == []
    gate = closed(tmp_path / "resized")
    resized = await last_update(service, gate)
    await service.change_settings("ann", resized, JobPatch(max_workers=1))
    (gate / "hold").unlink()
    await holds(service, resized, 1)
    await service.set_budget("ann", resized, None)
    await becomes(service.job, resized, JobState.FINISHED)
    assert {await final_hash(service, job) for job in (raised, resized)} == {expected}


async def test_a_program_that_cannot_hold_is_refused_and_leaves_nothing(service: Service) -> None:
    file = package(service, "print('here')\n")
    spec = JobSpec(name="trial", main="train.py", max_workers=1, framework="PyTorch")
    with pytest.raises(Unprocessable, match="cannot hold at an epoch"):
        await service.submit("ann", spec, file, budget=3)
    assert await service.jobs("ann") == []
    job = (await service.submit("ann", spec, file)).id
    with pytest.raises((Unprocessable, Conflict)):
        await service.set_budget("ann", job, 3)
