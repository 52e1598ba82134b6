"""Decide which clients may connect to the control channel: ZeroMQ asks this handler about each key (ZAP, RFC 27).

An admitted key connects under the name of its job, which ZeroMQ then attaches to each message of that connection. Any
other key is refused before it can send a byte.
"""

from __future__ import annotations

import asyncio
import logging

import zmq
import zmq.asyncio
from zmq.utils import z85

log = logging.getLogger(__name__)

_ENDPOINT = "inproc://zeromq.zap.01"
_VERSION = b"1.0"


class Gatekeeper:
    """The keys (Z85) and their jobs, for the sockets of a context. Each job has one key."""

    def __init__(self, context: zmq.asyncio.Context) -> None:
        self._context = context
        self._jobs: dict[str, str] = {}
        self._socket: zmq.asyncio.Socket | None = None
        self._task: asyncio.Task[None] | None = None

    def admit(self, job_id: str, public_key: str) -> None:
        """Admit this key for the job, in place of its former key."""
        self.forget(job_id)
        self._jobs[public_key] = job_id

    def forget(self, job_id: str) -> None:
        """Refuse the job's key from now on."""
        self._jobs = {key: job for key, job in self._jobs.items() if job != job_id}

    def knows(self, job_id: str) -> bool:
        """Return whether the job has a key."""
        return job_id in self._jobs.values()

    def start(self) -> None:
        """Start to answer. Call it before any socket of the context listens."""
        self._socket = self._context.socket(zmq.REP)
        self._socket.linger = 0
        self._socket.bind(_ENDPOINT)
        self._task = asyncio.create_task(self._serve(self._socket), name="edt gatekeeper")

    async def stop(self) -> None:
        """Stop answering: no client is admitted any more."""
        if self._task is not None and self._socket is not None:
            self._task.cancel()
            # The task first: its poll of a closed socket may wait on a descriptor that another socket has by then.
            # That race in pyzmq's own handler is why this class exists (decision 007).
            await asyncio.wait({self._task})
            self._socket.close()
            self._task = self._socket = None

    async def _serve(self, socket: zmq.asyncio.Socket) -> None:
        while True:
            version, request, _domain, address, _identity, mechanism, *credentials = await socket.recv_multipart()
            job = ""
            if version == _VERSION and mechanism == b"CURVE" and len(credentials) == 1:
                job = self._jobs.get(z85.encode(credentials[0]).decode("ascii"), "")
            if job:
                answer = [b"200", b"OK", job.encode(), b""]
            else:
                log.warning("unknown key refused, address=%s", address.decode("ascii", "replace"))
                answer = [b"400", b"Unknown key", b"", b""]
            await socket.send_multipart([_VERSION, request, *answer])
