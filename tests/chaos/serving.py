"""`make chaos-serving`: a deployment answers rightly whatever is killed, stopped or replaced while it is asked.

    python -m tests.chaos.serving --seed 7 --only replicas edge

Callers ask without a pause, each request with a text of its own, and know what the version that answered makes of it.
So a wrong answer, one that another request should have had, and one that is missing are seen at once. Only where the
edge itself is killed may connections break. Exit code 1 with the first difference.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import http.client
import json
import random
import shutil
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil

from edt_sdk import Client, Deployment, Version
from edt_sdk.schemas.serving.deployments import DeploymentState
from edt_sdk.testing import LocalServer
from tests.chaos import processes
from tests.packages import WRITES_WEIGHTS
from tests.waiting import until

ROOT = Path(__file__).resolve().parents[2] / ".chaos" / "serving"
SLOTS, REPLICAS, CALLERS = 4, 3, 8
PREDICTOR = """
import hashlib
from pathlib import Path

class Predictor:
    def __init__(self, model_dir, params):
        (weights,) = Path(model_dir).glob("*.pth")
        self.word = weights.read_text()

    def predict(self, inputs):
        return [hashlib.sha256(f"{self.word} {each}".encode()).hexdigest() for each in inputs]
"""
WORDS = {"1": "hello", "2": "goodbye"}  # what the weights of a version say, by its number
# Python lets go of memory late, and the counters of a first minute are not there before.
WARM, MOST_GROWTH = 0.25, 1.05


@dataclass(frozen=True, slots=True)
class Size:
    """How much is done."""

    seconds: float = 120.0  # of kills of replicas
    every: float = 2.0  # seconds between two of them
    kills: int = 20  # of the server, and of the edge
    updates: int = 20
    addresses: int = 1000  # callers of a canary, with ten requests each
    soak: float = 1800.0
    spare: int = 0  # bytes by which memory may grow besides: in seconds Python takes a megabyte, and the edge has seven


WHOLE = Size()
QUICK = Size(seconds=10.0, kills=2, updates=2, addresses=200, soak=20.0, spare=2 << 20)


@dataclass(slots=True)
class Asking:
    """What callers were answered.

    Attributes:
        times: seconds of each right answer.
        versions: how many answers each version has given.
        cut: requests whose connection broke.
        wrong: everything else, in a few words.
    """

    times: list[float] = field(default_factory=list)
    versions: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    cut: int = 0
    wrong: list[str] = field(default_factory=list)

    def ask(self, connection: http.client.HTTPConnection, path: str, text: str) -> str:
        """Ask for one text, and return the number of the version that has answered, "" for none."""
        begun = time.monotonic()
        try:
            connection.request("POST", path, json.dumps({"inputs": [text]}), {"Content-Type": "application/json"})
            answer = connection.getresponse()
            body = answer.read()
        except (OSError, http.client.HTTPException):
            connection.close()
            self.cut += 1
            return ""
        number = answer.headers.get("X-EDT-Version", "/").rpartition("/")[2]
        right = hashlib.sha256(f"{WORDS.get(number)} {text}".encode()).hexdigest()
        if answer.status != 200 or json.loads(body)["outputs"] != [right]:
            self.wrong.append(f"{text}: {answer.status} {body.decode()!r:.200} of version {number!r}")
            return ""
        self.times.append(time.monotonic() - begun)
        self.versions[number] += 1
        return number

    def told(self) -> str:
        """Return the figures in a few words."""
        times = sorted(self.times)
        p50, p99 = (times[int(len(times) * share)] for share in (0.5, 0.99))
        return f"{len(times)} answers, p50 {p50 * 1e3:.1f} ms, p99 {p99 * 1e3:.0f} ms, longest {times[-1]:.2f} s"

    def check(self, *, cut: bool = False) -> None:
        """Raise AssertionError unless every request was answered rightly. With `cut` connections may have broken."""
        assert not self.wrong, self.wrong[0]
        assert cut or not self.cut, f"{self.cut} connections have broken"
        assert self.times, "nothing was answered, so this proves nothing"


class Callers:
    """Clients that ask, `rate` times a second all together, from `with` to its end."""

    def __init__(self, url: str, rate: float = 100.0) -> None:
        self.asked = Asking()
        self._url, self._pause = urlsplit(url), CALLERS / rate
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._work, args=(n,), name=f"caller {n}") for n in range(CALLERS)]

    def __enter__(self) -> Asking:
        for thread in self._threads:
            thread.start()
        return self.asked

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _work(self, number: int) -> None:
        connection = http.client.HTTPConnection(self._url.netloc, timeout=60)
        due, count = time.monotonic(), 0
        while not self._over.is_set():
            self.asked.ask(connection, self._url.path, f"{number}-{count}")
            count += 1
            due = max(due + self._pause, time.monotonic())
            self._over.wait(due - time.monotonic())
        connection.close()


@dataclass(slots=True)
class World:
    """A server with two versions of a model, of which the first one is deployed."""

    server: LocalServer
    client: Client
    size: Size
    dice: random.Random
    made: Deployment

    @property
    def edge(self) -> psutil.Process:
        """The process that answers: the child of the one that keeps its port."""
        (address,) = self.server.data_dir.glob("**/edge-address.json")
        (edge,) = psutil.Process(json.loads(address.read_bytes())["identity"]["pid"]).children()
        return edge


def world(root: Path, size: Size, dice: random.Random, server: LocalServer) -> World:
    """Train two versions, and deploy the first one."""
    folder = root / "code"
    folder.mkdir()
    (folder / "train.py").write_bytes(WRITES_WEIGHTS)
    (folder / "predictor.py").write_text(PREDICTOR)
    client = server.client()
    versions: list[Version] = []
    for word in WORDS.values():
        job = client.submit(folder, main="train.py", args=[word], framework="PyTorch", progress=False)
        versions.append(client.register(job.wait(300, progress=False), "greeter"))
    made = client.deploy(versions[0], replicas=REPLICAS, public=True).wait_ready(300)
    until(lambda: made.refresh().view.ready == REPLICAS, "all replicas")
    return World(server, client, size, dice, made)


def replicas(of: World) -> None:
    """Kill a random replica again and again."""
    killed = 0
    with Callers(of.made.url) as asked:
        until_then = time.monotonic() + of.size.seconds
        while time.monotonic() < until_then:
            time.sleep(of.size.every)
            running = processes.of_job(of.server.data_dir / "jobs" / of.made.job.id).workers
            killed += bool(running) and processes.hit(of.dice.choice(running), processes.signal.SIGKILL)
    asked.check()
    print(f"  {killed} replicas killed: {asked.told()}")
    until(lambda: of.made.refresh().view.ready == REPLICAS, "all replicas again")


def server(of: World) -> None:
    """Kill the Jupyter Server again and again. The edge and the replicas answer on."""
    slowest = 0.0
    with Callers(of.made.url) as asked:
        for _ in range(of.size.kills):
            of.server.kill()
            of.server.start()
            of.client, begun = of.server.client(), time.monotonic()
            until(lambda: _managed(of.client.deployment(of.made.name)), "the deployment to be managed again")
            slowest = max(slowest, time.monotonic() - begun)
    of.made = of.client.deployment(of.made.name)
    asked.check()
    print(f"  {of.size.kills} kills: {asked.told()}; managed at most {slowest:.1f} s after the server's first answer")


def _managed(made: Deployment) -> bool:
    return made.state is DeploymentState.READY and made.view.ready == REPLICAS


def edge(of: World) -> None:
    """Kill the edge again and again. The next one has its port, and no answer is wrong."""
    slowest, url = 0.0, urlsplit(of.made.url)
    with Callers(of.made.url) as asked:
        for number in range(of.size.kills):
            time.sleep(of.dice.uniform(0.2, 1.5))
            of.edge.kill()
            begun = time.monotonic()
            alone = Asking()

            def answered(alone: Asking = alone, number: int = number) -> str:
                # A connection of its own: that of a caller may have been cut.
                with contextlib.closing(http.client.HTTPConnection(url.netloc)) as connection:
                    return alone.ask(connection, url.path, f"kill {number}")

            until(answered, "an answer")
            assert not alone.wrong, alone.wrong[0]
            slowest = max(slowest, time.monotonic() - begun)
    asked.check(cut=True)
    print(f"  {of.size.kills} kills: {asked.told()}, {asked.cut} cut; answers again after at most {slowest:.2f} s")


def updates(of: World) -> None:
    """Let each version take over from the other one again and again."""
    with Callers(of.made.url) as asked:
        for number in range(of.size.updates):
            wanted = "21"[number % 2]
            of.made.update(int(wanted))
            until(lambda: _took_over(of.made.refresh(), f"greeter/{wanted}"), f"greeter/{wanted} to take over")  # noqa: B023
    asked.check()
    assert set(asked.versions) == set(WORDS), asked.versions
    print(f"  {of.size.updates} updates: {asked.told()}")


def _took_over(made: Deployment, version: str) -> bool:
    return made.view.version == version and made.view.ready == REPLICAS


def canary(of: World) -> None:
    """Let the other version answer a tenth of the callers, each of which has an address of its own."""
    other = next(number for number in WORDS if f"greeter/{number}" != of.made.refresh().view.version)
    of.made.scale(1, 1)
    of.made.update(int(other), canary=10)
    url = urlsplit(of.made.url)

    def side(asked: Asking, number: int) -> tuple[str, str]:
        """Ask from the address of a number. Return the address and the version."""
        high, low = divmod(number % of.size.addresses, 250)
        source = f"127.1.{high}.{low + 1}"
        connection = http.client.HTTPConnection(url.netloc, timeout=60, source_address=(source, 0))
        with contextlib.closing(connection):
            return source, asked.ask(connection, url.path, str(number))

    until(lambda: other in {side(Asking(), number)[1] for number in range(100)}, "an answer of the canary")
    asked, sides = Asking(), defaultdict(set)
    for number in range(10 * of.size.addresses):
        source, version = side(asked, number)
        sides[source].add(version)
    asked.check()
    assert all(len(each) == 1 for each in sides.values()), "an address has changed sides"
    share = asked.versions[other] / len(asked.times)
    assert 0.07 <= share <= 0.13, f"{share:.1%} of the requests went to the canary"
    of.made.rollback()
    of.made.scale(REPLICAS, REPLICAS)
    until(lambda: of.made.refresh().view.ready == REPLICAS, "all replicas again")
    print(f"  {len(asked.times)} requests of {of.size.addresses} addresses: {share:.1%} by the canary, none by both")


def soak(of: World) -> None:
    """Ask for a long time, and compare memory and open files."""
    watched = {"server": psutil.Process(of.server.pid), "edge": of.edge}
    with Callers(of.made.url) as asked:
        time.sleep(WARM * of.size.soak)
        before = {name: _used(process) for name, process in watched.items()}
        time.sleep((1 - WARM) * of.size.soak)
        after = {name: _used(process) for name, process in watched.items()}
    asked.check()
    for name in watched:
        (memory, files), (later, open_later) = before[name], after[name]
        print(f"  {name}: memory {memory / 1e6:.1f} → {later / 1e6:.1f} MB, files {files} → {open_later}")
        assert later <= memory * MOST_GROWTH + of.size.spare, f"the memory of the {name} grows"
        assert open_later <= files + CALLERS, f"the {name} leaves files open"
    print(f"  {of.size.soak:.0f} s: {asked.told()}")


def _used(process: psutil.Process) -> tuple[int, int]:
    """Return the bytes of memory that only this process has, and the number of its open files."""
    return process.memory_full_info().uss, process.num_fds()


PARTS: dict[str, Callable[[World], None]] = {
    each.__name__: each for each in (replicas, server, edge, updates, canary, soak)
}


def run(root: Path, size: Size, only: Sequence[str], seed: int) -> None:
    """Do these parts, one after the other, with one deployment. AssertionError with the first difference."""
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    with LocalServer(root / "server", slots=SLOTS, traits={"EdtApp.threads_per_slot": 1}) as local:
        of = world(root, size, random.Random(seed), local)
        for name in only:
            print(name, flush=True)
            PARTS[name](of)
        of.made.delete()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="seconds in place of minutes")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), help="only these parts")
    parser.add_argument("--soak", type=float, metavar="S", help=f"seconds of the last part (default {WHOLE.soak:.0f})")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6), help="default: a new one")
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    size = QUICK if options.quick else WHOLE
    changes: dict[str, Any] = {} if options.soak is None else {"soak": options.soak}
    begun = time.monotonic()
    run(ROOT, replace(size, **changes), options.only, options.seed)
    print(f"every request was answered rightly: {time.monotonic() - begun:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
