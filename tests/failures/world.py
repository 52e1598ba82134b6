"""One server that all these situations happen to, and a kernel in front of it."""

from __future__ import annotations

import os
import re
import sqlite3
import textwrap
from contextlib import closing, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import nbformat
import requests
from nbclient import NotebookClient

from edt_sdk.schemas.job import JobState
from edt_sdk.testing import START_LIMIT, LocalServer
from tests.browser.crowd import add_crowd
from tests.kernels import on_unix_sockets
from tests.waiting import until

CROWD = 10_000
_AUTHORIZER = '''
"""Lets everybody do everything, until the file `denied` lies beside it."""
from pathlib import Path
from jupyter_server.auth import AllowAllAuthorizer

class Gate(AllowAllAuthorizer):
    def is_authorized(self, handler, user, action, resource):
        return not (resource.startswith("edt:") and Path(__file__).with_name("denied").exists())
'''


class World:
    """A server with 10 000 ended jobs, that can be killed, come back at its address, and be made to refuse.

    Args:
        root: folder for all its files.
        app: "server" or "lab".
        traits: further settings.
    """

    def __init__(self, root: Path, *, app: str = "server", traits: dict[str, object] | None = None) -> None:
        root.mkdir(parents=True, exist_ok=True)
        self.root = root
        (root / "gate.py").write_text(_AUTHORIZER)
        given = {"ServerApp.authorizer_class": "gate.Gate", "EdtApp.threads_per_slot": 1, **(traits or {})}
        paths = os.pathsep.join([str(root), *filter(None, [os.environ.get("PYTHONPATH")])])
        environ = {"PYTHONPATH": paths, "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
        self.server = LocalServer(root, slots=4, traits=given, environ=environ, app=app)
        crowd(self.server.data_dir)

    @property
    def url(self) -> str:
        """Its address, the same all the time."""
        return self.server.url

    @classmethod
    def of(cls, server: LocalServer) -> World:
        """A world that is no more than this server."""
        world = cls.__new__(cls)
        world.root, world.server = server.root, server
        return world

    def again(self, *, token: str | None = None, forget: bool = True) -> None:
        """Start it at the address it had, after `kill`; with another token, and unless told so without its logins."""
        if token is not None:
            self.server.token = token
        if token is not None and forget:
            (self.root / "runtime" / "jupyter_cookie_secret").unlink(missing_ok=True)
        self.server._start(urlsplit(self.server.url).port or 0)
        assert answers(self.server), self.server.log.read_text()[-3000:]

    def kill(self) -> None:
        """As a crash would."""
        self.server.kill()

    def deny(self, denied: bool) -> None:
        """Whether its Authorizer says no to everything of ours from now on."""
        gate = self.root / "denied"
        gate.touch() if denied else gate.unlink(missing_ok=True)

    def sleeper(self, name: str = "digits") -> Any:
        """A job that lives until it is stopped, and has no training."""
        folder = self.root / "code" / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "train.py").write_text("")
        client = self.server.client()
        job = client.submit(folder, command="exec sleep 1000", framework="PyTorch", name=name, progress=False)
        until(lambda: job.refresh().view.state is JobState.RUNNING, f"{job} to run")
        return job

    def submit(self, script: str, *args: str, name: str = "digits", **options: Any) -> Any:
        """A job that runs this script."""
        folder = self.root / "code" / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "train.py").write_text(textwrap.dedent(script))
        client = self.server.client()
        return client.submit(folder, main="train.py", name=name, args=list(args), progress=False, **options)


def crowd(data_dir: Path) -> None:
    """Write the jobs into a store: a few as a server does, and copies of these, which takes no time."""
    few = len(add_crowd(data_dir, 10))
    with closing(sqlite3.connect(data_dir / "edt.sqlite")) as store:
        names = [row[1] for row in store.execute("PRAGMA table_info(edt_jobs)")]
        anew = {
            "id": "printf('past-%05d-%06x', n, n)",
            "spec": "json_set(spec, '$.name', printf('past-%05d', n))",
            "created": "created - 60 * n",
            "state_since": "state_since - 60 * n",
            "started": "started - 60 * n",
            "ended": "ended - 60 * n",
        }
        store.execute(
            f"WITH RECURSIVE numbers(n) AS (SELECT {few} UNION ALL SELECT n + 1 FROM numbers WHERE n < {CROWD - 1}) "
            f"INSERT INTO edt_jobs ({', '.join(names)}) SELECT {', '.join(anew.get(name, name) for name in names)} "
            "FROM numbers JOIN (SELECT * FROM edt_jobs ORDER BY created LIMIT 1)"
        )
        store.commit()


class Kernel:
    """A notebook whose cells are run one by one, in a kernel of its own.

    Attributes:
        seen: every bundle that was displayed or updated, in order, while the cells run.
    """

    def __init__(self, folder: Path, environ: dict[str, str]) -> None:
        self.seen: list[dict[str, Any]] = []
        kernel = self

        class Watching(NotebookClient):
            def process_message(self, msg: dict[str, Any], cell: Any, cell_index: int) -> Any:
                if msg["msg_type"] in ("display_data", "update_display_data", "execute_result"):
                    kernel.seen.append(msg["content"]["data"])
                return super().process_message(msg, cell, cell_index)

        where = {"metadata": {"path": str(folder)}}
        self._client = Watching(
            nbformat.v4.new_notebook(), timeout=200, resources=where, allow_errors=True, config=on_unix_sockets()
        )
        self._client.create_kernel_manager()
        self._client.start_new_kernel(env={**os.environ, **environ})
        self._client.start_new_kernel_client()

    def run(self, code: str) -> str:
        """What the cell shows, as a person reads it: its last HTML, text or error. Never a traceback."""
        cell = nbformat.v4.new_code_cell(textwrap.dedent(code))
        self._client.nb.cells.append(cell)
        self._client.execute_cell(cell, len(self._client.nb.cells) - 1)
        shown = [text(output) for output in cell.outputs]
        errors = [text(output) for output in cell.outputs if output.output_type == "error"]
        assert not any("Cell In[" in each for each in errors), errors
        return "\n".join(filter(None, shown))

    def close(self) -> None:
        """End the kernel."""
        self._client._cleanup_kernel()


def answers(server: LocalServer, *, far: bool = False) -> bool:
    """Wait until it has started, whatever it answers then; `far` when another one is asked."""

    def answered() -> bool:
        with suppress(requests.ConnectionError, requests.Timeout):
            told = requests.get(f"{server.url}edt/api/", headers={"Authorization": f"token {server.token}"}, timeout=5)
            return far or told.status_code != 503
        return False

    until(answered, f"an answer of {server.url}", START_LIMIT)
    return True


class Near(LocalServer):
    """A server in client mode, which is there before the one that it asks."""

    def _answers(self) -> bool:
        return answers(self, far=True)

    def stop(self, *, end_jobs: bool = False) -> None:
        """End it; its jobs are another server's."""
        super().stop(end_jobs=False)


def text(output: Any) -> str:
    """An output as text; of HTML what is left without its tags, and what its pictures say."""
    if output.output_type == "stream":
        return str(output.text)
    if output.output_type == "error":
        return re.sub(r"\x1b\[[\d;]*m", "", "\n".join(output.traceback))
    data = output.data
    return of_html(data["text/html"]) if "text/html" in data else str(data.get("text/plain", ""))


_BREAKS = {"br": ["\n"], "p": ["\n"], "tr": ["\n"], "div": ["\n"], "td": [" "], "th": [" "]}


def of_html(html: str) -> str:
    """What a person reads of HTML."""
    from html.parser import HTMLParser

    class Reader(HTMLParser):
        found: list[str]

        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            said = dict(attrs).get("alt")
            self.found += [f"[{said}]"] if tag == "img" and said else _BREAKS.get(tag, [])

        handle_startendtag = handle_starttag

        def handle_data(self, data: str) -> None:
            self.found.append(data)

    reader = Reader()
    reader.found = []
    reader.feed(html)
    return "".join(reader.found)


def short(text: str) -> str:
    """The text with its long rows of one letter shortened: nobody reads a million of them in a table."""
    return re.sub(r"([a-z])\1{40,}", lambda row: f"{row[1] * 3}…{row[1] * 3}", text)
