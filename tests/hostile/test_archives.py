"""Every hostile archive on every route that takes one: refused or harmless, nothing outside, nothing left behind."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.hostile.archives import CANARY, Animal, zoo
from tests.hostile.world import DLI, PLAIN, World, running, table
from tests.jupyter.conftest import multipart
from tests.waiting import until

MOST = 50 << 20  # bytes that one request may make the server hold


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    limits = {"EdtApp.max_package_bytes": 64 << 20, "EdtApp.max_package_files": 4000}
    with running(tmp_path_factory.mktemp("zoo"), **limits) as world:
        yield world


def _native(kind: str, **spec: Any) -> Callable[[World, Animal], requests.Response]:
    def send(world: World, animal: Animal) -> requests.Response:
        body, content_type = multipart(("spec", json.dumps(spec).encode()), ("package", animal.data))
        # The file's name decides whether the catalogue takes it for an archive.
        body = body.replace(b'filename="package"', f'filename="{animal.filename}"'.encode())
        return world.send("POST", f"/edt/api/{kind}", data=body, headers={"Content-Type": content_type})

    return send


def _exec(arguments: str, name: str = "") -> Callable[[World, Animal], requests.Response]:
    def send(world: World, animal: Animal) -> requests.Response:
        files = {"file": (name or animal.filename, animal.data)}
        return world.send("POST", f"{DLI}/execs", params={"args": arguments}, files=files)

    return send


def _weights(world: World, animal: Animal) -> requests.Response:
    return world.send("POST", f"{DLI}/models/weightfile", files={"file": (animal.filename, animal.data)})


def _placed(path: str, **body: Any) -> Callable[[World, Animal], requests.Response]:
    """A request that names an archive in the data folder, where a job or a person has put it."""

    def send(world: World, animal: Animal) -> requests.Response:
        place = world.shared / animal.filename
        place.write_bytes(animal.data)
        try:
            return world.send("POST", path, json={**body, "path": animal.filename})
        finally:
            place.unlink()

    return send


WEIGHTS = "POST /models/weightfile"
_JOB = {"name": "zoo", "main": "train.py", **PLAIN}
_MODEL = {"name": "zoo", "main": "train.py", "framework": "PyTorch"}
ROUTES = {
    "POST /jobs": _native("jobs", **_JOB),
    "POST /jobs, of the elastic engine": _native("jobs", **{**_JOB, "framework": "edtPyTorch", "python_version": None}),
    "POST /datasets": _native("datasets", name="zoo"),
    "POST /models": _native("models", **_MODEL),
    "POST /models, by path": _placed("/edt/api/models", **_MODEL),
    "POST /execs": _exec("--exec-start PyTorch --model-main train.py"),
    "POST /execs, with a folder": _exec("--exec-start PyTorch --model-main train.py --model-dir m", "m.modelDir.tar"),
    WEIGHTS: _weights,
    "POST /modeltemplates": _placed(f"{DLI}/modeltemplates", name="zoo", framework="PyTorch"),
}


def _removed(world: World, route: str, answer: requests.Response) -> None:
    """Remove what an accepted archive made, after a look at it."""
    made = answer.json()
    if "jobs" in route or "execs" in route:
        world.send("POST", f"/edt/api/jobs/{made['id']}/stop")
        world.ended(made["id"])
        until(lambda: world.send("DELETE", f"/edt/api/jobs/{made['id']}").status_code in (204, 404), "its removal")
    else:
        if "datasets" in route:
            _looked_at(Path(made["place"]))
        kind = "datasets" if "datasets" in route else "models"
        parameters = {"kind": "template"} if "templates" in route else {}
        assert world.send("DELETE", f"/edt/api/{kind}/zoo", params=parameters).status_code == 204


def _looked_at(folder: Path) -> None:
    for path in folder.rglob("*"):
        mode = path.lstat().st_mode
        assert stat.S_ISREG(mode) or stat.S_ISDIR(mode) or path.resolve().is_relative_to(folder), path
        assert not mode & (stat.S_ISUID | stat.S_ISGID), path


def _tried(world: World, route: str, animal: Animal) -> tuple[str, int]:
    """The answer to one archive on one route, and the memory that it took."""
    before = world.files()
    memory = world.forget_peak()
    answer = ROUTES[route](world, animal)
    peak = world.memory("VmHWM") - memory
    assert answer.status_code < 500, answer.text
    assert answer.status_code != 403, answer.text
    if answer.status_code < 300 and route == WEIGHTS:
        # Weights are kept as they came, and nothing opens them here.
        new = sorted(path for path in world.files() - before if path.startswith("catalogue"))
        assert (world.server.data_dir / new[-1]).read_bytes() == animal.data
        shutil.rmtree(world.server.data_dir / new[0])
    elif answer.status_code < 300:
        _removed(world, route, answer)
    with contextlib.suppress(pytest.fail.Exception):
        until(lambda: world.files() <= before, "nothing left of it")
    assert not (left := sorted(world.files() - before)), left
    return str(answer.status_code), peak


def _all_tried(world: World, pairs: list[tuple[str, Animal]]) -> None:
    begin, peaks, wrong, refused = world.log_end(), {}, {}, 0
    for route, animal in pairs:
        name = f"{route}  {animal.name}"
        try:
            status, peaks[name] = _tried(world, route, animal)
            refused += status[0] == "4"
        except (AssertionError, pytest.fail.Exception, requests.RequestException) as error:
            wrong[name] = str(error)[:200]
    most = sorted(peaks.items(), key=lambda peak: -peak[1])[:8]
    rows = {name: f"{peak / 2**20:6.1f} MiB" for name, peak in most}
    print(table(f"{len(pairs)} hostile archives, {refused} refused; the highest peaks of the server's memory", rows))
    assert not wrong, table("what went wrong", wrong)
    assert not [name for name, peak in peaks.items() if peak > MOST], rows
    # Not Path.glob, which fails where another process removes a folder in the meantime.
    seen = [entry for top in ("/tmp", world.server.root.parent) for entry in os.walk(top)]
    assert not [folder for folder, folders, files in seen for name in (*folders, *files) if CANARY in name]
    assert world.faults(begin) == []
    world.is_well()


def test_every_archive_once(world: World) -> None:
    routes = list(ROUTES)
    _all_tried(world, [(routes[number % len(routes)], animal) for number, animal in enumerate(zoo())])


@pytest.mark.long
def test_every_archive_on_every_route(world: World) -> None:
    _all_tried(world, [(route, animal) for animal in zoo() for route in ROUTES])


def test_the_zoo_has_no_animal_twice() -> None:
    names = [animal.name for animal in zoo()]
    assert len(names) == len(set(names))
    assert os.path.basename(CANARY) == CANARY
