"""A kernel, a shell, cards and monitors in front of a real server that fails them while somebody looks."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from jupyter_core.utils import ensure_event_loop

from edt_sdk.schemas.errors import Conflict, JobFailed, NotFound
from tests.failures.matrix import covers
from tests.failures.situations import ENDLESS_LINE, MEGABYTE, NO_NUMBERS
from tests.failures.world import CROWD, Kernel, Near, World, of_html, short

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:zmq.*")
PATIENCE = 120
ASKED = ("sdk", "shell", "magic")
TOOLS = """
%load_ext edt_sdk
import os, time
from edt_sdk import Client
from edt_sdk.notebook.live_cell import wait
client = Client()

def until(there):
    "What there is, once there is something."
    deadline = time.monotonic() + 60
    while not (found := there()):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return found

def left(monitor):
    "What stays of it."
    assert monitor.join(180)
    return monitor._left["text/html"]
"""


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> Iterator[World]:
    made = World(tmp_path_factory.mktemp("world"))
    with made.server:
        yield made


@pytest.fixture(scope="module")
def kernel(world: World, tmp_path_factory) -> Iterator[Kernel]:
    made = Kernel(tmp_path_factory.mktemp("notebook"), {"EDT_URL": world.url, "EDT_TOKEN": world.server.token})
    made.run(TOOLS)
    yield made
    made.close()


@pytest.fixture(scope="module")
def finished(world: World, kernel: Kernel):
    """The kernel's `numbers`, whose losses are none, and `talker`, with lines without end; both have ended."""
    numbers = world.submit(NO_NUMBERS, name="numbers")
    talker = world.submit(ENDLESS_LINE, name="talker")
    kernel.run(f"numbers, talker = client.job({numbers.id!r}), client.job({talker.id!r})")
    numbers.wait(progress=False)
    with pytest.raises(JobFailed):
        talker.wait(progress=False)
    return numbers, talker


@pytest.fixture
def job(world: World, kernel: Kernel):
    """A job that lives, the kernel's `job`, and its `monitor`."""
    made = world.sleeper()
    kernel.run(f"job = client.job({made.id!r})\nmonitor = job.monitor()")
    yield made
    kernel.run("monitor.close()")
    with suppress(NotFound, Conflict):  # deleted, or stopped by the test
        made.stop()


@contextmanager
def in_a_cell(kernel: Kernel, code: str) -> Iterator[list[str]]:
    """A cell that runs meanwhile; what it comes to is in the list behind the block."""
    shown: list[str] = []
    kernel.seen.clear()

    def run() -> None:
        shown.append(kernel.run(code))
        ensure_event_loop().close()  # this thread's own

    thread = Thread(target=run)
    thread.start()
    try:
        yield shown
    finally:
        thread.join(PATIENCE)
        assert shown, "the cell does not end"


def seen(kernel: Kernel, words: str) -> str:
    """The first line with these words that the cell shows from now on."""
    deadline = time.monotonic() + PATIENCE
    while True:
        for bundle in list(kernel.seen):
            if words in (line := str(bundle.get("text/plain", ""))):
                return line
        assert time.monotonic() < deadline, (words, kernel.seen[-3:])
        time.sleep(0.05)


def edt(world: World, *words: str, token: str = "", url: str = "") -> str:
    """What a person reads at a shell."""
    token = token or world.server.token
    command = [sys.executable, "-m", "edt_sdk.cli", *words, "--url", url or world.url, "--token", token]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=world.root)
    assert "Traceback" not in done.stderr
    return done.stderr or done.stdout


def asked(world: World, kernel: Kernel, failure: str, told, job, *, token: str = "") -> None:
    """The surfaces that answer when they are asked."""
    told("sdk", failure, kernel.run("job.refresh().view.state"))
    told("shell", failure, edt(world, "get", job.id, token=token))
    told("magic", failure, kernel.run("%edt_story job"))
    told("repr", failure, kernel.run("job"))


@covers("gone", *ASKED, "repr", "monitor", "wait")
@covers("back", *ASKED, "repr", "monitor", "wait")
def test_a_server_that_is_gone_and_comes_back(world: World, kernel: Kernel, job, told):
    with in_a_cell(kernel, "wait(job)") as ended:
        seen(kernel, "RUNNING")
        world.kill()
        told("wait", "gone", seen(kernel, "Not renewed"))
        kernel.seen.clear()
        world.again()
        told("wait", "back", seen(kernel, "RUNNING"))
        job.stop()
    assert "ended as STOPPED" in ended[0]
    job = world.sleeper()
    kernel.run(f"job = client.job({job.id!r})\nmonitor = job.monitor()")
    world.kill()
    try:
        told("monitor", "gone", of_html(kernel.run("print(until(lambda: monitor.trouble))")))
        asked(world, kernel, "gone", told, job)
    finally:
        world.again()
    told("sdk", "back", kernel.run("print(job.refresh())"))
    told("shell", "back", edt(world, "get", job.id).splitlines()[0])
    told("magic", "back", kernel.run("%edt_story job").splitlines()[-1])
    told("repr", "back", kernel.run("job"))
    kernel.run("until(lambda: not monitor.trouble)")
    told("monitor", "back", kernel.run("print(monitor.job)"))
    job.stop()


@covers("token", *ASKED, "repr", "monitor", "wait")
def test_a_token_that_is_not_valid_any_more(world: World, kernel: Kernel, job, told):
    old = world.server.token
    try:
        with in_a_cell(kernel, "wait(job)") as ended:
            seen(kernel, "RUNNING")
            world.kill()
            world.again(token="another")
        told("wait", "token", ended[0].splitlines()[-1])
        told("monitor", "token", of_html(kernel.run("print(left(monitor))")))
        asked(world, kernel, "token", told, job, token=old)
    finally:
        world.kill()
        world.again(token=old)


@pytest.mark.long  # in the browser it is tested always
@covers("denied", *ASKED, "repr", "monitor", "wait")
def test_an_authorizer_that_says_no(world: World, kernel: Kernel, job, told):
    try:
        with in_a_cell(kernel, "wait(job)") as ended:
            seen(kernel, "RUNNING")
            world.kill()
            world.deny(True)
            world.again()
        told("wait", "denied", ended[0].splitlines()[-1])
        told("monitor", "denied", of_html(kernel.run("print(left(monitor))")))
        asked(world, kernel, "denied", told, job)
    finally:
        world.deny(False)


@covers("deleted", *ASKED, "repr", "monitor")
def test_a_job_that_somebody_else_deletes(world: World, kernel: Kernel, job, told):
    # A monitor that no page shows sends no request, and does not see the end before the deletion.
    kernel.run("until(lambda: monitor._twin.view.state == 'RUNNING')")
    kernel.run("monitor._received(None, {'kind': 'gone'}, [])")
    job.stop()
    with pytest.raises(JobFailed):
        job.wait(progress=False)
    job.delete()
    asked(world, kernel, "deleted", told, job)
    told(
        "monitor", "deleted", of_html(kernel.run("monitor._received(None, {'kind': 'seen'}, [])\nprint(left(monitor))"))
    )


@covers("many", *ASKED, "monitor")
def test_ten_thousand_jobs(world: World, kernel: Kernel, job, told):
    told("sdk", "many", kernel.run("print(client.jobs())").splitlines()[-1])
    told("shell", "many", edt(world, "list").splitlines()[-1])
    shown = kernel.run("%edt_jobs")
    assert sum(shown.count(state) for state in ("✔ FINISHED", "✘ FAILED", "▶ RUNNING", "■ STOPPED")) == 50
    told("magic", "many", shown[shown.index("…") :])
    # All of them, page by page.
    pages = """
        seen = client.jobs()
        while seen.more:
            older = client.jobs(before=seen[-1])
            seen += older
            seen.more = older.more
        print(len(seen), len({job.id for job in seen}))"""
    total, different = map(int, kernel.run(pages).split())
    assert total == different > CROWD
    assert len(edt(world, "list", "--before", "past-09989-002705").splitlines()) == 11  # with a head
    kernel.run("all_of_them = client.monitor()\nuntil(lambda: all_of_them._views)\nall_of_them.close()")
    shown = kernel.run("print(left(all_of_them))")
    jobs = shown[: shown.index("<summary><b>Allocation")]
    assert jobs.count("<tr>") == 51
    told("monitor", "many", of_html(jobs[: jobs.index("<details")] + jobs[jobs.index("</table>") :]))


@covers("line", *ASKED, "repr", "monitor", "wait")
def test_a_line_of_a_megabyte(world: World, kernel: Kernel, finished, told):
    _, talker = finished
    for surface, code, most in (
        ("sdk", "print(repr(talker.logs()))", 20_000),
        ("magic", "%edt_logs talker", 20_000),
        ("repr", "talker", 4000),
        ("wait", "wait(talker)", 10_000),
    ):
        shown = kernel.run(code)
        assert len(shown) < most
        told(surface, "line", short(shown))
    shown = of_html(kernel.run("print(left(talker.monitor()))"))
    assert len(shown) < 20_000
    told("monitor", "line", short(shown[: shown.index("Allocation")]))
    # Somebody who reads a log at a shell, mostly another program, gets all of it.
    shown = edt(world, "logs", talker.id)
    assert "o" * MEGABYTE in shown
    told("shell", "line", short(shown))


@covers("nan", *ASKED, "repr", "monitor", "wait")
def test_losses_that_are_no_numbers(world: World, kernel: Kernel, finished, told):
    numbers, _ = finished
    told("sdk", "nan", kernel.run("print(numbers.metrics())"))
    told("shell", "nan", edt(world, "metrics", numbers.id))
    told("magic", "nan", kernel.run("%edt_metrics numbers"))
    told("repr", "nan", kernel.run("numbers"))
    shown = of_html(kernel.run("print(left(numbers.monitor()))"))
    told("monitor", "nan", shown[: shown.index("Allocation")])
    kernel.seen.clear()
    kernel.run("wait(numbers)")
    figure, line = (bundle["text/plain"] for bundle in kernel.seen[-2:])
    told("wait", "nan", f"{figure.split('.')[0]}. {line}")


@pytest.mark.long  # in the browser it is tested always
@covers("disk", *ASKED)
def test_a_full_disk(world: World, kernel: Kernel, told, tmp_path: Path):
    (tmp_path / "train.py").write_text("# FabricModel")
    big = tmp_path / "noise.bin"
    big.write_bytes(os.urandom(40_000_000))
    unlimited = resource.RLIM_INFINITY
    # No file may grow beyond this: what a quota does, without a file system of its own.
    resource.prlimit(world.server.pid, resource.RLIMIT_FSIZE, (32_000_000, unlimited))
    try:
        told("sdk", "disk", kernel.run(f"client.submit({str(tmp_path)!r}, main='train.py')").splitlines()[-1])
        told("shell", "disk", edt(world, "submit", str(tmp_path), "--main", "train.py").splitlines()[-1])
        magic = kernel.run(f"%edt_submit {tmp_path} --main train.py")
        told("magic", "disk", magic.splitlines()[-1])
    finally:
        resource.prlimit(world.server.pid, resource.RLIMIT_FSIZE, (unlimited, unlimited))
    assert not [path for path in world.server.data_dir.rglob("upload-*") if path.is_file()]


class _Later(BaseHTTPRequestHandler):
    """What a release to come might answer."""

    def do_GET(self) -> None:
        body = b'{"name": "jupyter-edt", "version": "7.0", "limits": {}}'
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing."""


@covers("version", *ASKED)
def test_a_server_of_another_version(world: World, kernel: Kernel, told):
    with ThreadingHTTPServer(("127.0.0.1", 0), _Later) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/"
        told("sdk", "version", kernel.run(f"Client({url!r}, token='x')"))
        told("shell", "version", edt(world, "list", url=url))
        kernel.run(f"import os\nkept = os.environ['EDT_URL']\nos.environ['EDT_URL'] = {url!r}")
        kernel.run("%reload_ext edt_sdk")
        told("magic", "version", kernel.run("%edt_jobs"))
        kernel.run("os.environ['EDT_URL'] = kept")
        kernel.run("%reload_ext edt_sdk")
        server.shutdown()


@covers("far", *ASKED)
def test_the_far_server_is_gone(world: World, kernel: Kernel, told, tmp_path: Path):
    with Near(tmp_path, traits={"EdtApp.remote_url": "http://127.0.0.1:9/far/"}) as near:
        told("sdk", "far", kernel.run(f"Client({near.url!r}, token={near.token!r}).jobs()"))
        told("shell", "far", edt(world, "list", url=near.url, token=near.token))
        kernel.run(f"import os\nos.environ['EDT_URL'], os.environ['EDT_TOKEN'] = {near.url!r}, {near.token!r}")
        kernel.run("%reload_ext edt_sdk")
        told("magic", "far", kernel.run("%edt_jobs"))
