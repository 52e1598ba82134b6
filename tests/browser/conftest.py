"""A person in front of JupyterLab: a real server under a prefix, Debian's Chromium, nothing that leaves the machine.

The front end is built first if its sources are newer. Without a browser or without what builds it the tests are
skipped, with the reason. Into the folder that `EDT_SCREENSHOTS` names goes what `screen.shot(name)` sees.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import nbformat
import pytest
from playwright.sync_api import Browser, BrowserContext, Page, Route, expect, sync_playwright

import hatch_build
from edt_sdk.schemas.errors import Conflict, NotFound
from edt_sdk.testing import LocalServer

ROOT = Path(__file__).parents[2]
BASE = "/u/ann%40example/"
QUIET = (
    "--no-sandbox",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)
PATIENCE = 90_000  # a limit for what hangs, on a machine with much else to do
# What slides or fades in has arrived; what turns for ever is not waited for.
STILL = """() => Promise.all(document.getAnimations()
    .filter(one => one.effect.getComputedTiming().endTime < 2000)
    .map(one => one.finished.catch(() => null)))"""
expect.set_options(timeout=PATIENCE)
# JupyterLab's own question whether it may ask for news lies over what is looked at.
NO_NEWS = {"@jupyterlab/apputils-extension:notification": {"fetchNews": "false", "checkForUpdates": False}}


def pictures_folder() -> Path | None:
    """The folder that EDT_SCREENSHOTS names, relative to the repository; None where no pictures are asked for."""
    named = os.environ.get("EDT_SCREENSHOTS")
    if not named:
        return None
    (ROOT / named).mkdir(parents=True, exist_ok=True)
    return ROOT / named


@pytest.fixture(scope="session")
def front_end(tmp_path_factory) -> Path:
    """A folder with the front end as it is now; what is built while the tests run does not reach them."""
    folder = tmp_path_factory.mktemp("labextensions")
    try:
        hatch_build.copy(folder / hatch_build.NAME)
    except hatch_build.CannotBuild as missing:
        pytest.skip(str(missing))
    return folder


@pytest.fixture(scope="session")
def chromium() -> str:
    """Where the browser is; installed by apt-get where that may be done."""
    names = ("chromium", "chromium-browser", "google-chrome")
    if not any(map(shutil.which, names)) and os.geteuid() == 0 and shutil.which("apt-get"):
        subprocess.run(
            "apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "
            "chromium fonts-dejavu-core",
            shell=True,
            capture_output=True,
            check=False,
        )
    found = next(filter(None, map(shutil.which, names)), None)
    if found is None:
        pytest.skip("There is no Chromium here: apt-get install chromium")
    return found


@pytest.fixture(autouse=True)
def jp_asyncio_loop() -> None:
    """No loop of pytest-jupyter's: Playwright's own runs in this thread, and the server is another process."""


@pytest.fixture(autouse=True)
def jp_server_cleanup() -> None:
    """Nothing to clean up, for the same reason."""


@pytest.fixture(scope="module")
def browser(chromium: str, front_end: Path) -> Iterator[Browser]:
    """Ended with the file: while Playwright's loop runs in this thread, asynchronous tests of other files cannot."""
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=chromium, args=list(QUIET))
        yield running
        running.close()


@pytest.fixture(scope="session")
def start_server(front_end: Path, tmp_path_factory) -> Iterator[Callable[..., LocalServer]]:
    """Starts JupyterLab (and Notebook 7 with it) under a prefix, with four slots; all end with the session."""
    servers: list[LocalServer] = []

    def start(root: Path | None = None, **traits: object) -> LocalServer:
        given = {
            "ServerApp.base_url": BASE,
            "EdtApp.threads_per_slot": 1,
            "LabApp.extra_labextensions_path": front_end,
            "JupyterNotebookApp.extra_labextensions_path": front_end,
            **traits,
        }
        server = LocalServer(
            root or tmp_path_factory.mktemp("lab"),
            slots=4,
            traits=given,
            environ={"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"},
            app="lab",
        )
        settings = server.root / "config" / "labconfig" / "default_setting_overrides.json"
        settings.parent.mkdir(parents=True, exist_ok=True)
        settings.write_text(json.dumps(NO_NEWS))
        servers.append(server)
        return server.start()

    yield start
    for server in servers:
        if server.running:
            server.stop()


@pytest.fixture(scope="module")
def server(start_server) -> Iterator[LocalServer]:
    """A server for the tests of one file."""
    running = start_server()
    yield running
    if running.running:
        running.stop()


class Screen:
    """A browser window at one server."""

    def __init__(self, page: Page, server: LocalServer) -> None:
        self.page = page
        self.server = server

    def open(self, path: str = "lab") -> Page:
        """Open a page of the server (logging in on the way) and wait until Jupyter is there."""
        sign = "&" if "?" in path else "?"
        # Without what an earlier test had open.
        self.page.goto(f"{self.server.url}{path}{sign}reset&token={self.server.token}")
        self.page.wait_for_selector("#jp-main-content-panel, #main-panel, .jp-NotebookPanel", timeout=PATIENCE)
        self.page.wait_for_function("() => !document.querySelector('#jupyterlab-splash')", timeout=PATIENCE)
        if path == "lab":
            self.page.wait_for_selector(".jp-Launcher", timeout=PATIENCE)
        return self.page

    def panel(self) -> None:
        """Show the side panel."""
        if not self.page.locator(".jp-edt-panel").is_visible():
            self.page.get_by_role("tab", name="Elastic training").click()
        self.page.wait_for_selector(".jp-edt-panel", timeout=PATIENCE)

    def palette(self, words: str) -> None:
        """Open the command palette by its keys and type."""
        box = self.page.locator(".lm-CommandPalette-input:visible")
        while not box.count():  # its keys are known some time after the page is there
            self.page.keyboard.press("Control+Shift+C")
            self.page.wait_for_timeout(200)
        box.fill(words)

    def dark(self) -> None:
        """Choose the dark theme as a person does."""
        self.page.get_by_role("menuitem", name="Settings", exact=True).click()
        self.page.get_by_text("Theme", exact=True).hover()
        self.page.get_by_text("JupyterLab Dark", exact=True).click()
        self.page.wait_for_selector("body[data-jp-theme-light=false]", state="attached")

    def shot(self, name: str) -> None:
        """Keep what is to be seen as <name>.png, when that is asked for."""
        assert re.fullmatch(r"[a-z0-9-]+", name), name
        folder = pictures_folder()
        if folder is not None:
            self.page.evaluate(STILL)
            self.page.screenshot(path=folder / f"{name}.png")


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    """A fresh profile that cannot reach anything but this machine; a request to elsewhere fails the test."""
    made = browser.new_context(
        viewport={"width": 1400, "height": 860}, locale="en-GB", timezone_id="Europe/Berlin", accept_downloads=True
    )
    made.set_default_timeout(PATIENCE)
    outside: list[str] = []

    def guard(route: Route) -> None:
        if urlsplit(route.request.url).hostname == "127.0.0.1":
            route.continue_()
        else:
            outside.append(route.request.url)
            route.abort()

    made.route("**/*", guard)
    made.grant_permissions(["clipboard-read", "clipboard-write"])
    yield made
    made.close()
    assert outside == []


@pytest.fixture
def page(context: BrowserContext) -> Iterator[Page]:
    """One tab; an error that nobody caught in our code fails the test."""
    made = context.new_page()
    errors: list[str] = []
    made.on("pageerror", lambda error: errors.append(f"{error.message}\n{error.stack}"))
    yield made
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


@pytest.fixture
def submit(server: LocalServer, slow_trainer: str, tmp_path: Path):
    """Submits a training that goes on until the test ends, or `finish()` is called; its `Job`."""
    stop = tmp_path / "enough"
    jobs = []

    def submit(name: str = "digits", *, max_workers: int = 2, script: str = slow_trainer, **options: object):
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
