"""A person in front of JupyterLab: a real server under a prefix, Debian's Chromium, nothing that leaves the machine.

The front end is built first if its sources are newer. Without a browser or without what builds it the tests are
skipped, with the reason. Into the folder that `EDT_SCREENSHOTS` names goes what `screen.shot(name)` sees. The server
runs in the environment of the Python that `EDT_LAB_PYTHON` names (`make labs`), with the front end installed there.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

import nbformat
import pytest
import requests
from playwright.sync_api import Browser, Error, Page, Request, ViewportSize, expect, sync_playwright

import hatch_build
from edt_sdk.schemas.errors import Conflict, NotFound
from edt_sdk.testing import LocalServer
from tests import debian
from tests.browser.screen import CLOSE_ALL, PATIENCE, Screen
from tests.waiting import until

BASE = "/u/ann%40example/"
SIZE: ViewportSize = {"width": 1400, "height": 860}
ZONE = "Europe/Berlin"  # of the browser, and of kernels
# Tests run commands by their names, and see when everything is in its place.
EXPOSED = {f"{app}.expose_app_in_browser": True for app in ("LabApp", "JupyterNotebookApp")}
QUIET = (
    "--no-sandbox",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    # No name and no address leads anywhere but to this machine.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)
expect.set_options(timeout=PATIENCE)
# JupyterLab's own question whether it may ask for news lies over what is looked at.
NO_NEWS = {"@jupyterlab/apputils-extension:notification": {"fetchNews": "false", "checkForUpdates": False}}
# Else each load of a page starts Node, to see whether JupyterLab is to be built again: half a second of a processor.
NO_BUILD = {"buildCheck": False, "buildAvailable": False}
NOTIFIED = re.compile(r"^[1-9]\d* notification")
ELSEWHERE = os.environ.get("EDT_LAB_PYTHON")
# Fifteen quick updates of the 200, and then so slow ones that a test has ended before they have.
QUICK_READS = 60
SLOW_READ = """\
        self.reads = getattr(self, "reads", 0) + 1
        pauses = 1 if self.reads <= {quick} else 40
        while pauses and not Path(sys.argv[1]).exists():
            pauses -= 1
            time.sleep(0.02)
"""


@pytest.fixture(scope="session")
def front_end(tmp_path_factory) -> Path:
    """A folder with the front end as it is now; what is built while the tests run does not reach them."""
    folder = tmp_path_factory.mktemp("labextensions")
    if ELSEWHERE:
        return folder
    try:
        hatch_build.copy(folder / hatch_build.NAME)
    except hatch_build.CannotBuild as missing:
        pytest.skip(str(missing))
    return folder


@pytest.fixture(scope="session")
def chromium() -> str:
    """Where the browser is; installed by apt-get where that may be done."""
    return debian.found(
        debian.program("chromium", "chromium-browser", "google-chrome"), "chromium", "fonts-dejavu-core"
    )


@pytest.fixture(autouse=True)
def jp_asyncio_loop() -> None:
    """No loop of pytest-jupyter's: Playwright's own runs in this thread, and the server is another process."""


@pytest.fixture(autouse=True)
def jp_server_cleanup() -> None:
    """Nothing to clean up, for the same reason."""


_T = TypeVar("_T")
_shared = pytest.StashKey[dict[str, object]]()


def share(request: pytest.FixtureRequest, make: Callable[[], AbstractContextManager[_T]], key: str) -> _T:
    """What `make` gives, once for all files of a folder that run one after the other in this process.

    It ends with the last of them, and not with the session: while Playwright's loop runs in this thread, asynchronous
    tests of other folders cannot. `scope="package"` would need packages.
    """
    folder = request.node.parent
    shared = folder.stash.setdefault(_shared, {})
    if key not in shared:
        manager = make()
        shared[key] = manager.__enter__()

        def end() -> None:
            del shared[key]
            manager.__exit__(None, None, None)

        folder.addfinalizer(end)
    return shared[key]


@pytest.fixture(scope="module")
def browser(request: pytest.FixtureRequest, chromium: str, front_end: Path) -> Browser:
    """The browser of a folder's tests."""

    @contextmanager
    def run() -> Iterator[Browser]:
        with sync_playwright() as playwright:
            running = playwright.chromium.launch(executable_path=chromium, args=list(QUIET))
            yield running
            running.close()

    return share(request, run, "browser")


@pytest.fixture(scope="session")
def start_server(front_end: Path, tmp_path_factory) -> Iterator[Callable[..., LocalServer]]:
    """Starts JupyterLab (and Notebook 7 with it) under a prefix, with four slots; all end with the session."""
    servers: list[LocalServer] = []

    def start(root: Path | None = None, **traits: object) -> LocalServer:
        given = {
            "ServerApp.base_url": BASE,
            "EdtApp.threads_per_slot": 1,
            # Nothing here is about them, and each is as much work as a worker.
            "EdtApp.standby_workers": 0,
            "LabApp.extra_labextensions_path": front_end,
            "JupyterNotebookApp.extra_labextensions_path": front_end,
            **EXPOSED,
            **traits,
        }
        server = LocalServer(
            root or tmp_path_factory.mktemp("lab"),
            slots=4,
            traits=given,
            environ={"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1", "TZ": ZONE},
            app="lab",
            python=ELSEWHERE,
        )
        settings = server.root / "config" / "labconfig"
        settings.mkdir(parents=True, exist_ok=True)
        (settings / "default_setting_overrides.json").write_text(json.dumps(NO_NEWS))
        (settings / "page_config.json").write_text(json.dumps(NO_BUILD))
        servers.append(server)
        return server.start()

    yield start
    for server in servers:
        server.stop()  # also one that was killed: its kernels live until then


@pytest.fixture(scope="module")
def server(request: pytest.FixtureRequest, start_server: Callable[..., LocalServer]) -> Iterator[LocalServer]:
    """A server for the tests of one file: each finds it empty, though they share it and the page in front of it."""

    @contextmanager
    def run() -> Iterator[LocalServer]:
        started = start_server()
        yield started
        started.stop()

    running = share(request, run, "server")
    before, plan = set(running.root.iterdir()), running.client().plan().plan
    yield running
    window = request.node.parent.stash[_shared].get("window")
    if isinstance(window, Page):
        leave(Screen(window, running))
    empty(running, before)
    running.client().set_plan(plan)


def leave(screen: Screen) -> None:
    """Close all documents, so that the next file need not load JupyterLab, unless something else would stay."""
    page = screen.page
    lab = page.url.startswith(f"{screen.server.url}lab")
    if lab and page.evaluate("() => document.body.dataset.jpThemeLight === 'false'"):
        screen.theme("Light")
    if not lab or page.get_by_title(NOTIFIED).count() or not page.evaluate(CLOSE_ALL):
        page.goto("about:blank")


def empty(server: LocalServer, kept: set[Path]) -> None:
    """Remove the jobs, the catalogue, the kernels and all files but `kept`."""
    client, headers = server.client(), {"Authorization": f"token {server.token}"}
    for kernel in requests.get(f"{server.url}api/kernels", headers=headers, timeout=120).json():
        requests.delete(f"{server.url}api/kernels/{kernel['id']}", headers=headers, timeout=120)
    client.stop_all()
    until(lambda: all(job.view.state.final for job in client.jobs(limit=1000)), "all jobs have ended")
    for job in client.jobs(limit=1000):
        job.delete()
    for model in client.models():
        client.delete_model(model.name, kind=model.kind)
    for version in client.versions():
        for alias in version.view.aliases:
            version.remove_alias(alias)
        version.delete()
    for dataset in client.datasets():
        client.delete_dataset(dataset.name)
    for path in set(server.root.iterdir()) - kept:
        shutil.rmtree(path) if path.is_dir() else path.unlink()


@pytest.fixture(scope="module")
def window(request: pytest.FixtureRequest, browser: Browser) -> Page:
    """The window of a folder's tests; a request to another machine fails the last of them."""

    @contextmanager
    def opened() -> Iterator[Page]:
        context = browser.new_context(viewport=SIZE, locale="en-GB", timezone_id=ZONE, accept_downloads=True)
        context.set_default_timeout(PATIENCE)
        outside: list[str] = []

        # Listening and not `route`, which would ask this process about each request, and switch the browser's cache
        # off.
        def note(asked: Request) -> None:
            parts = urlsplit(asked.url)
            if parts.scheme in ("http", "https") and parts.hostname != "127.0.0.1":
                outside.append(asked.url)

        context.on("request", note)
        context.grant_permissions(["clipboard-read", "clipboard-write"])
        yield context.new_page()
        context.close()
        assert outside == []

    return share(request, opened, "window")


@pytest.fixture
def page(window: Page) -> Iterator[Page]:
    """The tab, as large and as connected as at first; an error in our code that is not caught fails the test."""
    errors: list[str] = []

    def note(error: Error) -> None:
        errors.append(f"{error.message}\n{error.stack}")

    window.on("pageerror", note)
    yield window
    window.remove_listener("pageerror", note)
    window.unroute_all()
    window.context.set_offline(False)
    window.set_viewport_size(SIZE)
    assert [error for error in errors if "jupyter-edt" in error] == []


@pytest.fixture
def screen(page: Page, server: LocalServer) -> Screen:
    return Screen(page, server)


@pytest.fixture
def write_notebook() -> Callable[..., Path]:
    """Writes a notebook of these cells into a server's folder; outputs are [] or MIME bundles per cell."""

    def write(server: LocalServer, name: str, *cells: str, bundles: list[dict[str, object]] | None = None) -> Path:
        notebook = nbformat.v4.new_notebook()
        notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
        for index, source in enumerate(cells):
            cell = nbformat.v4.new_code_cell(source)
            if bundles and index < len(bundles):
                cell.outputs = [nbformat.v4.new_output("execute_result", data=bundles[index], execution_count=1)]
            notebook.cells.append(cell)
        path = server.root / name
        nbformat.write(notebook, path)
        return path

    return write


@pytest.fixture(scope="session")
def lasting_trainer(slow_trainer: str) -> str:
    """As `slow_trainer`, but it has not ended before it is told to, however long the machine takes for the rest."""
    pause = "        if not Path(sys.argv[1]).exists():\n            time.sleep(0.02)\n"
    assert pause in slow_trainer
    return slow_trainer.replace(pause, SLOW_READ.format(quick=QUICK_READS))


@pytest.fixture(scope="module")
def lasting(server, lasting_trainer, tmp_path_factory):
    """A training that outlasts all tests of a file that only look at it."""
    folder = tmp_path_factory.mktemp("lasting")
    slower = lasting_trainer.replace("else 40", "else 200")
    assert slower != lasting_trainer
    (folder / "train.py").write_text(slower)
    enough = folder / "enough"
    job = server.client().submit(
        folder, main="train.py", name="lasting", max_workers=4, args=[str(enough)], log="batches"
    )
    yield job
    enough.touch()
    with suppress(Conflict):  # just ended
        job.stop()


@pytest.fixture
def submit(server: LocalServer, lasting_trainer: str, tmp_path: Path):
    """Submits a training that goes on until the test ends, or `finish()` is called; its `Job`."""
    stop = tmp_path / "enough"
    jobs = []

    def submit(name: str = "digits", *, max_workers: int = 2, script: str = lasting_trainer, **options: object):
        folder = tmp_path / f"code{len(jobs)}"
        folder.mkdir()
        (folder / "train.py").write_text(script)
        job = server.client().submit(
            folder, main="train.py", name=name, max_workers=max_workers, args=[str(stop)], **options
        )
        jobs.append(job)
        return job

    submit.finish = stop.touch
    yield submit
    stop.touch()
    for job in jobs:
        with suppress(NotFound, Conflict):  # deleted, or just ended
            job.stop()


@pytest.fixture
def idle(server: LocalServer, tmp_path: Path):
    """Submits a job that holds a slot and does nothing, where any job will do; a training is twice the work."""
    jobs = []

    def submit(name: str):
        folder = tmp_path / f"idle{len(jobs)}"
        folder.mkdir()
        (folder / "train.py").write_text("")
        job = server.client().submit(
            folder, command="exec sleep 1000", framework="PyTorch", name=name, max_workers=1, progress=False
        )
        jobs.append(job)
        return job

    yield submit
    for job in jobs:
        with suppress(NotFound, Conflict):  # deleted, or just ended
            job.stop()
