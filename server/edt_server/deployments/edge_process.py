"""Start the edge, tell it what it has to know, and ask what it has counted.

The edge is detached as supervisors are: it answers while no server runs. A new server finds it by its address file.
"""

from __future__ import annotations

import asyncio
import hashlib
import http.client
import logging
import secrets
import signal
import subprocess
import threading
import urllib.request
from collections.abc import Mapping
from pathlib import Path

import msgspec

from edt_sdk.schemas.serving.edge_file import EdgeAddress, EdgeDeployment, EdgeFile, EdgeState
from edt_server.system.detached import start_detached
from edt_server.system.private_files import write_private
from edt_server.system.processes import is_alive, send_signal

log = logging.getLogger(__name__)
INNER_HEADER = "X-EDT-Inner"
_FILE, _ADDRESS, _KEY, _LOG = "edge.json", "edge-address.json", "edge.key", "edge.log"
_PATIENCE = 2.0  # seconds for an answer of the edge about itself
# The edge is on this machine, whatever proxy the environment names.
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class EdgeProcess:
    """The edge of a data folder. `host` and `port` are where it listens, 0 for the port it had or a free one."""

    def __init__(self, folder: Path, environ: Mapping[str, str], host: str, port: int) -> None:
        self._folder = folder
        self._environ = environ
        self._process: subprocess.Popen[bytes] | None = None
        self._host, self._port = host, port
        self._written: EdgeFile | None = None
        self._inner = ""

    @property
    def inner(self) -> str:
        """The key by which the server calls every deployment. Made once, kept in a file of this account. Blocks."""
        if not self._inner:
            file = self._folder / _KEY
            if not file.exists():
                write_private(file, secrets.token_urlsafe(32).encode())
            self._inner = file.read_text()
        return self._inner

    @property
    def address(self) -> EdgeAddress | None:
        """Where the edge listens, None while it does not run. Blocks for a moment."""
        found = self._last()
        return found if found is not None and is_alive(found.identity) else None

    def tell(self, deployments: tuple[EdgeDeployment, ...]) -> int:
        """Write what the edge has to know, where that has changed. Return the number of the newest file. Blocks."""
        last = self._written or self._read_file()
        sha = hashlib.sha256(self.inner.encode()).hexdigest()
        file = EdgeFile(deployments=deployments, inner_sha256=sha, number=last.number)
        if file != last:
            file = msgspec.structs.replace(file, number=last.number + 1)
            write_private(self._folder / _FILE, msgspec.json.encode(file))
        self._written = file
        return file.number

    def ensure(self) -> None:
        """Start the edge unless it runs or is about to. Blocks for a moment."""
        if (self._process is not None and self._process.poll() is None) or self.address is not None:
            return
        last = self._last()
        port = self._port or (0 if last is None else last.port)
        arguments = [str(self._folder / _FILE), self._host, str(port)]
        self._process = start_detached(
            "edt_server.serving",
            arguments,
            folder=self._folder,
            log=self._folder / _LOG,
            environ=self._environ,
        )
        # It must be reaped when it ends, and outlives this object.
        threading.Thread(target=self._process.wait, name="reap the edge", daemon=True).start()
        log.info("the edge was started, pid=%d", self._process.pid)

    def end(self) -> None:
        """End the edge, if it runs. Blocks for a moment."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait()  # within seconds
            self._process = None
        elif (address := self.address) is not None:
            send_signal(address.identity, signal.SIGTERM)

    async def state(self) -> EdgeState | None:
        """Return what the edge has counted, None when it does not answer."""
        return await asyncio.to_thread(self._ask)

    def _ask(self) -> EdgeState | None:
        address = self.address
        if address is None:
            return None
        request = urllib.request.Request(f"{address.url}/edt/state", headers={INNER_HEADER: self.inner})
        try:
            with _DIRECT.open(request, timeout=_PATIENCE) as answer:
                return msgspec.json.decode(answer.read(), type=EdgeState, strict=False)
        except (OSError, http.client.HTTPException, msgspec.DecodeError):
            return None

    def _read_file(self) -> EdgeFile:
        try:
            return msgspec.json.decode((self._folder / _FILE).read_bytes(), type=EdgeFile)
        except (OSError, msgspec.DecodeError):
            return EdgeFile()

    def _last(self) -> EdgeAddress | None:
        try:
            return msgspec.json.decode((self._folder / _ADDRESS).read_bytes(), type=EdgeAddress)
        except (OSError, msgspec.DecodeError):
            return None
