"""Run a real server for tests, demos and benchmarks: one Jupyter Server with the extension, in folders of its own.

`LocalServer` starts it as a process on a free loopback port, with a token, and ends it with every job it left running,
also when the process that started it is killed. Nothing is faked, so what works here works on a user's server. It never
touches the user's own Jupyter folders.
"""

from __future__ import annotations

import os
import random
import secrets
import signal
import socket
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import requests

from edt_sdk.client import Client
from edt_sdk.keeper import LeashedProcess

# Seconds until a start or a stop counts as hung. On a busy machine a start alone has taken one minute.
START_LIMIT = 180.0
STOP_LIMIT = 60.0
# A server that is not ready yet holds a request for a while until it is.
_ANSWER_LIMIT = 30.0
# Grace period of a killed server's supervisors, which end by themselves after their jobs.
_GRACE = 10.0
_TRIES = 5
# Extensions that only "lab" needs. They take a sixth of the time of a start.
_FRONT_ENDS = ("jupyterlab", "jupyter_lsp", "notebook", "notebook_shim")


class LocalServer:
    """A Jupyter Server with the extension, as a context manager.

    Args:
        root: folder for everything it writes (data, runtime, config); made when missing.
        slots: CPU slots it offers.
        traits: further settings, such as `{"EdtApp.threads_per_slot": 1}`, given on its command line. Without
            `"EdtApp.warm_workers"` in them the first job starts cold. `"ServerApp.base_url"` becomes part of `url`.
            With `"ServerApp.certfile"` it speaks https, and its clients must trust that certificate
            (REQUESTS_CA_BUNDLE).
        environ: additional environment variables for the server.
        app: the Jupyter subcommand, "server", "lab" or "edt serve"; the first comes without JupyterLab and Notebook.
        leashed: when this process ends, in whatever way, the server, its kernels and its jobs are killed, and `stop`
            kills what is left of killed servers. False lets them go on.
        python: the interpreter that runs it, of an environment with jupyter-edt (default: this interpreter).
        port: the port that each start tries first (default: any free one). When it is taken, another one is used.
        token: the token of its clients (default: a new one).

    Attributes:
        url: base URL, with a trailing slash.
        data_dir: where the extension keeps jobs.
    """

    def __init__(
        self,
        root: str | Path,
        *,
        slots: int = 4,
        traits: Mapping[str, object] | None = None,
        environ: Mapping[str, str] | None = None,
        app: str = "server",
        leashed: bool = True,
        python: str | Path | None = None,
        port: int = 0,
        token: str = "",
    ) -> None:
        self.root = Path(root).resolve()
        self.slots = slots
        self.app = app
        self.leashed = leashed
        self.python = str(python or sys.executable)
        self.traits = dict(traits or {})
        self.environ = dict(environ or {})
        self.token = token or secrets.token_hex(16)
        self.port = port
        self.data_dir = self.root / "edt"
        self.log = self.root / "server.log"
        self._process: LeashedProcess | None = None
        self._killed: list[LeashedProcess] = []
        self.url = ""

    @property
    def pid(self) -> int:
        """Process id of the running server."""
        if self._process is None:
            raise RuntimeError("The server is not running.")
        return self._process.pid

    @property
    def running(self) -> bool:
        """True from `start` to `stop` or `kill`."""
        return self._process is not None

    def start(self) -> LocalServer:
        """Start the server and wait until it answers. RuntimeError with its log when it does not."""
        self.root.mkdir(parents=True, exist_ok=True)
        for attempt in range(_TRIES):
            begin = self.log.stat().st_size if self.log.exists() else 0
            port = self.port if self.port and not attempt else _free_port()
            self._start(port)
            if self._answers():
                return self
            self.stop(end_jobs=False)
            tail = self.log.read_bytes()[begin:].decode(errors="replace")[-3000:]
            if f"port {port} is not available" not in tail:
                break  # otherwise another process took the port first
        raise RuntimeError(f"The Jupyter Server did not answer at {self.url}. The end of its log:\n{tail}")

    def _start(self, port: int) -> None:
        scheme = "https" if "ServerApp.certfile" in self.traits else "http"
        prefix = str(self.traits.get("ServerApp.base_url", "/")).strip("/")
        self.url = f"{scheme}://127.0.0.1:{port}/{prefix}/" if prefix else f"{scheme}://127.0.0.1:{port}/"
        with self.log.open("ab") as log:
            self._process = LeashedProcess(
                self._command(port), cwd=self._folder(), env=self._environment(), log=log, leashed=self.leashed
            )

    def stop(self, *, end_jobs: bool = True) -> None:
        """End the server, and with `end_jobs` its unfinished jobs first, so that no process is left.

        That includes what is left of servers that `kill` has ended, above all their kernels, also when no server runs
        now.
        """
        process = self._process
        if process is not None:
            self._end(process, end_jobs=end_jobs)
            self._process = None
        if end_jobs and self.leashed:
            self._let_go_of_killed()

    def _end(self, process: LeashedProcess, *, end_jobs: bool) -> None:
        if end_jobs and not process.ended():
            client = self.client()
            client.stop_all()
            self._wait_for_the_last_job(client)
        process.send_signal(signal.SIGTERM)
        if not process.ended(STOP_LIMIT):
            self._kill(process)

    def kill(self) -> None:
        """SIGKILL the server alone, as a crash would end it. Its jobs go on."""
        if self._process is None:
            raise RuntimeError("The server is not running.")
        self._kill(self._process)
        self._process = None

    def _kill(self, process: LeashedProcess) -> None:
        process.send_signal(signal.SIGKILL)
        process.ended(STOP_LIMIT)
        self._killed.append(process)

    def _let_go_of_killed(self) -> None:
        killed, self._killed = self._killed, []
        deadline = time.monotonic() + _GRACE
        for process in killed:
            if not process.all_ended(max(0.0, deadline - time.monotonic())):
                process.let_go(STOP_LIMIT)

    def client(self) -> Client:
        """Return a client of this server."""
        return Client(self.url, token=self.token)

    def __enter__(self) -> LocalServer:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _folder(self) -> Path:
        """Return the folder of notebooks, where terminals start too, as they do with `jupyter lab`."""
        return Path(str(self.traits.get("ServerApp.root_dir", self.root)))

    def _command(self, port: int) -> list[str]:
        options: dict[str, object] = {
            "ServerApp.ip": "127.0.0.1",
            "ServerApp.port": port,
            "ServerApp.port_retries": 0,
            "ServerApp.open_browser": False,
            "ServerApp.root_dir": self.root,
            "EdtApp.data_dir": self.data_dir,
            "EdtApp.local_slots": self.slots,
            # Most tests do not need them, and each costs as much as a job.
            "EdtApp.warm_workers": 0,
            **self.traits,
        }
        if self.app == "server":
            options.setdefault("ServerApp.jpserver_extensions", dict.fromkeys(_FRONT_ENDS, False))
        root_option = ["--allow-root"] if os.geteuid() == 0 else []
        flags = [f"--{name}={value}" for name, value in options.items()]
        return [self.python, "-m", "jupyter", *self.app.split(), *root_option, *flags]

    def _environment(self) -> dict[str, str]:
        own = {
            "JUPYTER_CONFIG_DIR": str(self.root / "config"),
            "JUPYTER_DATA_DIR": str(self.root / "data"),
            "JUPYTER_RUNTIME_DIR": str(self.root / "runtime"),
            "JUPYTER_TOKEN": self.token,
            "IPYTHONDIR": str(self.root / "ipython"),
        }
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(("JUPYTER", "JPY_", "EDT_"))}
        return {**inherited, **own, **self.environ}

    def _answers(self) -> bool:
        """Wait until the server answers. Return False when it ends before or takes too long."""
        deadline = time.monotonic() + START_LIMIT
        while time.monotonic() < deadline:
            if self._process is None or self._process.ended():
                break
            try:
                answer = requests.get(
                    f"{self.url}edt/api/", headers={"Authorization": f"token {self.token}"}, timeout=_ANSWER_LIMIT
                )
                if answer.ok:
                    return True
            except (requests.ConnectionError, requests.Timeout):
                pass
            time.sleep(0.05)
        return False

    @staticmethod
    def _wait_for_the_last_job(client: Client) -> None:
        deadline = time.monotonic() + STOP_LIMIT
        while time.monotonic() < deadline:
            if all(job.view.state.final for job in client.jobs(trials=True)):
                return
            time.sleep(0.05)


def _free_port() -> int:
    """Return a port that is free, and that the system does not hand out for port 0."""
    ephemeral = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        port = random.SystemRandom().randrange(min(10_000, ephemeral // 2), ephemeral)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
