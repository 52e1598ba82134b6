"""What a request costs beside the model: our edge with one replica, LitServe with one worker, and bare uvicorn.

All three return what they got, over connections that are kept alive. A round of each side is a number of requests one
after the other, for the median and the slowest of a hundred, then 16 clients at once for a while, for the requests a
second. The rounds of the sides alternate, so all of them suffer from the machine alike. The clients are this process,
and share the cores with the servers.

Ours: the real edge, and the replica of the tests (`tests/server/serving/replicas.py`) in a process of its own behind
its Unix socket; neither reads the body. LitServe reads and writes JSON. bare uvicorn has no second process.

LitServe is no dependency: `--litserve PYTHON` names an interpreter, from which an environment with LitServe 0.2.19 is
made in `.bench/serving/` the first time, from PyPI. Without it LitServe is left out, and so are the targets.

Takes about three minutes, `--quick` some seconds. Writes `.bench/serving.json`; exit code 1 when a target is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.report import REPOSITORY, ROOT, finish, table
from benchmarks.server_processes import wait_for
from benchmarks.spread import Spread
from benchmarks.summary import Check
from edt_sdk.schemas.serving.edge_file import EdgeAddress, EdgeDeployment, EdgeFile, Target
from edt_server.system.private_files import write_private

LITSERVE = "litserve==0.2.19"
CLIENTS = 16
BODY = b'{"inputs": [[1.0, 2.0, 3.0, 4.0]]}'
SLOWER, FASTER, TAIL = 0.7, 2.0, 5.0
START_LIMIT = 180.0
HERE = Path(__file__).parent


@dataclass
class Side:
    """A server, and what was measured of it."""

    name: str
    port: int
    path: str
    body: bytes = BODY
    headers: str = ""
    times: list[float] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)

    @property
    def request(self) -> bytes:
        """The bytes of a request."""
        head = f"POST {self.path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n{self.headers}"
        return f"{head}Content-Length: {len(self.body)}\r\n\r\n".encode() + self.body

    def answers(self) -> bool:
        """Whether it answers a request."""
        address = ("127.0.0.1", self.port)
        with contextlib.suppress(OSError), socket.create_connection(address, timeout=10) as connection:
            connection.sendall(self.request)
            return b" 200 " in connection.recv(16)
        return False

    def latency(self, number: int) -> None:
        """Send requests one after the other."""
        with socket.create_connection(("127.0.0.1", self.port)) as connection, connection.makefile("rb") as answers:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            request = self.request
            for _ in range(number):
                begun = time.perf_counter()
                connection.sendall(request)
                _read(answers)
                self.times.append(time.perf_counter() - begun)

    async def throughput(self, seconds: float, clients: int = CLIENTS) -> None:
        """Send requests from all clients at once, each of which waits for its answer."""
        begun = time.perf_counter()
        counts = await asyncio.gather(*(self._client(begun + seconds) for _ in range(clients)))
        self.rates.append(sum(counts) / (time.perf_counter() - begun))

    async def _client(self, until: float) -> int:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        count, request = 0, self.request
        while time.perf_counter() < until:
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            await reader.readexactly(_length(head))
            count += 1
        writer.close()
        return count


def _read(answers: Any) -> None:
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        head += answers.readline()
    answers.read(_length(head))


def _length(head: bytes) -> int:
    if b" 200 " not in head[:16]:
        raise SystemExit(f"answered {head.decode()}")
    return next(int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length"))


@contextlib.contextmanager
def running(*command: str | Path) -> Iterator[None]:
    """Run a program during the block."""
    process = subprocess.Popen([str(each) for each in command], cwd=REPOSITORY, start_new_session=True)
    try:
        yield
    finally:
        process.terminate()
        process.wait()
        # LitServe leaves processes behind.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


@contextlib.contextmanager
def our_edge() -> Iterator[Side]:
    """Run the edge and one replica."""
    with tempfile.TemporaryDirectory(prefix="edge-") as name:
        folder = Path(name)
        target = Target(job="job", revision=1, version="identity/1", socket=str(folder / "serve.sock"))
        deployment = EdgeDeployment(name="identity", targets=(target,), public=True)
        write_private(folder / "edge.json", msgspec.json.encode(EdgeFile(deployments=(deployment,))))
        address = folder / "edge-address.json"
        replica = REPOSITORY / "tests" / "server" / "serving" / "replicas.py"
        with (
            running(sys.executable, "-m", "edt_server.serving", folder / "edge.json", "127.0.0.1", "0"),
            running(sys.executable, replica, target.socket),
        ):
            wait_for(address.exists, "the edge", START_LIMIT, 0.05)
            port = msgspec.json.decode(address.read_bytes(), type=EdgeAddress).port
            yield Side("our edge", port, "/predict/identity")


@contextlib.contextmanager
def other(name: str, python: str | Path, program: Path, path: str, *arguments: str) -> Iterator[Side]:
    """Run one of the other servers."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with running(python, program, str(port), *arguments):
        yield Side(name, port, path)


def litserve(python: str) -> Path:
    """Return the interpreter of an environment with LitServe, which is made the first time. It has torch from here."""
    folder = ROOT / "serving" / "litserve"
    if not (folder / "installed").exists():
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([python, "-m", "venv", str(folder)], check=True)
        subprocess.run([str(folder / "bin" / "pip"), "install", "-q", LITSERVE], check=True)
        (site,) = folder.glob("lib/python*/site-packages")
        (site / "torch.pth").write_text(sysconfig.get_path("purelib"))
        (folder / "installed").touch()
    return folder / "bin" / "python"


def measure(sides: Sequence[Side], rounds: int, number: int, seconds: float) -> None:
    """Measure all sides by turns."""
    for side in sides:
        wait_for(side.answers, side.name, START_LIMIT, 0.1)
        side.latency(number // 10)
        side.times.clear()
    for _ in range(rounds):
        for side in sides:
            side.latency(number)
            asyncio.run(side.throughput(seconds))


def report(sides: Sequence[Side]) -> tuple[dict[str, Any], list[Check]]:
    """Print the table and the ratios. Return the figures and the checks."""
    spreads = {side.name: Spread.of(side.times) for side in sides}
    rates = {side.name: statistics.median(side.rates) for side in sides}
    rows = [["", "p50", "p99", f"requests/s, {CLIENTS} clients", "p50 of ours to it", "requests/s of ours to it"]]
    ours = sides[0].name
    for name, spread in spreads.items():
        rows.append([
            name,
            f"{spread.median * 1e3:.2f} ms",
            f"{spread.p99 * 1e3:.2f} ms",
            f"{rates[name]:,.0f}",
            f"{spreads[ours].median / spread.median:.2f}",
            f"{rates[ours] / rates[name]:.2f}",
        ])  # fmt: skip
    print(table(rows))
    checks = [Check("our p99 to our p50", spreads[ours].p99 / spreads[ours].median, TAIL, "at most")]
    if "LitServe" in spreads:
        checks += [
            Check("our p50 to LitServe's", spreads[ours].median / spreads["LitServe"].median, SLOWER, "at most"),
            Check("our requests/s to LitServe's", rates[ours] / rates["LitServe"], FASTER, "at least"),
        ]
    figures = {
        side.name: {"p50": spreads[side.name].median, "p99": spreads[side.name].p99, "rates": side.rates}
        for side in sides
    }
    return figures, checks


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--litserve", metavar="PYTHON", help="compare with LitServe, in an environment of this Python")
    parser.add_argument("--rounds", type=int, default=8, help="of each side (default 8)")
    parser.add_argument("--number", type=int, default=2000, help="requests one after the other (default 2000)")
    parser.add_argument("--seconds", type=float, default=3.0, help="with 16 clients, a round (default 3)")
    parser.add_argument("--quick", action="store_true", help="one short round")
    options = parser.parse_args()
    size = (1, 50, 0.5) if options.quick else (options.rounds, options.number, options.seconds)
    with contextlib.ExitStack() as stack:
        sides = [
            stack.enter_context(our_edge()),
            stack.enter_context(other("bare uvicorn", sys.executable, HERE / "identity_uvicorn.py", "/")),
        ]
        if options.litserve:
            python = litserve(options.litserve)
            sides.append(stack.enter_context(other("LitServe", python, HERE / "identity_litserve.py", "/predict")))
        measure(sides, *size)
    figures, checks = report(sides)
    return finish("serving", {"sides": figures}, checks)


if __name__ == "__main__":
    sys.exit(main())
