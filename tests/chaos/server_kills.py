"""`make chaos-server` and `make chaos-postgres`: a victim is killed again and again under load, and no job is lost.

    python -m tests.chaos.server_kills --kills 50 --seed 7
    python -m tests.chaos.server_kills --victim postgres --kills 20 --seed 7

Small real jobs are submitted, changed, suspended, resumed and stopped without a pause. At random instants the victim
alone is killed and started again: the Jupyter Server, or the PostgreSQL that holds its job store. What the server says
then is compared with what the jobs' own files say: states, workers and their slots, logs, metrics, within `PROMISED`
seconds of its first answer. At the end every update of every job is in its commit log once, no job ran twice, and
finished trainings have the bits of an undisturbed one.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from edt_sdk import Client, EdtError, Job
from edt_sdk.schemas.job import JobState
from edt_sdk.testing import LocalServer
from tests.chaos import processes
from tests.chaos.scenario import ZOO
from tests.chaos.victims import VICTIMS, ServerVictim, Victim
from tests.e2e.harness import Jobs
from tests.server.store.cluster import Missing
from tests.waiting import until

ROOT = Path(__file__).resolve().parents[2] / ".chaos"
TRAITS = {"EdtApp.threads_per_slot": 1, "EdtApp.checkpoint_interval": 5.0}
SLOTS = 4
MOST_ALIVE = 4
# Few lengths, so that many trainings must have the same bits.
EPOCHS, SAMPLES = (4, 12, 40), 60
STEPS = (10, 150)
PLAIN = "PyTorch"
# The promise of the design: what the server says is right so many seconds after it answers.
PROMISED = 5.0
PATIENCE = 240.0
SOME = 5


class Load:
    """Somebody who never stops giving orders.

    Args:
        jobs: the server.
        dice: decides what is ordered.
        plain: the share of jobs that are plain scripts, which may not run twice at all.

    Attributes:
        acknowledged: ids of the jobs whose submission was answered; none of these may be lost.
    """

    def __init__(self, jobs: Jobs, dice: random.Random, plain: float) -> None:
        self._jobs = jobs
        self._dice = dice
        self._plain = plain
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work, name="load")
        self.acknowledged: list[str] = []
        self.verbs: Counter[str] = Counter()
        self.trouble: list[str] = []
        # A job that is told to stop lives on for a moment. Resumed after it, it would rightly run a second time.
        self._stopped: set[str] = set()

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _work(self) -> None:
        while not self._over.wait(self._dice.uniform(0.01, 0.15)):
            server = self._jobs.server
            if not server.running:
                continue
            try:
                with server.client() as client:
                    self._one(Jobs(server), list(client.jobs()))
            except EdtError as refused:
                # The server was killed in the middle, or the job was over: both are told, neither is a loss.
                if refused.status not in (409, 503):
                    self.trouble.append(f"{type(refused).__name__}: {refused}")

    def _one(self, jobs: Jobs, known: list[Job]) -> None:
        living = [job for job in known if not job.view.state.final]
        verb = self._dice.choice(("submit", "update", "resize", "suspend", "resume", "resume", "stop"))
        if len(living) < MOST_ALIVE // 2 or verb == "submit":
            if len(living) < MOST_ALIVE:
                self.acknowledged.append(self._submit(jobs).id)
                self.verbs["submit"] += 1
            return
        choice = [job for job in living if job.id not in self._stopped]
        if not choice:
            return
        job = self._dice.choice(choice)
        if job.view.framework == PLAIN and verb not in ("update", "stop"):
            return
        match verb:
            case "update":
                job.update(priority=self._dice.randint(1, 10_000))
            case "resize":
                job.update(max_workers=self._dice.randint(1, SLOTS))
            case "suspend":
                job.suspend()
            case "resume":
                job.resume()
            case "stop" if self._dice.random() < 0.2:
                self._stopped.add(job.id)
                job.stop()
            case _:
                return
        self.verbs[verb] += 1

    def _submit(self, jobs: Jobs) -> Job:
        if self._dice.random() < self._plain:
            steps = [str(self._dice.randint(*STEPS))]
            return jobs.client.submit(ZOO, main="once.py", args=steps, name="plain", framework=PLAIN, progress=False)
        return training(jobs, self._dice.choice(EPOCHS), self._dice.randint(1, SLOTS))


def training(jobs: Jobs, epochs: int, workers: int) -> Job:
    """Submit a training that has the same bits at any number of workers."""
    arguments = ("--epochs", str(epochs), "--samples", str(SAMPLES), "--shards", "4")
    return jobs.submit("cnn.py", *arguments, name="load", max_workers=workers)


class Referee:
    """Compares what a server says with what the jobs' files say; both move, so it looks until they agree."""

    def __init__(self, jobs: Jobs, load: Load, dice: random.Random) -> None:
        self._jobs = jobs
        self._load = load
        self._dice = dice
        self._over: set[str] = set()
        self.slowest = 0.0

    def right_soon(self) -> None:
        """AssertionError with what is wrong still, `PROMISED` seconds after the server answered.

        The load goes on and something is always on its way: each job has to be seen right once. Of the jobs that were
        over and seen right after an earlier start some are looked at again, and all must be there.
        """
        begun = time.monotonic()
        self._nobody_lost()
        living = [job for job in list(self._load.acknowledged) if job not in self._over]
        some = self._dice.sample(sorted(self._over), min(len(self._over), SOME))
        written = {job: self._written(job) for job in (*living, *some)}
        wrong = self._look(written, set(written))
        # A look may take long itself; what it found is believed when the next one finds it too.
        looks = 1
        while wrong and (looks < 3 or time.monotonic() < begun + PROMISED):
            wrong = self._look(written, set(wrong))
            looks += 1
        assert not wrong, "\n".join(f"{job} {what}" for job, all_of_it in wrong.items() for what in all_of_it)
        self.slowest = max(self.slowest, time.monotonic() - begun)

    def _nobody_lost(self) -> None:
        with self._jobs.server.client() as client:
            acknowledged = set(self._load.acknowledged)
            lost = acknowledged - {job.id for job in client.jobs()}
            assert not lost, f"lost: {lost}"

    def _written(self, job: str) -> tuple[int, int]:
        """Updates in the metrics file, and lines of the driver: what the server must know of, and perhaps more."""
        folder = self._jobs.server.data_dir / "jobs" / job
        updates = sum(line["kind"] == "train" for line in _lines(folder / "training-0.metrics.jsonl"))
        said = sum(file.read_bytes().count(b"\n") for file in (folder / "streams").glob("driver.std*"))
        return updates, said

    def _look(self, written: dict[str, tuple[int, int]], at: set[str]) -> dict[str, list[str]]:
        """What is wrong about each of these jobs; nothing for one that is right."""
        found: dict[str, list[str]] = {}
        with self._jobs.server.client() as client:
            for name in at:
                wrong = self._of(client, name)
                job = client.job(name)
                wrong += _unread(job, *written[name])
                if wrong:
                    found[name] = [f"({job.view.state.value}): {what}" for what in wrong]
                elif job.view.state.final:
                    self._over.add(name)
        return found

    def _of(self, client: Client, name: str) -> list[str]:
        # The journal first: the server may know more than was in it, never less.
        reports = processes.journal(self._jobs.server.data_dir / "jobs" / name)
        ended = [str(report["state"]) for report in reports if report["type"] == "JobEnded"]
        taken = {slot["id"]: slot["job"] for slot in client.cluster()["slots"]}
        job = client.job(name)
        if job.view.state.final:
            left = [slot for slot, holder in taken.items() if holder == name]
            right = not ended or ended == [job.view.state.value]
            return ([] if right else [f"its supervisor said {ended}"]) + ([f"still in slots {left}"] if left else [])
        wrong = [f"ended as {ended[-1]}"] if ended else []
        inside = _inside(reports)
        misplaced = [slot for slot in inside if taken.get(slot) != name]
        if misplaced:
            wrong.append(f"its workers are in slots {misplaced}, which are not its")
        told = {worker["pid"] for worker in job.workers()}
        if told != set(inside.values()):
            wrong.append(f"its workers are {sorted(inside.values())}, not {sorted(told)}")
        if inside and job.view.state in (JobState.SUSPENDED, JobState.PENDING, JobState.SUBMITTED):
            wrong.append("it has workers")
        return wrong


def _unread(job: Job, updates: int, said: int) -> list[str]:
    """What was in the files when the server came up, and is not in its answers."""
    wrong = []
    newest = max((point["update"] + 1 for point in job.metrics().train), default=0)
    if newest < updates:
        wrong.append(f"{updates} updates were written, its metrics end at {newest}")
    if len(str(job.logs(stream="driver")).splitlines()) < said:
        wrong.append("its log is shorter than the file")
    return wrong


def _inside(reports: list[dict[str, Any]]) -> dict[int, int]:
    """Slot → pid of the workers that have started and whose slot was not given back."""
    inside: dict[int, int] = {}
    for report in reports:
        if report["type"] == "WorkerStarted":
            inside[report["slot"]] = report["pid"]
        elif report["type"] == "SlotReleased":
            inside.pop(report["slot"], None)
        elif report["type"] == "JobEnded":
            inside.clear()
    return inside


def once(jobs: Jobs, job: Job) -> None:
    """AssertionError unless the job ran once, and each of its updates happened once."""
    assert job.view.state in (JobState.FINISHED, JobState.KILLED), f"{job.id}: {job.view.state} {job.view.message}"
    reports = processes.journal(jobs.private(job))
    drivers = sum(report["type"] == "DriverStarted" for report in reports)
    assert drivers <= 1, f"{job.id} ran {drivers} times"
    if job.view.framework == PLAIN:
        folder = Path(job.view.result_dir)
        runs = (folder / "runs").read_text().split() if (folder / "runs").exists() else []
        assert not (folder / "twice").exists(), f"{job.id} ran twice at once"
        assert len(runs) <= 1, f"{job.id} ran {len(runs)} times"
        if job.view.state is JobState.FINISHED:
            assert len(str(job.logs()).splitlines()) == int(job.view.args[0]), f"{job.id} lost lines"
        return
    commits = jobs.commits(job)
    assert [commit["update"] for commit in commits] == list(range(len(commits))), job.id
    assert not (jobs.private(job) / "training-0.discarded.jsonl").exists(), f"updates of {job.id} were lost"
    seen: dict[int, list[int]] = {}
    for commit in commits:
        for shard in commit["shards"]:
            seen.setdefault(commit["epoch"], []).extend(shard["indices"])
    newest = max(seen, default=-1)
    for epoch, indices in seen.items():
        if epoch < newest or job.view.state is JobState.FINISHED:
            assert sorted(indices) == list(range(SAMPLES)), f"{job.id}, epoch {epoch}: samples missing or twice"
    if job.view.state is JobState.FINISHED:
        assert len(seen) == int(job.view.args[1]), f"{job.id} has {len(seen)} epochs: {job.view.args}"


def equal_bits(jobs: Jobs, ended: Sequence[Job]) -> int:
    """Return how many trainings have the bits of an undisturbed one. AssertionError for one that has others."""
    finished = [job for job in ended if job.view.state is JobState.FINISHED and job.view.framework != PLAIN]
    for length in sorted({int(job.view.args[1]) for job in finished}):
        right = jobs.parameters_hash(training(jobs, length, 1).wait(PATIENCE, progress=False))
        for job in finished:
            assert int(job.view.args[1]) != length or jobs.parameters_hash(job) == right, f"{job.id} has other bits"
    return len(finished)


def all_over(client: Client) -> bool:
    """True when every job has ended; one whose suspension came through late is resumed."""
    for job in client.jobs(state=JobState.SUSPENDED):
        job.resume()
    return all(job.view.state.final for job in client.jobs())


def kill_again_and_again(root: Path, kills: int, seed: int, victim: Victim) -> str:
    """Do it; what happened, in a sentence. AssertionError for the first promise that was not kept."""
    dice = random.Random(seed)
    server = LocalServer(root, slots=SLOTS, traits={**TRAITS, **victim.traits})
    jobs = Jobs(server.start())
    try:
        with Load(jobs, random.Random(dice.random()), victim.plain) as load:
            referee = Referee(jobs, load, random.Random(dice.random()))
            for number in range(kills):
                time.sleep(dice.uniform(0, dice.choice((0.5, 3.0, 8.0))))
                done = victim.hit(server, dice)
                referee.right_soon()
                print(f"  kill {number + 1}, {done}: {len(load.acknowledged)} jobs, all right", flush=True)
        assert not load.trouble, load.trouble
        client = jobs.client = server.client()
        until(lambda: all_over(client), "the end of all jobs", PATIENCE)
        ended = list(client.jobs())
        for job in ended:
            once(jobs, job)
        same = equal_bits(jobs, ended)
        finished = sum(job.view.state is JobState.FINISHED for job in ended)
        verbs = ", ".join(f"{count} {verb}" for verb, count in sorted(load.verbs.items()))
        return (
            f"{kills} kills, {len(ended)} jobs ({finished} finished), {verbs}: none lost, none twice, {same} trainings "
            f"with equal bits, right at most {referee.slowest:.1f} s after the answer{victim.summary()}"
        )
    finally:
        if not server.running:
            server.start()
        server.stop()


def _lines(path: Path) -> list[dict[str, Any]]:
    """The whole lines of a file that is being written."""
    return [json.loads(line) for line in path.read_bytes().split(b"\n")[:-1]] if path.exists() else []


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--victim", choices=VICTIMS, default=ServerVictim.name, help="what is killed (default server)")
    parser.add_argument("--kills", type=int, default=50, help="how many (default 50)")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6), help="default: a new one")
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    root = ROOT / options.victim
    shutil.rmtree(root, ignore_errors=True)  # what a broken promise leaves behind stays there until the next run
    try:
        victim = VICTIMS[options.victim]()
    except Missing as missing:
        print(f"skipped: {missing}")
        return 0
    begun = time.monotonic()
    try:
        print(kill_again_and_again(root, options.kills, options.seed, victim))
    finally:
        victim.stop()
    print(f"{time.monotonic() - begun:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
