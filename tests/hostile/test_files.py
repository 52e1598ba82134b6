"""Another user is answered while the files of a job that put a FIFO, a link or a device everywhere are asked for.

The short form is `tests/jupyter/api/test_files_of_jobs.py`, which asks what is answered and not when.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from statistics import median

import pytest
import requests

from tests.hostile.world import World, running, table
from tests.jupyter.api.test_files_of_jobs import ASKED, SCRIPT, SECRET
from tests.waiting import LIMIT

KINDS = ("fifo", "link", *(["device"] if os.getuid() == 0 else []))
ROUNDS, LOOKS = 10, 50


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with running(tmp_path_factory.mktemp("files"), app="edt serve") as world:
        world.send("POST", "/edt/api/jobs/stop", "bob")  # the slot of the job that ends
        (world.shared / "secret").write_text(f"{SECRET}\n")
        yield world


@pytest.mark.long
def test_others_are_answered_meanwhile(world: World) -> None:
    took = {"nothing": _looks(world)}
    for kind in KINDS:
        script = SCRIPT.replace("SECRET", repr(str(world.shared / "secret"))).replace("KIND", repr(kind))
        job = world.submit(script.replace("SERVER", str(os.getuid())).encode(), "bob")
        assert world.ended(job, "bob") == "FINISHED"
        with ThreadPoolExecutor(4) as pool:
            asked = [pool.submit(_ask, world, "bob", f"jobs/{job}/{what}") for what in ASKED * ROUNDS]
            took[kind] = _looks(world)
            answers = [each.result() for each in asked]
        assert not [answer.text for answer in answers if answer.status_code >= 500]
        assert not [answer for answer in answers if SECRET in answer.text]
    rows = {kind: f"{median(times):5.0f} ms, worst {max(times):5.0f} ms" for kind, times in took.items()}
    print(table("another user's list of jobs, beside requests for files that are", rows))


def _looks(world: World) -> list[float]:
    """The milliseconds that another user waits for the list of jobs, each time."""
    times = []
    for _ in range(LOOKS):
        begin = time.perf_counter()
        assert _ask(world, "eve", "jobs").status_code == 200
        times.append(1000 * (time.perf_counter() - begin))
    return times


def _ask(world: World, user: str, path: str) -> requests.Response:
    headers = {"Authorization": f"token {user}-secret"}
    return requests.get(f"{world.server.url}edt/api/{path}", headers=headers, timeout=LIMIT)
