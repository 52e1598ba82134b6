"""Runs a notebook in a kernel that a Jupyter Server started, and shows its text as it appears.

The kernel is the server's child, as when a person opens the notebook: it is started and ended through the server's REST
interface, and only its messages travel directly. So `JPY_PARENT_PID` is set in it, and `Client()` finds its server.
"""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path

import nbformat
import requests
from jupyter_client.asynchronous.client import AsyncKernelClient
from jupyter_client.channels import HBChannel
from nbclient import NotebookClient

from edt_sdk.testing import LocalServer

FILE_INTERVAL = 10.0  # seconds between two states of a redrawn line where the output is no terminal


class PatientHeartbeat(HBChannel):
    """Jupyter takes a kernel for dead that is silent for one second; a busy machine takes longer to start one."""

    time_to_dead = 30.0


class ServerKernel:
    """What nbclient needs of a kernel manager, over `/api/kernels` of a server on this machine."""

    def __init__(self, server: LocalServer) -> None:
        self._kernels = f"{server.url}api/kernels"
        self._session = requests.Session()
        self._session.headers["Authorization"] = f"token {server.token}"
        self._runtime = server.root / "runtime"
        self.kernel_id = ""

    @property
    def has_kernel(self) -> bool:
        return bool(self.kernel_id)

    def start_kernel(self, **_: object) -> None:
        answer = self._session.post(self._kernels, json={"name": "python3", "path": ""}, timeout=60)
        answer.raise_for_status()
        self.kernel_id = answer.json()["id"]

    def client(self) -> AsyncKernelClient:
        connection_file = str(self._runtime / f"kernel-{self.kernel_id}.json")
        client = AsyncKernelClient(connection_file=connection_file, hb_channel_class=PatientHeartbeat)
        client.load_connection_file()
        return client

    def is_alive(self) -> bool:
        return self.has_kernel and self._session.get(f"{self._kernels}/{self.kernel_id}", timeout=60).ok

    def interrupt_kernel(self) -> None:
        self._session.post(f"{self._kernels}/{self.kernel_id}/interrupt", timeout=60).raise_for_status()

    def shutdown_kernel(self, now: bool = False) -> None:
        self._session.delete(f"{self._kernels}/{self.kernel_id}", timeout=60).raise_for_status()
        self.kernel_id = ""

    def cleanup_resources(self) -> None:
        """The server does that."""


class Screen:
    """Prints what a cell prints; of a line that is redrawn, a terminal shows the newest state and a file a few."""

    def __init__(self) -> None:
        self._live = sys.stdout.isatty()
        self._quiet_until = 0.0

    def show(self, text: str) -> None:
        plain, *redrawn = text.split("\r")
        print(plain, end="")
        for line in redrawn:
            state, newline, after = line.partition("\n")
            self._redraw(state.rstrip())
            print(newline if self._live else "", after, sep="", end="")
        sys.stdout.flush()

    def _redraw(self, state: str) -> None:
        if self._live:
            print(f"\r{state[: shutil.get_terminal_size().columns - 1]}\x1b[K", end="")
        elif time.monotonic() >= self._quiet_until:
            print(state)
            self._quiet_until = time.monotonic() + FILE_INTERVAL


class LiveNotebook(NotebookClient):
    """Prints the heading above each cell and whatever text the cell shows, at once."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.screen = Screen()

    def process_message(self, msg, cell, cell_index):
        content = msg["content"]
        match msg["msg_type"]:
            case "stream":
                self.screen.show(content["text"])
            case "display_data" | "execute_result":
                self.screen.show(content["data"].get("text/plain", "") + "\n")
        return super().process_message(msg, cell, cell_index)

    async def async_execute_cell(self, cell, cell_index, execution_count=None, store_history=True):
        if cell.cell_type == "markdown":
            for line in cell.source.splitlines():
                if line.startswith("#"):
                    self.screen.show(f"\n━━ {line.lstrip('# ')}\n")
        return await super().async_execute_cell(cell, cell_index, execution_count, store_history)


def run_notebook(server: LocalServer, path: Path, *, limit: int) -> None:
    """Execute `path` in place in a kernel of `server`, `limit` seconds a cell; CellExecutionError when one raises."""
    notebook = nbformat.read(path, as_version=4)
    kernel = ServerKernel(server)
    try:
        LiveNotebook(notebook, km=kernel, timeout=limit).execute()
    finally:
        nbformat.write(notebook, path)
        if kernel.has_kernel:
            kernel.shutdown_kernel()
