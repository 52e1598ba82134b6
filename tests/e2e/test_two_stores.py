"""Two stores on one machine: no GPU is used by jobs of both, and who waits is told why.

There is no GPU here: a program of the name `nvidia-smi` says that there is one, and the job never computes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from edt_sdk import Job
from edt_sdk.schemas.job import JobState
from edt_sdk.testing import LocalServer
from tests.waiting import until

SLEEPER = "# FabricModel\nimport time\nprint('begun', flush=True)\ntime.sleep(600)\n"


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[tuple[LocalServer, LocalServer]]:
    tools = tmp_path / "tools"
    tools.mkdir()
    (tmp_path / "tmp").mkdir()
    smi = tools / "nvidia-smi"
    smi.write_text("#!/bin/sh\necho '0, GPU-11111111-2222-3333-4444-555555555555'\n")
    smi.chmod(0o755)
    environ = {"PATH": f"{tools}:{os.environ['PATH']}", "TMPDIR": str(tmp_path / "tmp")}
    with ExitStack() as stack:
        one, two = (
            stack.enter_context(LocalServer(tmp_path / name, slots=0, environ=environ)) for name in ("one", "two")
        )
        yield one, two


def sleeper(server: LocalServer, folder: Path) -> Job:
    folder.mkdir(exist_ok=True)
    (folder / "sleep.py").write_text(SLEEPER)
    return server.client().submit(folder, main="sleep.py", max_workers=1, progress=False)


def test_a_gpu_of_another_stores_job_is_not_offered(servers: tuple[LocalServer, LocalServer], tmp_path: Path) -> None:
    one, two = servers
    first = sleeper(one, tmp_path / "code")
    until(lambda: "begun" in str(first.logs()), "the first store's job")
    second = sleeper(two, tmp_path / "code")
    assert second.view.slots == 0
    until(lambda: str(one.data_dir) in (second.refresh().view.reason or first.view.reason).text, "the reason")
    cluster = two.client().cluster()
    assert cluster["slots"] == []
    assert [each["device"] for each in cluster["elsewhere"]] == ["cuda:0"]
    one.kill()  # the claim is the job's, not the server's
    third = sleeper(two, tmp_path / "code")
    assert third.refresh().view.slots == 0
    one.start()
    one.client().job(first.id).stop()
    until(lambda: second.refresh().view.slots == 1, "the GPU for the second store's job")
    until(lambda: "begun" in str(second.logs()), "the second store's job")
    until(lambda: one.client().cluster()["slots"] == [], "the other way round")
    second.stop()
    until(lambda: second.refresh().state is JobState.KILLED, "the end")
