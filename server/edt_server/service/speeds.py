"""What jobs were measured to do at each size, told to the core where an instance group divides by it.

A speed is committed updates a second since the job's present generation was formed; the batch of an update does not
depend on the number of workers, so updates compare as samples would. Told only when there is something to tell: a new
size, or a speed that is another one, so that entitlements stand still while speeds do.
"""

from __future__ import annotations

from edt_sdk.schemas import events as kinds
from edt_sdk.schemas.job import JobProgress
from edt_server.core.events import SpeedMeasured
from edt_server.ledger import Change

PERIOD = 60.0  # seconds between two looks at a job
_SECONDS, _UPDATES = 10.0, 10  # a shorter measurement is none
_SAME = 0.1  # differences below a tenth are noise


class Speeds:
    """When it is time to look at which job's speed."""

    def __init__(self) -> None:
        self._next: dict[str, float] = {}

    def due(self, job: str, now: float) -> bool:
        """True once in each period of a job."""
        if now < self._next.get(job, now):
            return False
        self._next[job] = now + PERIOD
        return True

    def moved(self, job: str, now: float) -> None:
        """Its slots change: its new size is looked at as soon as there can be enough to go by."""
        if job in self._next:
            self._next[job] = min(self._next[job], now + _SECONDS)

    def too_early(self, job: str, now: float) -> None:
        """There was too little to go by: look again as soon as there can be enough."""
        self._next[job] = now + _SECONDS

    def forget(self, job: str) -> None:
        """The job has ended."""
        self._next.pop(job, None)


def measure(change: Change, job: str, progress: JobProgress, heard: float) -> bool | None:
    """Tell the core how fast the job is at its present size, if that is news; `progress` was heard at that time.

    Returns:
        Whether it was news; None when the job has run too short a while at this size.
    """
    core = change.core
    if job not in core.jobs or not core.group_of(job).throughput_aware:
        return False
    generations = change.ledger.store.events(job=job, kinds=[kinds.GENERATION])
    if not generations:
        return None
    formed = generations[-1]
    updates, seconds = progress.update - (formed.data.get("update") or 0), heard - formed.time
    size = len(formed.data.get("workers") or ())
    if size < 1 or updates < _UPDATES or seconds < _SECONDS:
        return None
    known, speed = core.speeds(job), updates / seconds
    if size in known and abs(speed - known[size]) <= _SAME * known[size]:
        return False
    change.apply(SpeedMeasured(job, {**known, size: float(f"{speed:.4g}")}))
    return True
