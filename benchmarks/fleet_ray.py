"""What it costs that machines come, are drained, die or are cut off: ours beside Ray Train v2's elastic training.

Both sides train the model of `linear_stack/` on the same network namespaces, one slot each, with what leads them on a
third: our server, or the head of a Ray with the driver and the controller. One side runs at a time, and they take
turns. Ray Train has its defaults in one setting and the shortest waits that work in another.

| event | what is done | from then to the first update of |
|---|---|---|
| grow | `edt host join` or `ray start` begins on a second machine | two workers |
| drain | `edt host drain`, or a drain of Ray with 30 s | one worker |
| lost | SIGKILL to everything on one machine at once | one worker |
| cut | the machine's cable is pulled, and nobody is told | one worker |

The last three come in two kinds: for the machine of rank 0 (with our job's supervisor), and for the other one. A
machine that is drained ends in order when the 30 s are over.

An update counts when rank 0 has noted it, in our commit log or in a file that Ray's rank 0 writes, so for Ray even
before a checkpoint keeps it. "Stood still" is the longest time without a new update from the event until some updates
after that first one. "Repeated" are updates that were noted twice.

Needs root and EDT_RAY_PYTHON, a Python with ray[train] and this torch. About half an hour; `--quick` is one round with
8 MB. Prints tables, writes `.bench/fleet_ray.json`.
"""

from __future__ import annotations

import argparse
import contextlib
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY))

from benchmarks.commit_log import Commit, CommitLog, behind  # noqa: E402
from benchmarks.our_jobs import FOLDER, OurJob  # noqa: E402
from benchmarks.report import finish, table  # noqa: E402
from benchmarks.summary import Check, ratio, summarize  # noqa: E402
from tests.e2e.fleet import Machines, home_of  # noqa: E402
from tests.network import Network  # noqa: E402
from tests.ray_nodes import RayNodes  # noqa: E402

HOSTS = ("one", "two")
# Megabytes of parameters and momentum: the arguments that make as many, with about equal work for an update.
SIZES = {
    8: ("--width", "512", "--layers", "4", "--rows", "64"),
    60: ("--width", "1024", "--layers", "7", "--rows", "8"),
}
COMMON = ("--samples", "2", "--updates", "100000")
EVENTS = ("grow", *(f"{what}, {where}" for what in ("drain", "lost", "cut") for where in ("the other", "rank 0")))
DRAIN = 30.0
# Updates after the first one with the new workers that an event lasts.
HOLD = 12
LIMIT = 400.0
INTERFACES = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "eth0", "PYTHONPATH": str(FOLDER)}


# name: seconds between two considerations of another size, and variables of all programs.
SETTINGS: dict[str, tuple[float, dict[str, str]]] = {
    "Ray Train, shortest": (
        0.0,
        {
            "RAY_health_check_initial_delay_ms": "0",
            "RAY_health_check_period_ms": "1000",
            "RAY_health_check_timeout_ms": "2000",
            "RAY_health_check_failure_threshold": "3",
            "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.5",
            # How long it waits for workers on a machine that is gone. A start on a busy machine needs as much.
            "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": "20",
            "RAY_TRAIN_PREEMPTION_POLL_INTERVAL_S": "1",
        },
    ),
    "Ray Train, defaults": (60.0, {}),
}
OURS = "jupyter-edt"


class Side:
    """A training on the machines that have joined. `join`, `drain` and `end` return when that was, by `time.time`."""

    def __init__(self, network: Network, folder: Path, arguments: Sequence[str]) -> None:
        self.network, self.folder, self.arguments = network, folder, arguments

    def __enter__(self) -> Side:
        with contextlib.ExitStack() as stack:
            self._begin(stack)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stack.close()


class Ours(Side):
    """A server on the head, and agents on the machines."""

    def _begin(self, stack: contextlib.ExitStack) -> None:
        self._machines = Machines(self.network, self.folder)
        self._jobs = stack.enter_context(self._machines.serving())
        self._machines.join(self._jobs, HOSTS[0])
        self._job = stack.enter_context(OurJob(self._machines.server, "fleet", self.arguments, max_workers=2))

    def join(self, host: str) -> float:
        if host in self._machines.agents:
            self._jobs.client.drain_host(host, undo=True)
        when = time.time()
        self._machines.start(self._jobs, host)
        return when

    def drain(self, host: str) -> float:
        when = time.time()
        self._jobs.client.drain_host(host)
        return when

    def end(self, host: str) -> float:
        when = time.time()
        self._machines.crash(host)
        self._machines.agents[host].wait()
        return when

    def leave(self, host: str) -> None:
        self._machines.agents[host].terminate()

    def home(self) -> str:
        return home_of(self._jobs, self._job.job)

    def commits(self) -> list[Commit]:
        folder = self._jobs.private(self._job.job)
        return noted(folder / "training-0.commits.jsonl", folder / "training-0.discarded.jsonl")

    def trouble(self) -> str:
        return self._job.trouble()


class Rays(Side):
    """A Ray whose head runs the driver, and nodes on the machines."""

    setting = ""

    def _begin(self, stack: contextlib.ExitStack) -> None:
        interval, environ = SETTINGS[self.setting]
        self._nodes = stack.enter_context(RayNodes(self.network, self.folder, {**INTERFACES, **environ}))
        self._log = self.folder / "commits.jsonl"
        for name in ("head", HOSTS[0]):
            self._nodes.start(name)
        own = {"BENCH_RAY": self._nodes.address, "BENCH_RESIZE_INTERVAL": str(interval)}
        command = [self._nodes.python, str(FOLDER / "train_ray.py"), *self.arguments]
        command += ["--commits", str(self._log), "--checkpoint", str(self.folder / "checkpoints")]
        with self.network.inside("head"), (self.folder / "driver.log").open("ab") as words:
            self._driver = subprocess.Popen(
                command, stdout=words, stderr=words, env={**self._nodes.environ, **own}, cwd="/", start_new_session=True
            )
        stack.callback(self._driver.wait)
        stack.callback(self._driver.kill)

    def join(self, host: str) -> float:
        return self._nodes.start(host)

    def drain(self, host: str) -> float:
        return self._nodes.drain(self._nodes.nodes()[self.network.addresses[host]], DRAIN)

    def end(self, host: str) -> float:
        when = time.time()
        self._nodes.kill(host)
        return when

    def leave(self, host: str) -> None:
        self._nodes.programs[host].terminate()

    def home(self) -> str:
        address = Path(f"{self._log}.home").read_text()
        return next(host for host in HOSTS if self.network.addresses[host] == address)

    def commits(self) -> list[Commit]:
        return noted(self._log)

    def trouble(self) -> str:
        return "" if self._driver.poll() is None else (self.folder / "driver.log").read_text()[-2000:]


def noted(*logs: Path) -> list[Commit]:
    """Return the lines of logs in the order of time. Whole files, because ours may be replaced."""
    return sorted((commit for log in logs for commit in CommitLog(log).read()), key=lambda commit: commit.time)


@dataclass(frozen=True)
class Cost:
    """What an event cost: seconds to the first update of the new workers, seconds without any, and repetitions."""

    first: float
    still: float
    repeated: int


def cost(commits: Sequence[Commit], when: float, world: int) -> Cost:
    """Return what the event at `when` cost, after which `world` workers train."""
    known = {commit.update for commit in commits if commit.time <= when}
    newest, last = max(known), max(commit.time for commit in commits if commit.time <= when)
    first, still, repeated = 0.0, 0.0, 0
    for commit in commits:
        if commit.time <= when:
            continue
        if commit.world == world:
            first = first or commit.time - when
        repeated += commit.update in known
        known.add(commit.update)
        if commit.update > newest:
            still = max(still, commit.time - last)
            newest, last = commit.update, commit.time
    return Cost(first, still, repeated)


def wait(side: Ours | Rays, when: float, world: int) -> None:
    """Wait until this many workers train after the event at `when`. SystemExit if they never do."""
    deadline = time.monotonic() + LIMIT
    # The last one has to be new: before it there may be many that are repeated.
    while behind(commits := side.commits(), world, when) < HOLD or commits[-1].update in {
        c.update for c in commits[:-1]
    }:
        wrong = side.trouble() or ("" if time.monotonic() < deadline else f"nothing within {LIMIT:.0f} s")
        if wrong:
            raise SystemExit(f"no updates of {world} workers: {wrong}")
        time.sleep(0.2)


def after(side: Ours | Rays, when: float, world: int) -> Cost:
    """Return what the event at `when` cost, after it has."""
    wait(side, when, world)
    return cost(side.commits(), when, world)


def play(side: Ours | Rays, network: Network, found: dict[str, list[Cost]]) -> None:
    """Let all events happen, one after the other, and add up what they cost."""
    wait(side, 0.0, 1)
    absent = HOSTS[1]
    for event in EVENTS[1:]:
        found["grow"].append(after(side, side.join(absent), 2))
        print(f"    grow: {found['grow'][-1]}", flush=True)
        near = side.home()
        (other,) = set(HOSTS) - {near}
        absent = near if event.endswith("rank 0") else other
        leaving = threading.Timer(DRAIN, side.leave, (absent,))
        if event.startswith("drain"):
            when = side.drain(absent)
            leaving.start()  # as a cloud takes the machine at its deadline
        elif event.startswith("lost"):
            when = side.end(absent)
        else:
            when = time.time()
            network.cut(absent)
        found[event].append(after(side, when, 1))
        print(f"    {event}: {found[event][-1]}", flush=True)
        if event.startswith("drain"):
            leaving.join()
        side.end(absent)
        if event.startswith("cut"):
            network.heal(absent)


def measured(name: str, megabytes: int, found: dict[str, list[Cost]]) -> None:
    """Play one side through, and print why if it does not come to its end."""
    # Short, because sockets lie below it.
    with tempfile.TemporaryDirectory(prefix="edt-b-") as folder, Network(*HOSTS, "head") as network:
        side = (Ours if name == OURS else Rays)(network, Path(folder), (*SIZES[megabytes], *COMMON))
        side.setting = name
        try:
            with side:
                play(side, network, found)
        except SystemExit as why:
            print(f"    {why}", flush=True)


def tables(names: Sequence[str], found: Mapping[str, Mapping[str, list[Cost]]]) -> str:
    """Return a table for each figure, with its medians for each side, and ours in relation to the others."""
    words = []
    for what, figure in (("to the first update, s", "first"), ("stood still, s", "still"), ("repeated", "repeated")):
        rows = [[what, *names, *(f"ours ÷ {name}" for name in names[1:])]]
        for event in EVENTS:
            of = [[getattr(each, figure) for each in found[name].get(event, [])] for name in names]
            cells = [f"{median(values):.1f} (n={len(values)})" if values else "did not go on" for values in of]
            shares = [ratio(summarize(of[0]), summarize(values)) for values in of[1:]]
            cells += ["–" if share is None or figure == "repeated" else f"{share:.2f}" for share in shares]
            rows.append([event, *cells])
        words.append(table(rows))
    return "\n\n".join(words)


def main() -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sizes", type=int, nargs="+", choices=SIZES, default=[8])
    parser.add_argument("--only", default="", help="the sides with this in their names")
    options = parser.parse_args()
    rounds = 1 if options.quick else options.rounds
    names = [name for name in (OURS, *SETTINGS) if options.only in name]
    results, checks = {}, []
    for megabytes in options.sizes:
        found: dict[str, dict[str, list[Cost]]] = {name: defaultdict(list) for name in names}
        for number in range(rounds):
            for name in names:
                print(f"  {megabytes} MB, round {number + 1}, {name}", flush=True)
                measured(name, megabytes, found[name])
        print(f"\n{megabytes} MB\n\n{tables(names, found)}")
        results[megabytes] = {
            name: {event: [asdict(each) for each in costs] for event, costs in of.items()} for name, of in found.items()
        }
        survived = sum(len(found[names[0]][event]) == rounds for event in EVENTS[1:])
        checks.append(
            Check(f"events survived each time by {names[0]}, {megabytes} MB", survived, len(EVENTS) - 1, "at least")
        )
    return finish("fleet_ray", {"results": results}, checks)


if __name__ == "__main__":
    raise SystemExit(main())
