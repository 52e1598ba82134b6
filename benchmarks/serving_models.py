"""What deployments of real models do on a real server: batches, replicas, the way through Jupyter Server, and starts.

- A small transformer asked by 32 clients at once: a deployment that computes requests together (up to 32 rows), one
  that does not, and LitServe with the same limits. The rounds of the three alternate.
- A convolutional net on two replicas and on one, asked by 16 clients.
- The same request through Jupyter Server and past it, one after the other, and what Jupyter Server itself needs to
  answer somebody else while 200 requests a second pass through it.
- The time from `client.deploy` to the first answer, from zero replicas to the first answer, and until a deployment
  with more load than two replicas can take has three. It waits in place of computing, so that cores do not decide.

`--litserve PYTHON` as in `serving.py`. Takes some minutes, `--quick` one. Writes `.bench/serving_models.json`; exit
code 1 when a target is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import shutil
import statistics
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import requests

from benchmarks.report import ROOT, finish, table
from benchmarks.server_processes import wait_for
from benchmarks.serving import START_LIMIT, Side, litserve, other
from benchmarks.spread import Spread
from benchmarks.summary import Check
from edt_sdk import Client, Deployment, Version
from edt_sdk.schemas.serving.deployments import DeploymentState
from edt_sdk.testing import LocalServer

CODE = Path(__file__).with_name("served")
SLOTS, ROWS, MANY, SOME = 4, 32, 32, 16
PASSING = 200  # requests a second through Jupyter Server
BATCHING, TO_LITSERVE, TWO, THROUGH, JUPYTER = 2.5, 1.3, 1.7, 0.003, 0.050
WARM, ZERO, GROWN = 1.0, 1.0, 2.0


@contextlib.contextmanager
def deployed(client: Client, version: Version, name: str, **settings: Any) -> Iterator[Deployment]:
    """Deploy a version during the block."""
    made = client.deploy(version, name=name, public=True, **settings).wait_ready(300)
    least = made.view.replicas[0]
    wait_for(lambda: made.refresh().view.ready >= least, f"{least} replicas of {name}", START_LIMIT, 0.1)
    try:
        yield made
    finally:
        job = made.job
        made.delete()
        # Its slots are wanted by what is measured next.
        wait_for(lambda: job.refresh().state.final, "free slots", START_LIMIT, 0.1)


def free(client: Client) -> bool:
    """Return whether no job has a slot."""
    return not any(slot["job"] for slot in client.cluster()["slots"])


def side(made: Deployment, version: Version) -> Side:
    """Return a deployment as something to ask, with the example of its version."""
    url = urlsplit(made.url)
    assert url.port is not None
    return Side(made.name, url.port, url.path, json.dumps({"inputs": version.example()}).encode())


def rates(sides: Sequence[Side], rounds: int, seconds: float, clients: int) -> dict[str, float]:
    """Return the requests a second of each side, the median of rounds that alternate."""
    for each in sides:
        wait_for(each.answers, each.name, START_LIMIT, 0.1)
        asyncio.run(each.throughput(seconds / 4, clients))
        each.rates.clear()
    for _ in range(rounds):
        for each in sides:
            asyncio.run(each.throughput(seconds, clients))
    return {each.name: statistics.median(each.rates) for each in sides}


def batches(client: Client, version: Version, rounds: int, seconds: float, python: str) -> dict[str, float]:
    """Return the requests a second of the transformer: together, alone, and by LitServe."""
    with contextlib.ExitStack() as stack:
        sides = [
            side(stack.enter_context(deployed(client, version, name, max_batch=rows)), version)
            for name, rows in (("together", ROWS), ("alone", 1))
        ]
        if python:
            program = CODE / "litserve_model.py"
            made = other("LitServe", litserve(python), program, "/predict", "transformer", str(ROWS))
            sides.append(stack.enter_context(made))
            sides[-1].body = sides[0].body
        return rates(sides, rounds, seconds, MANY)


def replicas(client: Client, version: Version, rounds: int, seconds: float) -> dict[str, float]:
    """Return the requests a second of the net on two replicas and on one."""
    with (
        deployed(client, version, "one", max_batch=1) as one,
        deployed(client, version, "two", max_batch=1, replicas=2) as two,
    ):
        return rates([side(one, version), side(two, version)], rounds, seconds, SOME)


def through(server: LocalServer, client: Client, version: Version, rounds: int, number: int) -> dict[str, float]:
    """Return seconds: the median of a request past and through Jupyter Server, and p99 of its own while many pass."""
    with deployed(client, version, "both") as made:
        past = side(made, version)
        url = urlsplit(server.url)
        assert url.port is not None
        login = f"Authorization: token {server.token}\r\n"
        way = Side("through", url.port, f"{url.path}edt/api/deployments/both/predict", past.body, login)
        for _ in range(rounds):
            for each in (past, way):
                wait_for(each.answers, each.name, START_LIMIT, 0.1)
                each.latency(number)
        over = threading.Event()
        passing = [threading.Thread(target=_paced, args=(way, over, SOME / PASSING)) for _ in range(SOME)]
        for thread in passing:
            thread.start()
        own = [_seconds(f"{server.url}api/status", login) for _ in range(number)]
        over.set()
        for thread in passing:
            thread.join()
    return {
        "past": statistics.median(past.times),
        "through": statistics.median(way.times),
        "own p99": Spread.of(own).p99,
    }


def _paced(way: Side, over: threading.Event, pause: float) -> None:
    with requests.Session() as session:
        while not over.wait(pause):
            headers = dict([way.headers.strip().split(": ", 1)])
            session.post(f"http://127.0.0.1:{way.port}{way.path}", data=way.body, headers=headers).raise_for_status()


def _seconds(url: str, login: str) -> float:
    begun = time.perf_counter()
    requests.get(url, headers=dict([login.strip().split(": ", 1)])).raise_for_status()
    return time.perf_counter() - begun


def starts(client: Client, version: Version, rounds: int) -> dict[str, float]:
    """Return seconds: from deploy to the first answer, and from zero replicas to one."""
    first, zero = [], []
    for _ in range(rounds):
        begun = time.perf_counter()
        made = client.deploy(version, name="new", public=True, replicas=(0, 1), idle_after=1)
        made.predict(version.example())
        first.append(time.perf_counter() - begun)
        wait_for(lambda: made.refresh().state is DeploymentState.IDLE, "no replica", START_LIMIT, 0.05)  # noqa: B023
        begun = time.perf_counter()
        made.predict(version.example())
        zero.append(time.perf_counter() - begun)
        made.delete()
        wait_for(lambda: free(client), "free slots", START_LIMIT, 0.1)
    return {"deploy to the first answer": statistics.median(first), "zero to the first answer": statistics.median(zero)}


def growth(client: Client, version: Version, rounds: int) -> dict[str, float]:
    """Return seconds from the first request of a load that is too much for two replicas, to three."""
    grown = []
    for _ in range(rounds):
        with deployed(client, version, "grows", replicas=(1, 3), max_batch=1, release_after=60) as made:
            asked = side(made, version)
            asked.body = b'{"inputs": [1]}'
            over = threading.Event()
            load = threading.Thread(target=_until, args=(asked, over))
            begun = time.perf_counter()
            load.start()
            wait_for(lambda: made.refresh().view.ready == 3, "three replicas", START_LIMIT, 0.05)
            grown.append(time.perf_counter() - begun)
            over.set()
            load.join()
    return {"one to three replicas": statistics.median(grown)}


def _until(asked: Side, over: threading.Event) -> None:
    while not over.is_set():
        asyncio.run(asked.throughput(0.5, MANY))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--litserve", metavar="PYTHON", default="", help="compare with LitServe, see serving.py")
    parser.add_argument("--rounds", type=int, default=5, help="of each side (default 5)")
    parser.add_argument("--number", type=int, default=500, help="requests one after the other (default 500)")
    parser.add_argument("--seconds", type=float, default=3.0, help="of a round with many clients (default 3)")
    parser.add_argument("--quick", action="store_true", help="one short round")
    options = parser.parse_args()
    rounds, number, seconds = (1, 50, 0.5) if options.quick else (options.rounds, options.number, options.seconds)
    folder = ROOT / "serving_models"
    shutil.rmtree(folder, ignore_errors=True)
    with LocalServer(folder, slots=SLOTS, traits={"EdtApp.threads_per_slot": 1}) as server:
        client = server.client()
        versions = {}
        for name in ("transformer", "conv"):
            job = client.submit(CODE, main="train.py", args=[name], max_workers=1, name=name, progress=False)
            versions[name] = client.register(job.wait(300, progress=False), name)
        figures = {
            "transformer": batches(client, versions["transformer"], rounds, seconds, options.litserve),
            "conv": replicas(client, versions["conv"], rounds, seconds),
            "way": through(server, client, versions["transformer"], rounds, number),
            "starts": starts(client, versions["transformer"], rounds)
            | growth(client, client.register(CODE / "waits", "waits"), rounds),
        }
    return finish("serving_models", figures, report(figures))


def report(figures: dict[str, dict[str, float]]) -> list[Check]:
    """Print the figures. Return the checks."""
    many, conv, way, new = (figures[name] for name in ("transformer", "conv", "way", "starts"))
    print(table([["", "requests/s"], *([name, f"{rate:,.0f}"] for name, rate in (many | conv).items())]))
    print(table([["", "ms"], *([name, f"{1e3 * seconds:.1f}"] for name, seconds in (way | new).items())]))
    checks = [
        Check("transformer, requests together to alone", many["together"] / many["alone"], BATCHING, "at least"),
        Check("conv net, two replicas to one", conv["two"] / conv["one"], TWO, "at least"),
        Check("through Jupyter Server, more, s", way["through"] - way["past"], THROUGH, "at most"),
        Check("its own answers meanwhile, p99, s", way["own p99"], JUPYTER, "at most"),
        Check("deploy to the first answer, s", new["deploy to the first answer"], WARM, "at most"),
        Check("zero to the first answer, s", new["zero to the first answer"], ZERO, "at most"),
        Check("one to three replicas, s", new["one to three replicas"], GROWN, "at most"),
    ]
    if "LitServe" in many:
        checks.append(
            Check("transformer, ours to LitServe", many["together"] / many["LitServe"], TO_LITSERVE, "at least")
        )
    return checks


if __name__ == "__main__":
    sys.exit(main())
