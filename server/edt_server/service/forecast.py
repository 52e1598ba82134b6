"""Forecast when the jobs that run should end, and with a copy of the core when a job not yet submitted would start."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from edt_sdk.schemas.errors import Unprocessable
from edt_sdk.schemas.forecast import Forecast, more_than_exist
from edt_sdk.schemas.frameworks import Framework
from edt_sdk.schemas.job import JobProgress, JobSpec, Reason
from edt_server.core.core import Core
from edt_server.core.events import JobDemand
from edt_server.jobs import sized
from edt_server.ledger import arrival
from edt_server.service.coming_hosts import with_hosts
from edt_server.service.what_if import Now, settle

SOONER, LATER = 0.5, 2.0
Ends = Mapping[str, tuple[float, float]]

_ME = "?"  # no id of a job looks like this
_UPDATES_TO_LEAVE = 2  # a worker that is revoked during an update leaves at the end of the next one
_MOST_NAMED = 3


def forecast(now: Now, ends: Ends, owner: str, spec: JobSpec) -> Forecast:
    """Return when the job would start if it were submitted, and on how many slots it would run.

    `ends` has (earliest, latest) end of jobs, seconds since the epoch. Unprocessable for an unknown instance group.
    """
    spec = sized(spec)
    core = copy.deepcopy(now.core)
    group = core.plan.group(spec.instance_group)
    try:
        core.fits(group.name, spec.min_workers, spec.slots_per_unit)
    except Unprocessable as never:
        if never.ids.get("field") == "instance_group":
            raise
        if not now.coming.get(group.resource_group):
            return Forecast(code="never", text=f"It would never start. {never}")
    core.apply(arrival(_ME, owner, msgspec.structs.replace(spec, instance_group=group.name)), now.time)
    at_once = len(core.holding(_ME))
    leaving = {job: len(core.leaving(job)) for job in core.jobs if core.leaving(job)}
    settle(core, now.time)
    if core.holding(_ME):
        begins = len(core.holding(_ME))
        # A job can use more than its first slots only when it trains, so it grows in a second step.
        core.apply(JobDemand(_ME, spec.max_workers), now.time)
        settle(core, now.time)
        grows = "while it has the load" if spec.framework == Framework.SERVE else "as soon as it trains"
        starts = _starts(now, core, ends, {} if at_once else leaving, begins, group.resource_group, grows)
        many = more_than_exist(spec.max_workers, core.slots_in(group.resource_group))
        return msgspec.structs.replace(starts, text=f"{starts.text} {many}".rstrip())
    reason = core.reason(_ME, lambda job: now.names.get(job, job), now=now.time, ends=ends)
    return _waits(now, with_hosts(reason, now.coming.get(group.resource_group, ())))


def _starts(
    now: Now, core: Core, ends: Ends, leaving: Mapping[str, int], begins: int, pool: str, when: str
) -> Forecast:
    slots = core.slots_in(pool)
    free = sum(core.resource_group_of(slot) == pool for slot in now.core.free())
    held = len(core.holding(_ME))
    grows = f", and grow to {held} {when}" if held > begins else ""
    on = f"on {begins} of {_slots(slots)}"
    if not leaving:
        text = f"It would start at once, {on} ({free} {'is' if free == 1 else 'are'} free){grows}.{_others(now, core)}"
        return Forecast(code="now", text=text, start_low=0.0, start_high=0.0, slots=held)
    who = _list([now.names.get(job, job) for job in leaving])
    high = _time_to_leave(now, ends, leaving)
    within = "" if high is None else f", which takes up to {_seconds(high)}"
    have = "has" if len(leaving) == 1 else "have"
    text = f"It would start {on} as soon as {who} {have} made room{within}{grows}.{_others(now, core)}"
    return Forecast(code="soon", text=text, start_low=0.0, start_high=high, slots=held)


def _waits(now: Now, reason: Reason | None) -> Forecast:
    text = "" if reason is None else reason.text
    if reason is not None and reason.code == "never_fits":
        return Forecast(code="never", text=f"It would never start. {text}")
    window = {} if reason is None else reason.numbers.get("forecast") or {}
    low, high = (window.get(end) for end in ("earliest", "latest"))
    unknown = "" if window else " When that will be is not known: nothing that runs has told how far it is."
    return Forecast(
        code="waits",
        text=f"It would wait. {text}{unknown}",
        start_low=None if low is None else max(0.0, low - now.time),
        start_high=None if high is None else max(0.0, high - now.time),
    )


def _time_to_leave(now: Now, ends: Ends, leaving: Mapping[str, int]) -> float | None:
    """Return the seconds until all these jobs have left their slots, None where a rate is not known."""
    times: list[float] = []
    for job in leaving:
        progress = now.progress.get(job)
        if progress is None or job not in ends or progress.total_updates <= progress.update:
            return None
        times.append((ends[job][1] - now.time) / (progress.total_updates - progress.update))
    return max(0.0, _UPDATES_TO_LEAVE * max(times))


def _others(now: Now, core: Core) -> str:
    """Return the sentence on jobs that would hold fewer slots than now."""
    before = {job: len(now.core.holding(job)) for job in now.core.jobs}
    lose = [(job, held, len(core.holding(job))) for job, held in before.items() if len(core.holding(job)) < held]
    if not lose:
        return ""
    parts = [f"{now.names.get(job, job)} from {held} to {left}" for job, held, left in lose[:_MOST_NAMED]]
    more = [f"{len(lose) - _MOST_NAMED} more jobs too"] if len(lose) > _MOST_NAMED else []
    return f" Slots would go over to it: {_list([*parts, *more])}."


def _list(items: list[str]) -> str:
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"


def _slots(count: int) -> str:
    return "1 slot" if count == 1 else f"{count} slots"


def _seconds(value: float) -> str:
    if value < 1:
        return "1 s"
    return f"{value:.0f} s" if value < 120 else f"{value / 60:.0f} min"


@dataclass(frozen=True, slots=True)
class _Rate:
    since: float
    first: int
    heard: float
    update: int
    total: int


class ForecastRates:
    """How fast the jobs that run train, and from that a range in which each should end.

    In memory only, from the progress messages. A rate is an average since the first message of the job's present
    training. It changes with the job's slots, so the remaining time may be half of the estimate or twice as much.
    """

    def __init__(self) -> None:
        self._rates: dict[str, _Rate] = {}

    def heard(self, job: str, progress: JobProgress, now: float) -> None:
        """Take the job's progress at `now`, seconds since the epoch."""
        before = self._rates.get(job)
        # Fewer updates mean that some were lost, or a new training. Either way the average starts again.
        if before is None or progress.update < before.update or progress.total_updates != before.total:
            self._rates[job] = _Rate(now, progress.update, now, progress.update, progress.total_updates)
        elif progress.update > before.update:
            self._rates[job] = _Rate(before.since, before.first, now, progress.update, before.total)

    def forget(self, job: str) -> None:
        """Drop the rate of a job that has ended or lost its slots."""
        self._rates.pop(job, None)

    def ends(self) -> dict[str, tuple[float, float]]:
        """Return job → (earliest, latest) end, seconds since the epoch, for jobs that were seen to make progress."""
        found: dict[str, tuple[float, float]] = {}
        for job, rate in list(self._rates.items()):
            done, seconds = rate.update - rate.first, rate.heard - rate.since
            if done > 0 and seconds > 0 and rate.total > rate.update:
                left = (rate.total - rate.update) * seconds / done
                found[job] = rate.heard + SOONER * left, rate.heard + LATER * left
        return found
