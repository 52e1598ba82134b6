"""A ledger that is played with: jobs that were launched, and what their supervisors report; no processes."""

from __future__ import annotations

import time

from edt_sdk.schemas.job import JobSpec
from edt_sdk.schemas.wire import control
from edt_sdk.schemas.wire.paths import JobPaths
from edt_server.core.events import SlotsChanged
from edt_server.jobs.submission import Submission
from edt_server.ledger import recovery, reports, suspension
from edt_server.ledger.ledger import Ledger
from edt_server.service import views
from tests.server.core.invariants import check


class Play:
    """A ledger with three slots, jobs that were launched, and what they report."""

    def __init__(self, folder):
        self.folder = folder
        self.ledger = Ledger.open(f"sqlite:///{folder / 'edt.db'}")
        slots = tuple(control.Slot(id=k, host="h") for k in range(3))
        self.do(lambda change: change.apply(SlotsChanged(slots)))
        self.numbers: dict[str, int] = {}

    def do(self, work):
        value, self.outcome = self.ledger.change(work)
        check(self.ledger.core)
        for job in self.outcome.launches:
            self.supervise(job)
        return value

    def paths(self, job):
        return JobPaths(self.folder, "ann", job)

    def supervise(self, job):
        attempt = self.row(job).attempt + 1
        key = "k" * 39 + str(attempt)
        self.ledger.change(lambda change: change.tx.update_job(job, attempt=attempt, public_key=key))

    def submit(self, job, max_workers=3):
        spec = JobSpec(name=job, main="train.py", max_workers=max_workers)
        self.do(Submission(job, "ann", spec, "/python", 1, self.paths(job)).enter)

    def say(self, job, report):
        self.numbers[job] = self.numbers.get(job, 0) + 1
        numbered = control.Numbered(number=self.numbers[job], time=time.time(), report=report)
        self.do(lambda change: reports.take(change, job, numbered))

    def train(self, job):
        self.say(job, control.TrainingStarted(training=0, shards=3, epochs=1))
        self.form(job)

    def form(self, job):
        slots = self.ledger.core.holding(job)
        for worker, slot in enumerate(slots):
            self.say(job, control.WorkerStarted(worker=worker, slot=slot, pid=100 + worker))
        members = tuple(range(len(slots)))
        pids = tuple(100 + worker for worker in members)
        formed = control.GenerationFormed(training=0, number=1, workers=members, slots=slots, pids=pids, update=0)
        self.say(job, formed)

    def leave(self, job):
        for slot in self.ledger.core.leaving(job):
            self.say(job, control.SlotReturned(slot=slot, worker=None, exit_code=0))

    def suspend(self, job):
        return self.do(lambda change: suspension.suspend(change, job, "ann"))

    def resume(self, job, checkpoint=""):
        return self.do(lambda change: suspension.resume(change, self.paths(job), job, "ann", checkpoint))

    def budget(self, job, budget):
        return self.do(lambda change: suspension.set_budget(change, job, budget))

    def lose(self, job, **what):
        self.do(lambda change: recovery.supervisor_lost(change, job, "Killed", **what))

    def row(self, job):
        return self.ledger.row(job)

    def state(self, job):
        return self.row(job).state

    def workers(self, job):
        events = self.ledger.store.events(job=job, kinds=views.WORKER_KINDS)
        return [each["worker"] for each in views.running_workers(events, self.ledger.core.slots)]

    def texts(self, job, kind):
        return [event.text for event in self.ledger.store.events(job=job, kinds=[kind])]
