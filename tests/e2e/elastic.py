"""A service with two slots in the test's own process, and elastic jobs of a small network on it."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import torch

from edt_sdk.schemas.job import JobState
from edt_sdk.schemas.search.views import SearchState
from edt_server.service import Service, open_service
from edt_server.settings import Settings
from edt_server.system.runtime import runtime_dir
from tests.packages import packed
from tests.server.service.running import cleaned
from tests.waiting import until_async

DATA = """
import torch
from torch import nn
from fabric_model import FabricModel

def data(samples, seed):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(samples, 6, generator=generator)
    return torch.utils.data.TensorDataset(x, (x.sum(1) > 0).long())
"""


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    data_dir = tmp_path / "data"
    place = runtime_dir(tmp_path / "run", data_dir)
    return Settings(data_dir=data_dir, runtime_dir=place, local_slots=2, threads_per_slot=1, warm_workers=0)


@pytest_asyncio.fixture
async def service(settings: Settings) -> AsyncIterator[Service]:
    async with cleaned(settings), open_service(settings) as service:
        yield service


def package(service: Service, script: str) -> Path:
    file = service.settings.data_dir.parent / "package.tar.gz"
    file.write_bytes(packed({"train.py": script.encode()}))
    return file


async def becomes(see: Callable[[str, str], Awaitable[Any]], name: str, state: JobState | SearchState) -> Any:
    """The view of a job or a search of ann's in this state, as `see` returns it."""

    async def look() -> Any:
        view = await see("ann", name)
        assert view.state is state or not view.state.final, view.message
        return view if view.state is state else None

    return await until_async(look, state.value)


async def weights(service: Service, job: str) -> str:
    """A hash of the weights at the end."""
    path = service.paths(await service.mine("ann", job)).train_dir / "model_epoch_final.pth"
    digest = hashlib.sha256()
    for name, tensor in torch.load(path, weights_only=True).items():
        digest.update(f"{name} {tuple(tensor.shape)} ".encode() + tensor.contiguous().numpy().tobytes())
    return digest.hexdigest()
