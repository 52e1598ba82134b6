"""Measure what a thousand hosts cost a server, and what one costs that comes or goes beside the others.

First the planning of slots and the decisions alone: processor time of the best of several tries, so that other programs
of the machine count little. Then a real server whose hosts are played by one process: each has keys, joins with the
token, and sends heartbeats over the connection of the real agent (`agent/uplink.py`), but does nothing for a job. Jobs
get slots on them all the time and wait for their supervisors.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import quantiles
from typing import Any

import requests
import zmq.asyncio

from benchmarks.server_load import Measured
from edt_sdk.schemas.plan import Plan, ResourceGroup
from edt_sdk.schemas.wire import agent as wire
from edt_sdk.schemas.wire.control import ProcessIdentity, ServerAddress
from edt_sdk.testing import _free_port
from edt_server.agent.uplink import Uplink
from edt_server.core.core import Core
from edt_server.core.events import CoreEvent, JobArrived, JobDemand, SlotReleased, SlotsChanged
from edt_server.core.instructions import Revoke
from edt_server.messaging import Conversation, TokenText, key_pair, read_token
from edt_server.system.slots import Host, plan_slots

HOSTS, SLOTS, JOBS, TRIES = 1000, 8, 300, 9
AT_ONCE = 50  # hosts that are joining
LIMIT, SETTLING, LOST = 120.0, 10.0, 10


def best(work: Callable[[], object]) -> float:
    """Return the least milliseconds of processor time of several calls."""
    found = []
    for _ in range(TRIES):
        began = time.thread_time()
        work()
        found.append(time.thread_time() - began)
    return 1000 * min(found)


def settle(core: Core, event: CoreEvent, now: float) -> None:
    """Apply the event and release every slot that it revokes."""
    waiting = [event]
    while waiting:
        told = core.apply(waiting.pop(), now)
        waiting += [SlotReleased(each.job, each.slot) for each in told if isinstance(each, Revoke)]


def decide() -> None:
    """Print what planning and deciding take."""
    hosts = [Host(f"h{number:04}", cores=SLOTS) for number in range(HOSTS)]
    names = tuple(host.name for host in hosts)
    plans = {"any host": Plan(), "named hosts": Plan(resource_groups=(ResourceGroup(name="default", hosts=names),))}
    for name, plan in plans.items():
        slots = plan_slots(plan, hosts)
        lost = best(lambda plan=plan, slots=slots: plan_slots(plan, hosts[:-1], slots))
        print(f"plan_slots, {name}: {lost:.1f} ms for one of {HOSTS} hosts lost; {len(slots)} slots")
    slots = plan_slots(Plan(), hosts)
    for most in (20, 64):
        core = Core()
        core.apply(SlotsChanged(slots), 0.0)
        for number in range(JOBS):
            settle(core, JobArrived(f"j{number}", 5000 + number, most, "default"), 1.0)
            settle(core, JobDemand(f"j{number}", most), 1.0)
        took = []
        for number in range(0, HOSTS, 100):
            left = SlotsChanged(tuple(slot for slot in core.slots if slot.host != names[number]))
            began = time.thread_time()
            core.apply(left, 2.0)
            took.append(1000 * (time.thread_time() - began))
            for job in core.jobs:
                for slot in core.leaving(job):
                    core.apply(SlotReleased(job, slot), 2.0)
        began = time.thread_time()
        core.demand()
        told = 1000 * (time.thread_time() - began)
        print(f"{JOBS} jobs of up to {most}: SlotsChanged {min(took):.1f} to {max(took):.1f} ms, demand {told:.1f} ms")


# --- hosts that are played --------------------------------------------------------------------------------------------


async def join(context: zmq.asyncio.Context, token: TokenText, name: str, folder: str) -> wire.AgentOrders:
    """Join as `edt host join` does. Return the orders of the host's agent."""
    keys = key_pair()
    server = ServerAddress(endpoint=token.servers[0], public_key=token.server_key)
    conversation = Conversation(context, server, (token.public_key, token.secret_key), linger=500)
    await conversation.socket.send(wire.encode(wire.Join(protocol=wire.AGENT_PROTOCOL, name=name, public_key=keys[0])))
    answer = wire.decode_to_host((await conversation.receive())[0])
    await conversation.close()
    assert isinstance(answer, wire.HostJoined), answer
    return wire.AgentOrders(
        host=answer.host,
        data_dir=folder,
        runtime_dir=folder,
        public_key=keys[0],
        secret_key=keys[1],
        servers=token.servers,
        server_key=token.server_key,
    )


def hello(name: str) -> wire.HostHello:
    """Return what a machine with SLOTS cores says first."""
    return wire.HostHello(
        protocol=wire.AGENT_PROTOCOL,
        wheel="1",
        identity=ProcessIdentity(pid=1, start_ticks=1, boot_id=name, host=name, pid_namespace=""),
        endpoint="tcp://127.0.0.1:1",
        cores=SLOTS,
        gpus=(),
        offers=SLOTS,
        memory=1 << 30,
        kind="kind",
        below=(),
    )


async def play(folder: str) -> None:
    """Be HOSTS hosts that join with the token on the standard input. Each further line ends one of them."""
    context = zmq.asyncio.Context()
    context.max_sockets = 8 * HOSTS
    lines = asyncio.StreamReader(limit=1 << 20)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    token, room = read_token((await lines.readline()).decode()), asyncio.Semaphore(AT_ONCE)

    async def run(number: int) -> None:
        async with room:
            orders = await join(context, token, f"h{number:04}", folder)
        greeting = hello(orders.host)
        await Uplink(context, orders, hello=lambda _: greeting, hear=lambda *_: None, lost=lambda: None).run()

    running = [asyncio.create_task(run(number)) for number in range(HOSTS)]
    for each in running:
        await lines.readline()
        each.cancel()


# --- a real server ----------------------------------------------------------------------------------------------------


class Watched:
    """A server, what it answers and what it costs."""

    def __init__(self, server: Measured) -> None:
        self._url = server.url + "edt/api/"
        self.server = server
        self._session = requests.Session()
        self._session.headers["Authorization"] = f"token {server.token}"

    def get(self, path: str) -> Any:
        """Return an answer of the server."""
        answer = self._session.get(self._url + path, timeout=LIMIT)
        answer.raise_for_status()
        return answer.json()

    def latencies(self, path: str, seconds: float) -> str:
        """Ask four times a second. Return the median and the 99th percentile in words."""
        took, end = [], time.monotonic() + seconds
        while (began := time.monotonic()) < end:
            self.get(path)
            took.append(1000 * (time.monotonic() - began))
            time.sleep(max(0.0, began + 0.25 - time.monotonic()))
        return f"{quantiles(took, n=100)[49]:.0f} ms, 99 % below {quantiles(took, n=100)[98]:.0f} ms (n={len(took)})"

    def share(self, seconds: float) -> float:
        """Return the share of a core that the server uses in the next seconds."""
        before, began = self.server.processor_seconds(), time.monotonic()
        time.sleep(seconds)
        return (self.server.processor_seconds() - before) / (time.monotonic() - began)

    def until(self, condition: Callable[[], bool]) -> float:
        """Return the seconds until the condition holds."""
        began = time.monotonic()
        while not condition():
            if time.monotonic() - began > LIMIT:
                raise SystemExit(f"not within {LIMIT:.0f} s")
            time.sleep(0.1)
        return time.monotonic() - began


def serve(root: Path, profile: Path | None) -> None:
    """Print what the hosts cost a real server."""
    code = root / "code"
    code.mkdir(parents=True)
    (code / "main.py").write_text("FabricModel().train(1)\n")  # which never runs
    server = Measured(root / "server", slots=-1, profile=profile)
    server.traits["EdtApp.fleet_listen"] = f"127.0.0.1:{_free_port()}"
    server.start()
    command = [sys.executable, __file__, "--play", str(root)]
    players = subprocess.Popen(command, stdin=subprocess.PIPE, text=True)
    assert players.stdin is not None
    try:
        client, watched = server.client(), Watched(server)
        for _ in range(JOBS):
            client.submit(code, main="main.py", max_workers=20, progress=False)
        print(f"the server: {server.memory() >> 20} MB with {JOBS} jobs, {100 * watched.share(5):.1f} % of a core")
        used = server.processor_seconds()
        token = client.host_token(uses=HOSTS).token
        print(token, file=players.stdin, flush=True)
        # A look at the slots would cost the server as much as some hosts that join.
        took = watched.until(lambda: server.log.read_text().count(" has joined") == HOSTS)
        took += watched.until(lambda: len(watched.get("cluster")["slots"]) == HOSTS * SLOTS)
        used = server.processor_seconds() - used
        print(f"{HOSTS} hosts have joined and are up after {took:.1f} s, of which the server computed {used:.1f} s")
        settled = watched.until(lambda: all(host["state"] == "up" for host in watched.get("hosts")["hosts"]))
        time.sleep(settled + SETTLING)
        rest = watched.share(20)
        print(f"at rest: {100 * rest:.1f} % of a core, {server.memory() >> 20} MB")
        for path in ("hosts", "cluster", "jobs?limit=50", ""):
            print(f"GET /edt/api/{path}: {watched.latencies(path, 10)}")
        used, began = server.processor_seconds(), time.monotonic()
        known = []
        for number in range(LOST):
            print(file=players.stdin, flush=True)
            known.append(watched.until(lambda name=f"h{number:04}": f"{name} is lost" in server.log.read_text()))
            time.sleep(1)
        cost = server.processor_seconds() - used - rest * (time.monotonic() - began)
        assert len(watched.get("cluster")["slots"]) == (HOSTS - LOST) * SLOTS
        print(f"a host lost: known after {max(known):.1f} s, {1000 * cost / LOST:.0f} ms of the server")
    finally:
        players.kill()
        server.stop(end_jobs=False)  # which no supervisor has


def main() -> None:
    """Print all figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--play", help=argparse.SUPPRESS)
    parser.add_argument("--server", action="store_true", help="the part with a server alone")
    parser.add_argument("--profile", type=Path, help="where cProfile writes what the server did")
    options = parser.parse_args()
    if options.play:
        asyncio.run(play(options.play))
        return
    if not options.server:
        decide()
    with tempfile.TemporaryDirectory() as folder:
        serve(Path(folder), options.profile)


if __name__ == "__main__":
    main()
