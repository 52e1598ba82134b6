"""`make chaos-fleet`: machines come and go, hang, are cut off and fill up, and every job has the same bits.

    python -m tests.chaos.fleet --events 200 --seed 42      replays the events of seed 42

Four machines with networks, pids and disks of their own are the hosts of a server on a fifth, and train six jobs at a
time. At the end each job has the weights of the same training on one undisturbed worker, each update is in its log
once, each sample in each epoch once, no slot had two jobs at one time, and nothing is left anywhere. Needs root. Exit
code 1 with the story of the first job of which that is not so.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from edt_sdk import EdtError, Job
from edt_sdk.schemas.job import JobState
from tests.chaos import fleet_plan, referee
from tests.chaos.fleet_plan import Kind, Step
from tests.chaos.fleet_watch import AGENT, Seen, Watch, holds, shared_slots
from tests.chaos.plan import Training
from tests.chaos.scenario import ZOO
from tests.e2e.fleet import HEAD, Machines, home_of, offered
from tests.e2e.harness import Jobs
from tests.network import Network
from tests.waiting import until

ROOT = Path(__file__).resolve().parents[2] / ".chaos" / "fleet"
NAMES = ("one", "two", "three", "four")
SLOTS = 2
DISK = "192m"
PAUSE = 0.02  # seconds a sample takes, so that jobs last
TRAININGS = (
    Training("cnn", "sgd", shards=8, loaders=0),
    Training("mlp", "adam", shards=4, loaders=0),
    Training("transformer", "adamw", shards=6, loaders=0),
    Training("lstm", "sgd", shards=3, loaders=0),
    Training("cnn", "adadelta", shards=5, loaders=2),
)
# Seconds without an update of a job after which it counts as stuck, and until everything is gone at the end.
STUCK, LAST = 180.0, 30.0
BALLAST = "ballast"
# Seconds that the processes of two jobs in one slot may be seen at once: between two looks.
_AT_ONCE = 0.6


@dataclass(frozen=True, slots=True)
class Size:
    """How much there is: jobs at a time, and epochs of each."""

    jobs: int = 6
    epochs: int = 14


WHOLE, QUICK = Size(), Size(jobs=3, epochs=8)


class Chaos:
    """Machines, jobs, and what happens to both."""

    def __init__(self, machines: Machines, jobs: Jobs, size: Size, dice: random.Random) -> None:
        self._machines = machines
        self._network = machines.network
        self._jobs = jobs
        self._size = size
        self._dice = dice
        self._begun = time.monotonic()
        self._lag = 0.0
        self._off: set[str] = set()  # machines without an agent until the end of an event
        self._on: dict[str, set[str]] = {}  # machine → jobs, as of the last look
        self._hosts_of_slots: dict[int, set[str]] = defaultdict(set)
        self.submitted: dict[str, Training] = {}
        self.events: Counter[Kind] = Counter()
        self.hits: list[tuple[Kind, float, set[str]]] = []
        self.told: list[str] = []

    # --- what happens -------------------------------------------------------------------------------------------------

    def run(self, steps: Sequence[Step]) -> None:
        """Do everything, with jobs all the time."""
        self._begun = time.monotonic()
        for step in steps:
            while (wait := step.at + self._lag - self.now) > 0:
                self._let_join()
                self._keep_busy()
                time.sleep(min(wait, 0.5))
            self._lag = max(self._lag, self.now - step.at)
            self.say(str(step))
            if not step.undo:
                self.events[step.kind] += 1
                self.hits.append((step.kind, time.monotonic(), self._affected(step.machine)))
            (self._end if step.undo else self._begin)(step)

    def wait(self) -> None:
        """Wait until all jobs have ended. AssertionError for one that does not go on."""
        newest, changed = -1, time.monotonic()
        while not self._let_join() or self._living():
            living = self._living()
            now = sum(len(self._jobs.commits(job)) for job in living)
            if now != newest:
                newest, changed = now, time.monotonic()
            stuck = time.monotonic() - changed
            where = "; ".join(map(_where, living))
            assert stuck < STUCK, f"no update for {stuck:.0f} s: {where}"
            time.sleep(0.5)

    @property
    def now(self) -> float:
        """Seconds since the begin."""
        return time.monotonic() - self._begun

    def say(self, text: str) -> None:
        """Print it with the time."""
        told = f"  {self.now:7.1f} s  {text}"
        self.told.append(told)
        print(told, flush=True)

    def _begin(self, step: Step) -> None:
        name = step.machine
        if step.kind in (Kind.KILL_AGENT, Kind.POWER_OFF, Kind.STOP_AGENT, Kind.LEAVE):
            self._off.add(name)
        match step.kind:
            case Kind.KILL_AGENT:
                self._signal(name, signal.SIGKILL)
            case Kind.POWER_OFF:
                self._network.cut(name)
                self._network.kill(name)
            case Kind.CUT:
                self._network.cut(name)
            case Kind.STOP_AGENT:
                self._signal(name, signal.SIGSTOP)
            case Kind.LEAVE:
                self._signal(name, signal.SIGTERM)
            case Kind.DRAIN:
                self._jobs.client.drain_host(name)
            case Kind.SLOW:
                self._network.limit(name, step.rate)
            case Kind.FULL_DISK:
                fill(self._machines.folder / name)
            case Kind.KILL_SERVER:
                self._machines.server.kill()
            case Kind.RESIZE:
                self._resize(step)

    def _end(self, step: Step) -> None:
        name = step.machine
        match step.kind:
            case Kind.KILL_AGENT | Kind.LEAVE:
                self._off.discard(name)
            case Kind.POWER_OFF:
                self._network.heal(name)
                self._off.discard(name)
            case Kind.CUT:
                self._network.heal(name)
            case Kind.STOP_AGENT:
                self._signal(name, signal.SIGCONT)
                self._off.discard(name)  # its guard has killed it after 5 s
            case Kind.DRAIN:
                self._jobs.client.drain_host(name, undo=True)
            case Kind.SLOW:
                self._network.unlimit(name)
            case Kind.FULL_DISK:
                (self._machines.folder / name / BALLAST).unlink()
            case Kind.KILL_SERVER:
                self._machines.server.start()
                self._jobs.client = self._machines.server.client()

    def _signal(self, name: str, number: signal.Signals) -> None:
        """Send a signal to the agent of a machine."""
        with contextlib.suppress(psutil.NoSuchProcess):
            agent_of(self._network, name).send_signal(number)

    def _let_join(self) -> bool:
        """Start the agents that have ended. Return whether there were none.

        An agent that leaves has two minutes until its jobs have left.
        """
        ended = [name for name in NAMES if name not in self._off and self._machines.agents[name].poll() is not None]
        for name in ended:
            self.say(f"  {name} joins again")
            self._machines.start(self._jobs, name, slots=SLOTS)
        return not ended

    def _resize(self, step: Step) -> None:
        living = self._living()
        if living:
            job = living[int(step.dice * len(living))]
            change = self._dice.choice(
                ({"max_workers": 1 + int(step.dice * 97) % 8}, {"priority": 1 + int(step.dice * 9999)})
            )
            self.say(f"  {job.id}: {change}")
            with contextlib.suppress(EdtError):  # it has ended a moment ago
                job.update(**change)

    # --- jobs ---------------------------------------------------------------------------------------------------------

    def _keep_busy(self) -> None:
        """Submit jobs in place of those that have ended. AssertionError for one that has ended in another way."""
        if not self._machines.server.running:
            return
        for job in self._jobs.client.jobs():
            good = not job.view.state.final or job.view.state is JobState.FINISHED
            assert good, f"{job.id} is {job.view.state.value}: {job.view.message}"
        for _ in range(self._size.jobs - len(self._living())):
            training = TRAININGS[len(self.submitted) % len(TRAININGS)]
            job = submit(self._jobs, training, self._size.epochs, workers=self._dice.randint(1, 5), pause=PAUSE)
            self.submitted[job.id] = training
        self._look()

    def _living(self) -> list[Job]:
        return [job for job in self._jobs.client.jobs() if job.id in self.submitted and not job.view.state.final]

    def _look(self) -> None:
        """Remember which machines jobs are on."""
        on: dict[str, set[str]] = defaultdict(set)
        for slot in self._jobs.client.cluster()["slots"]:
            self._hosts_of_slots[slot["id"]].add(slot["host"])
            if slot["job"]:
                on[slot["host"]].add(slot["job"])
        for job in self._living():
            with contextlib.suppress(OSError, KeyError, json.JSONDecodeError):
                on[home_of(self._jobs, job)].add(job.id)
        self._on = on

    def _affected(self, machine: str) -> set[str]:
        return self._on.get(machine, set()) if machine else set().union(*self._on.values())

    # --- the end ------------------------------------------------------------------------------------------------------

    def judge(self, watch: Watch, undisturbed: dict[Training, referee.Record]) -> tuple[int, int]:
        """Return how many updates there were and how many were discarded. AssertionError for what is not right."""
        assert not watch.wrong, watch.wrong
        updates = discarded = 0
        for name, training in self.submitted.items():
            job = self._jobs.client.job(name)
            with told_of(name):
                record = referee.read(self._jobs, job, self._size.epochs, training.shards)
                referee.compare(record, undisturbed[training])
            updates, discarded = updates + record.updates, discarded + record.discarded
        workers = watch.workers(self._hosts_of_slots)
        print(f"  {len(workers)} workers were seen")
        all_holds = [
            watch.placed(hold, self._hosts_of_slots)
            for name in self.submitted
            for hold in holds(name, self._jobs.server.data_dir / "jobs" / name / "journal.jsonl")
        ]
        # What the journals say to the moment, and what was seen of processes between two looks.
        twice = [*shared_slots(all_holds), *shared_slots(workers, _AT_ONCE)]
        assert not twice, "\n".join(f"slot of two jobs: {first} {second}" for first, second in twice)
        return updates, discarded

    def recovery(self, watch: Watch) -> Iterator[tuple[Kind, list[float]]]:
        """Yield how many seconds it took after each kind of event until jobs that it may have hit went on."""
        took: dict[Kind, list[float]] = defaultdict(list)
        for kind, when, jobs in self.hits:
            for job in jobs:
                growth = watch.growth[job]
                series = growth.anywhere if kind is Kind.KILL_SERVER else growth.served
                later = next((at for at, _ in series if at > when), None)
                if later is not None:
                    took[kind].append(later - when)
        yield from sorted(took.items())


def submit(jobs: Jobs, training: Training, epochs: int, *, workers: int, pause: float) -> Job:
    """Start a training, of which each sample takes this long."""
    arguments = {
        "model": training.model,
        "optimizer": training.optimizer,
        "shards": training.shards,
        "loaders": training.loaders,
        "epochs": epochs,
    }
    args = [part for name, value in arguments.items() for part in (f"--{name}", str(value))]
    env = {"PAUSE": str(pause)}
    return jobs.client.submit(
        ZOO, main="zoo.py", args=args, env=env, name=training.name, max_workers=workers, progress=False
    )


def agent_of(network: Network, name: str) -> psutil.Process:
    """Return the agent of a machine, below its guard. NoSuchProcess when there is none."""
    agents = {}
    for pid in network.pids(name):
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(pid)
            command = process.cmdline()
            if AGENT in command and "join" in command and command[0] == sys.executable:
                agents[pid] = process
    for process in agents.values():
        if process.ppid() in agents:
            return process
    raise psutil.NoSuchProcess(0, name)


def fill(folder: Path) -> None:
    """Leave no room on the disk of a folder."""
    with (folder / BALLAST).open("wb", buffering=0) as file, contextlib.suppress(OSError):
        piece = bytes(1 << 16)
        while True:
            file.write(piece)


@contextlib.contextmanager
def told_of(job: str) -> Iterator[None]:
    """Say of which job something is not right."""
    try:
        yield
    except AssertionError as wrong:
        raise AssertionError(f"{job}: {wrong}") from wrong


@contextlib.contextmanager
def disks(folder: Path, names: Sequence[str]) -> Iterator[None]:
    """Give each machine a small disk of its own, which can be filled."""
    for name in names:
        (folder / name).mkdir(parents=True, mode=0o700)
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK},mode=700", "tmpfs", str(folder / name)], check=True)
    try:
        yield
    finally:
        for name in names:
            subprocess.run(["umount", "-l", str(folder / name)], check=False)


def nothing_left(machines: Machines, watch: Watch) -> None:
    """AssertionError when a process or a folder of a job is left on a machine LAST seconds after the end of all."""
    left: list[str] = []
    deadline = time.monotonic() + LAST
    while time.monotonic() < deadline:
        left = [str(path) for name in NAMES for path in (machines.folder / name / "jobs").glob("*")]
        living = watch.living()
        agents = {each.pid for each in living if AGENT in each.command and " below " not in each.command}
        left += [f"{each.machine}: {each.pid} {each.command}" for each in living if _of_job(each, agents)]
        if not left:
            return
        time.sleep(0.5)
    raise AssertionError("left behind:\n" + "\n".join(left))


def _of_job(seen: Seen, agents: set[int]) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(seen.pid)
        if process.ppid() in agents and "edt_sdk.training.zygote" in process.cmdline():
            return False  # a template
    command = seen.command
    return f"{AGENT} below" in command or "edt_sdk.training" in command or "edt_server.supervisor" in command


def _where(job: Job) -> str:
    view = job.view
    return f"{job.id} {view.state.value} {view.message} {view.reason}"


def report(machines: Machines, jobs: Jobs, chaos: Chaos, wrong: BaseException) -> None:
    """Print what is needed to find out what went wrong."""
    print(f"wrong: {wrong}\n")
    with contextlib.suppress(Exception):
        if not machines.server.running:
            jobs.client = machines.server.start().client()
        for job in jobs.client.jobs():
            if job.id in str(wrong) or not job.view.state.final:
                print(f"--- {_where(job)}\n{job.story()}")
                logs = [jobs.private(job) / "supervisor.log"]
                logs += [machines.folder / name / "jobs" / job.id / "supervisor.log" for name in NAMES]
                for log in logs:
                    _tail(log, 30)
    for name in NAMES:
        _tail(machines.folder / f"{name}.log", 40)
    _tail(machines.server.log, 60)


def _tail(path: Path, lines: int) -> None:
    if path.exists():
        print(f"--- {path}")
        print("\n".join(path.read_text(errors="replace").splitlines()[-lines:]))


def once_alone(jobs: Jobs, size: Size) -> dict[Training, referee.Record]:
    """Train each training on one worker, undisturbed."""
    running = {training: submit(jobs, training, size.epochs, workers=1, pause=0.0) for training in TRAININGS}
    return {
        training: referee.read(jobs, job.wait(600, progress=False), size.epochs, training.shards)
        for training, job in running.items()
    }


def run(root: Path, size: Size, seed: int, steps: Sequence[Step]) -> str:
    """Do it; what happened, in a sentence. AssertionError for the first thing that is not right."""
    shutil.rmtree(root, ignore_errors=True)  # what a difference leaves behind stays there until the next run
    root.mkdir(parents=True)
    with Network(*NAMES, HEAD) as network, disks(root, NAMES):
        machines = Machines(network, root)
        with machines.serving() as jobs:
            for name in NAMES:
                machines.start(jobs, name, slots=SLOTS)
            for name in NAMES:
                until(lambda name=name: offered(jobs, name) == SLOTS, f"the slots of {name}")
            undisturbed = once_alone(jobs, size)
            print(f"  {len(TRAININGS)} trainings alone, {len(steps)} steps", flush=True)
            chaos = Chaos(machines, jobs, size, random.Random(seed))
            namespaces = {network.namespace(name): name for name in NAMES}
            hosts = [root / name for name in NAMES]
            try:
                with Watch(namespaces, machines.server.data_dir / "jobs", hosts) as watch:
                    chaos.run(steps)
                    chaos.wait()
                    updates, discarded = chaos.judge(watch, undisturbed)
                    nothing_left(machines, watch)
                for kind, took in chaos.recovery(watch):
                    middle, most = statistics.median(took), max(took)
                    times = f"{chaos.events[kind]:3} times, next update of {len(took)} jobs hit"
                    print(f"  {kind:12} {times} after {middle:.1f} s, at most {most:.1f} s")
            except BaseException as wrong:
                report(machines, jobs, chaos, wrong)
                if machines.server.running:
                    machines.server.kill()  # it would wait for the jobs
                raise
            for name in NAMES:
                with contextlib.suppress(psutil.NoSuchProcess):
                    agent_of(network, name).send_signal(signal.SIGTERM)
            for name in NAMES:
                until(lambda name=name: not network.pids(name), f"the end of everything on {name}", LAST)
    return (
        f"equal, {sum(chaos.events.values())} events, {len(chaos.submitted)} jobs, {updates} updates, each once in its "
        f"log, {discarded} computed again, no slot of two jobs, nothing left behind"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=200, help="how many (default 200)")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6), help="default: a new one")
    parser.add_argument("--quick", action="store_true", help="fewer and shorter jobs")
    parser.add_argument("--without", nargs="+", choices=list(Kind), default=[], metavar="KIND", help="kinds left out")
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    begun = time.monotonic()
    steps = fleet_plan.steps(options.seed, options.events, NAMES, options.without)
    size = QUICK if options.quick else WHOLE
    try:
        print(run(ROOT, size, options.seed, steps))
    except (AssertionError, pytest.fail.Exception):  # the latter of `until`
        print(f"seed {options.seed}, {time.monotonic() - begun:.0f} s", flush=True)
        return 1
    except pytest.skip.Exception as skipped:
        print(f"skipped: {skipped}")
        return 0
    print(f"{time.monotonic() - begun:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
