"""A real server of several people, what lies on it, and how it is after it was sent anything at all.

Ann is its admin, bob and eve are users. Ann and bob have a data set, a template, a model, an ended job and a job that
runs. All jobs are plain, so no process imports torch.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import requests

from edt_sdk.testing import LocalServer
from tests.jupyter.conftest import multipart
from tests.packages import SLEEPER, packed
from tests.waiting import LIMIT, until

ROOT = Path(__file__).parents[2]
DLI = "/platform/rest/deeplearning/v1"
WMLA = f"{DLI}/execs?args=--exec-start PyTorch --model-main train.py"
PLAIN = {"framework": "PyTorch", "max_workers": 1}
SCRIPT = b"print('one', flush=True)\nprint('two', flush=True)\n"
# Lines of the log that no request may cause.
_FAULT = re.compile(r"^Traceback \(most recent call last\)|^\[[EC] |Uncaught exception|was never (?:retrieved|awaited)")
_ANOTHER = 30.0  # seconds within which another client is answered, on a machine with much else to do


class World:
    """The server, and requests of its users."""

    def __init__(self, root: Path, *, app: str = "server", **traits: object) -> None:
        self.shared = root / "shared"
        for folder in ("rows", "pictures"):
            (self.shared / folder).mkdir(parents=True)
        (self.shared / "rows" / "rows.csv").write_text("a,b\n" + "".join(f"{n},{n}.5\n" for n in range(50)))
        (self.shared / "pictures" / "1.png").write_bytes(b"\x89PNG")
        (self.shared / "code").mkdir()
        (self.shared / "code" / "main.py").write_bytes(SCRIPT)
        given = {
            "ServerApp.identity_provider_class": "tests.jupyter.users.Tokens",
            "EdtApp.isolation": "same",
            "EdtApp.admins": "ann",
            "EdtApp.threads_per_slot": 1,
            "EdtApp.data_fs": self.shared,
            **traits,
        }
        self.server = LocalServer(
            root / "server", slots=2, app=app, token="ann-secret", traits=given, environ={"PYTHONPATH": str(ROOT)}
        )
        self.session = requests.Session()
        # A server closes a connection after a body that it did not read, and the next request would fail with it.
        self.session.headers["Connection"] = "close"
        self.jobs: list[str] = []
        self.kept: list[str] = []

    def send(self, method: str, path: str, user: str = "ann", **kwargs: Any) -> requests.Response:
        """Send a request; of a stream of events only the beginning is read."""
        headers = {"Authorization": f"token {user}-secret", **(kwargs.pop("headers", None) or {})}
        return self.answered(method, self.server.url.rstrip("/") + path, headers=headers, **kwargs)

    def answered(self, method: str, url: str, **kwargs: Any) -> requests.Response:
        """Send a request as it is."""
        answer = self.session.request(method, url, timeout=LIMIT, stream=True, allow_redirects=False, **kwargs)
        if answer.headers.get("Content-Type", "").startswith("text/event-stream"):
            answer._content, answer._content_consumed = next(answer.iter_content(1 << 16), b""), True  # type: ignore[attr-defined]
            answer.close()
        else:
            answer.content  # noqa: B018
        return answer

    def submit(self, script: bytes, user: str = "ann", **spec: Any) -> str:
        """Submit a plain job; its id."""
        spec = {"name": "plain", "main": "train.py", **PLAIN, **spec}
        body, kind = multipart(("spec", json.dumps(spec).encode()), ("package", packed({"train.py": script})))
        answer = self.send("POST", "/edt/api/jobs", user, data=body, headers={"Content-Type": kind})
        assert answer.status_code == 201, answer.text
        return str(answer.json()["id"])

    def view(self, job: str, user: str = "ann") -> dict[str, Any]:
        """The job as it is now."""
        return self.send("GET", f"/edt/api/jobs/{job}", user).json()

    def ended(self, job: str, user: str = "ann") -> str:
        """The state in which a job ended."""
        final = ("FINISHED", "FAILED", "KILLED", "ERROR")
        return str(until(lambda: (state := self.view(job, user)["state"]) in final and state, "the job's end"))

    def fill(self) -> None:
        """Put there what the users have."""
        for user in ("ann", "bob"):
            job = self.submit(SCRIPT, user)
            assert self.ended(job, user) == "FINISHED"
            self.kept.append(job)
            self.jobs += [job, self.submit(SLEEPER, user)]
            new = [
                ("datasets", {"name": "default", "type": "CSV", "path": "rows"}),
                ("datasets", {"name": "pictures", "path": "pictures"}),
                ("models", {"name": "default", "path": "code", "kind": "template", "framework": "PyTorch"}),
                ("models", {"name": "default", "path": "code", "framework": "PyTorch"}),
            ]
            for kind, entry in new:
                answer = self.send("POST", f"/edt/api/{kind}", user, json=entry)
                assert answer.status_code == 201, answer.text

    def learn(self, answer: requests.Response) -> None:
        """Keep the id of a job that an answer names, for later requests."""
        if answer.status_code in (200, 201) and answer.headers.get("Content-Type", "").startswith("application/json"):
            found = answer.json() if len(answer.content) < 1 << 16 else None
            if isinstance(found, dict) and isinstance(found.get("id"), str) and "state" in found:
                self.jobs.append(found["id"])

    # --- how it is ----------------------------------------------------------------------------------------------------

    def faults(self, begin: int = 0) -> list[str]:
        """What its log has from byte `begin` on that is a fault of the server, each with the lines after it."""
        with self.server.log.open("rb") as log:
            log.seek(begin)
            lines = log.read().decode(errors="replace").splitlines()
        return ["\n".join(lines[at : at + 40]) for at, line in enumerate(lines) if _FAULT.search(line)]

    def log_end(self) -> int:
        """Where its log ends now."""
        return self.server.log.stat().st_size

    def is_well(self) -> None:
        """Another client is answered, in a time that people wait."""
        begin = time.monotonic()
        answer = requests.get(
            f"{self.server.url}edt/api/jobs", headers={"Authorization": "token eve-secret"}, timeout=_ANOTHER
        )
        assert answer.status_code == 200, answer.text
        status = requests.get(
            f"{self.server.url.rstrip('/')}{DLI}/status", headers={"X-Auth-Token": "eve-secret"}, timeout=_ANOTHER
        )
        assert status.json()["status"] == "OK", status.text
        assert time.monotonic() - begin < 2 * _ANOTHER

    def memory(self, line: str = "VmRSS") -> int:
        """Bytes of the server's process: VmRSS now, VmHWM at most since `forget_peak`."""
        text = Path(f"/proc/{self.server.pid}/status").read_text()
        found = re.search(rf"^{line}:\s+(\d+) kB", text, re.MULTILINE)
        assert found is not None
        return int(found[1]) * 1024

    def forget_peak(self) -> int:
        """Begin to measure a peak; what the process has now."""
        Path(f"/proc/{self.server.pid}/clear_refs").write_text("5")
        return self.memory("VmHWM")

    def files(self) -> set[str]:
        """Every file that an upload could leave, relative to the data folder: not those of the first jobs."""
        root = self.server.data_dir
        found = (
            os.path.relpath(os.path.join(place, name), root)
            for folder in ("uploads", "results", "jobs", "catalogue")
            for place, folders, files in os.walk(root / folder)  # which takes it that files go away meanwhile
            for name in (*folders, *files)
        )
        return {path for path in found if not any(job in path for job in self.jobs)}


@contextlib.contextmanager
def running(root: Path, *, app: str = "server", **traits: object) -> Iterator[World]:
    """A server with what its users have on it, ended with all its jobs."""
    world = World(root, app=app, **traits)
    with world.server, world.session:
        world.fill()
        yield world
        world.is_well()
        # Jobs of several users, of which `LocalServer` stops the first one's only.
        for user in ("ann", "bob", "eve"):
            world.send("POST", "/edt/api/jobs/stop", user)


def table(title: str, rows: Mapping[str, object]) -> str:
    """Lines to print."""
    width = max(map(len, rows), default=0)
    return "\n".join([f"\n{title}", *(f"  {name:<{width}}  {value}" for name, value in rows.items())])
