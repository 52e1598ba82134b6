"""What a server leaves that is killed in the middle of an upload goes at the next start; what is complete stays."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest

from edt_sdk.schemas.catalogue import NewDataset
from edt_server.catalogue.places import Places
from edt_server.service import open_service

pytestmark = pytest.mark.asyncio
# A server that is killed when half of an upload is in its place.
KILLED = """
import asyncio, sys
from pathlib import Path
from edt_server.service import open_service
from edt_server.settings import Settings

async def main(data_dir, runtime_dir):
    settings = Settings(data_dir=data_dir, runtime_dir=runtime_dir, local_slots=1, threads_per_slot=1, warm_workers=0)

    def fill(places):
        places.data.mkdir()
        (places.data / "half").write_text("x")
        print(places.folder, flush=True)
        sys.stdin.read()

    async with open_service(settings) as service:
        await service.catalogue.datasets._shelf.add("ann", "digits", fill)

asyncio.run(main(*map(Path, sys.argv[1:])))
"""


def killed_half_way(settings):
    command = [sys.executable, "-c", KILLED.replace("digits", "other"), settings.data_dir, settings.runtime_dir]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        half = server.stdout.readline().strip()
        server.kill()
    return half


async def test_half_an_upload_goes_and_a_whole_one_stays(settings, data_fs):
    async with open_service(settings) as service:
        made = await service.catalogue.datasets.add("ann", NewDataset(name="digits", path="mnist", copy=True))
    whole = (settings.data_dir / "catalogue" / "ann").glob("*")
    (folder,) = whole
    assert (str(folder / "data"), sorted(path.name for path in folder.iterdir())) == (made.place, ["data"])
    stray = folder.with_name("of-a-store-that-was-replaced")
    stray.mkdir()

    half = await asyncio.to_thread(killed_half_way, settings)
    left = [path for path in folder.parent.iterdir() if path.name.startswith(".incoming-")]
    assert [str(path) for path in left] == [half]

    async with open_service(settings) as service:
        assert sorted(path.name for path in folder.parent.iterdir()) == sorted([folder.name, stray.name])
        assert [each.name for each in await service.catalogue.datasets.list("ann")] == ["digits"]


async def test_what_is_refused_half_way_leaves_nothing(service, settings):
    def refuse(places):
        places.data.mkdir()
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await service.catalogue.datasets._shelf.add("ann", "digits", refuse)
    assert list((settings.data_dir / "catalogue" / "ann").iterdir()) == []


async def test_a_thing_has_one_place_and_one_before(tmp_path):
    places = Places(tmp_path, "ann", "digits-abc")
    assert places.incoming.folder == places.folder.with_name(".incoming-digits-abc")
    assert places.incoming.code.parent == places.incoming.folder
