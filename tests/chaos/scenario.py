"""One training, undisturbed or with everything happening to it that a plan says."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path

from edt_sdk import EdtError, Job
from edt_sdk.schemas.job import JobState
from tests.chaos import processes
from tests.chaos.plan import Event, Kind, Training
from tests.chaos.processes import hit, of_job
from tests.e2e.harness import Jobs

ZOO = Path(__file__).parent / "jobs"
# Nothing that happens takes longer than this to be recovered from, or it never will be.
PATIENCE = 120.0
SLOTS = 4
# A queue without jobs, for which slots are kept back.
_OTHERS = "others"
Say = Callable[[str], None]


def submit(jobs: Jobs, training: Training, epochs: int, workers: int = SLOTS) -> Job:
    """Start it, on at most so many workers."""
    arguments = {
        "model": training.model,
        "optimizer": training.optimizer,
        "shards": training.shards,
        "loaders": training.loaders,
        "epochs": epochs,
    }
    args = [part for name, value in arguments.items() for part in (f"--{name}", str(value))]
    return jobs.client.submit(ZOO, main="zoo.py", args=args, name=training.name, max_workers=workers, progress=False)


class Disturbed:
    """A training and what happens to it.

    Args:
        jobs: its server; killed and started again as the plan says.
        say: told every event.
    """

    def __init__(self, jobs: Jobs, say: Say) -> None:
        self._jobs = jobs
        self._say = say
        self._committed = 0
        self.done = 0

    def run(self, training: Training, epochs: int, plan: list[Event]) -> Job:
        """Let everything happen, then wait for the end; the job as it ended.

        Events that come after the job's end are left out.
        """
        self._keep_back(0)
        job = submit(self._jobs, training, epochs)
        folder = self._jobs.private(job)
        for event in plan:
            if event.settled:
                self._wait_for_updates(job, folder)
            time.sleep(event.pause)
            if self._is_over(folder):
                break
            self._happen(event, job, folder)
            self._committed = self._count(job)
        self._recover(job)
        return self._jobs.client.job(job.id).wait(PATIENCE + 180, progress=False)

    def _happen(self, event: Event, job: Job, folder: Path) -> None:
        what = event.kind.value
        running = of_job(folder)
        match event.kind:
            case Kind.RESIZE:
                size, rest = divmod(event.dice * SLOTS, 1)
                by_plan = rest < 0.5
                what = f"{what} to {size + 1:.0f}, by " + ("the plan" if by_plan else "its maximum")
                self._verb(lambda: self._resize(job, 1 + int(size), by_plan))
            case Kind.SUSPEND:
                self._verb(lambda: self._jobs.client.job(job.id).suspend())
            case Kind.RESUME:
                self._verb(lambda: self._jobs.client.job(job.id).resume())
            case Kind.KILL_WORKER | Kind.STOP_WORKER if running.workers:
                victim = running.workers[int(event.dice * len(running.workers))]
                hit(victim, signal.SIGKILL if event.kind is Kind.KILL_WORKER else signal.SIGSTOP)
            case Kind.KILL_WORKERS:
                count = 1 + int(event.dice * len(running.workers))
                what = f"kill {min(count, len(running.workers))} of {len(running.workers)} workers"
                for victim in running.workers[:count]:
                    hit(victim, signal.SIGKILL)
            case Kind.KILL_DRIVER:
                for victim in running.drivers:
                    hit(victim, signal.SIGKILL)
            case Kind.KILL_ZYGOTES:
                count = 1 + int(event.dice * len(running.zygotes))
                what = f"kill {min(count, len(running.zygotes))} of {len(running.zygotes)} zygotes"
                for victim in running.zygotes[:count]:
                    hit(victim, signal.SIGKILL)
            case Kind.KILL_SUPERVISOR:
                for victim in running.supervisors:
                    hit(victim, signal.SIGKILL)
            case Kind.KILL_SERVER:
                self._jobs.server.kill()
            case Kind.START_SERVER:
                self._start_server()
            case Kind.KILL_EVERYTHING:
                if self._jobs.server.running:
                    self._jobs.server.kill()
                for victim in running.all:
                    hit(victim, signal.SIGKILL)
        self.done += 1
        self._say(f"    {self._committed:5} updates: {what}")

    def _resize(self, job: Job, size: int, by_plan: bool) -> None:
        """By the plan the job goes on asking for all slots, so that workers are kept ready for those it lacks."""
        self._jobs.client.job(job.id).update(max_workers=SLOTS if by_plan else size)
        self._keep_back(SLOTS - size if by_plan else 0)

    def _keep_back(self, slots: int) -> None:
        client = self._jobs.client
        if _OTHERS not in {group.name for group in client.instance_groups()}:
            client.create_instance_group(_OTHERS, lend=0)
        client.update_instance_group(_OTHERS, own=slots)

    def _verb(self, call: Callable[[], object]) -> None:
        try:
            call()
        except EdtError as refused:
            # The job may have ended a moment ago; anything else must not be refused.
            if "FINISHED" not in str(refused):
                raise

    def _start_server(self) -> None:
        self._jobs.server.start()
        self._jobs.client = self._jobs.server.client()

    def _recover(self, job: Job) -> None:
        """Whatever the plan left undone: a server that answers, a job that may run."""
        if not self._jobs.server.running:
            self._start_server()
        fresh = self._jobs.client.job(job.id)
        if fresh.state is JobState.SUSPENDED:
            fresh.resume()

    def _wait_for_updates(self, job: Job, folder: Path) -> None:
        deadline = time.monotonic() + PATIENCE
        while self._count(job) <= self._committed and not self._is_over(folder):
            if not self._jobs.server.running and not of_job(folder).supervisors:
                return  # nobody is left who could start it again
            if time.monotonic() > deadline:
                raise AssertionError(f"no update for {PATIENCE:.0f} s: {self._where(job)}")
            time.sleep(0.02)

    def _where(self, job: Job) -> str:
        if not self._jobs.server.running:
            return "the server is down"
        view = self._jobs.client.job(job.id).view
        return f"{view.state.value} {view.message} {view.reason}"

    def _count(self, job: Job) -> int:
        commits = self._jobs.commits(job)
        return commits[-1]["update"] + 1 if commits else 0

    def _is_over(self, folder: Path) -> bool:
        return any(report["type"] == "JobEnded" for report in processes.journal(folder))
