"""Those who look: a process that follows logs and metrics of many jobs, polls the timeline, or times one small request.

A process of its own, so that reading does not slow down what is measured. Reads one JSON object from stdin, says
"ready" when every stream has begun, and goes on until stdin closes; then it prints one JSON object. Plain sockets: a
client library costs more than the server's answer.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import Counter
from typing import Any
from urllib.parse import urlsplit

PROBE_EVERY = 0.02


class Clients:
    """What is asked of the server at `url`, and what came."""

    def __init__(self, url: str, token: str) -> None:
        parts = urlsplit(url)
        self._host, self._port, self._path = parts.hostname, parts.port, parts.path.rstrip("/")
        self._token = token
        self.counts: Counter[str] = Counter()
        self.times: dict[str, list[float]] = {}

    async def follow(self, path: str, what: str, begun: asyncio.Event) -> None:
        """Read a stream of server-sent events to its end; counts `what` and bytes."""
        reader, writer = await asyncio.open_connection(self._host, self._port)
        writer.write(self._request(path))
        try:
            while data := await reader.read(1 << 16):
                begun.set()
                self.counts[what] += data.count(b"\nevent: ") + data.startswith(b"event: ")
                self.counts[f"{what} bytes"] += len(data)
        finally:
            begun.set()
            writer.close()

    async def poll(self, path: str, what: str, every: float) -> None:
        """Ask again and again, at most once in `every` seconds, and take the time of each answer."""
        reader, writer = await asyncio.open_connection(self._host, self._port)
        times = self.times.setdefault(what, [])
        loop = asyncio.get_running_loop()
        due = loop.time()
        try:
            while True:
                await asyncio.sleep(max(0.0, due - loop.time()))
                begun = time.perf_counter()
                writer.write(self._request(path))
                self.counts[f"{what} bytes"] += await _answer(reader)
                times.append(time.perf_counter() - begun)
                # An answer that took longer than that is not made up for: nobody polls faster than he is answered.
                due = max(due + every, loop.time())
        finally:
            writer.close()

    def _request(self, path: str) -> bytes:
        lines = (f"GET {self._path}/{path} HTTP/1.1", f"Host: {self._host}:{self._port}")
        return "\r\n".join((*lines, f"Authorization: token {self._token}", "", "")).encode()


async def _answer(reader: asyncio.StreamReader) -> int:
    """Read one answer; its length."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    if " 200 " not in head.split("\r\n")[0]:
        raise SystemExit(f"answered {head}")
    length = next(int(line.split(":")[1]) for line in head.split("\r\n") if line.startswith("content-length:"))
    await reader.readexactly(length)
    return length


async def _run(orders: dict[str, Any]) -> dict[str, Any]:
    clients = Clients(orders["url"], orders["token"])
    streams = [(path, what, asyncio.Event()) for what, paths in orders.get("follow", {}).items() for path in paths]
    tasks = [asyncio.create_task(clients.follow(path, what, begun)) for path, what, begun in streams]
    tasks += [asyncio.create_task(clients.poll(*each)) for each in orders.get("poll", [])]
    for *_, begun in streams:
        await begun.wait()
    print("ready", flush=True)
    since = time.monotonic()
    clients.counts.clear()
    await asyncio.to_thread(sys.stdin.read)
    seconds = time.monotonic() - since
    for task in tasks:
        if task.done() and not task.cancelled() and task.exception():
            raise SystemExit(f"a client failed: {task.exception()}")
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return {"seconds": seconds, "counts": dict(clients.counts), "times": clients.times}


def main() -> int:
    print(json.dumps(asyncio.run(_run(json.loads(sys.stdin.readline())))), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
