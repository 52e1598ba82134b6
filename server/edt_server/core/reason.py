"""Explain why a job holds less than it asked for: in plain words with numbers, computed on demand.

Pure: from a `Situation`, which `PoolView` makes of the core's state, to a `Reason`. Under a divisor rule the answer is
always the same comparison: the job's claim to its next slot, and the weakest claim of another that still won
(`cutoff.py`). The words compare priorities, and the claims themselves are the reason's details.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from edt_sdk.schemas.job import Reason
from edt_sdk.schemas.plan import InstanceGroup
from edt_server.core.cutoff import Cut
from edt_server.core.deadlines import NEVER
from edt_server.core.job import CoreJob
from edt_server.core.pool import Pool
from edt_server.core.rule import Rule

Names = Callable[[str], str]
Ends = Mapping[str, tuple[float, float]]
_FEW = 64  # most jobs for which the division is repeated to improve one sentence
_MOST_LISTED = 4  # jobs by name in a sentence
_MOST_NAMED = 100  # jobs in the numbers of a reason: a list of reasons must not become all names


@dataclass(frozen=True, slots=True)
class SlotForecast:
    """When a job should get slots, seconds since the epoch: at `earliest`, and by `latest`, None when unknown."""

    earliest: float
    latest: float | None


@dataclass(frozen=True, slots=True)
class Situation:
    """The data of the sentence about one job.

    Attributes:
        group: the instance group with the policy that applies to the job.
        cut: what keeps it from one slot more.
        slots: the slots of its resource group.
        most: slots its group can have at best, by the plan.
        running: by id, the jobs of the same resource group that are entitled to slots, in order of arrival.
        leaving: the jobs that have slots to leave.
        ahead: how many waiting jobs and queues are before it, 0 when it is next.
        turns: whether running jobs make room for it in turn.
        if_gone: what it would be entitled to without the rival of the cut, None when that was not computed.
        forecast: when it should get a slot, or one more. None when nothing is known.
        now: the time, None for a sentence without a forecast.
    """

    me: CoreJob
    group: InstanceGroup
    cut: Cut
    slots: int
    most: int
    running: Mapping[str, CoreJob]
    leaving: Sequence[CoreJob]
    ahead: int = 0
    turns: bool = False
    if_gone: int | None = None
    forecast: SlotForecast | None = None
    now: float | None = None


class PoolView:
    """The jobs of a resource group between two events, in order of arrival.

    One view serves all reasons, so that a list of them costs one look at every job, not one per job and reason.
    """

    def __init__(self, pool: Pool, jobs: Iterable[CoreJob]) -> None:
        self._pool = pool
        self._jobs = {job.name: job for job in jobs}
        self._running = {job.name: job for job in self._jobs.values() if job.target}
        self._leaving = tuple(job for job in self._jobs.values() if job.leaving)
        self._turns = sorted(pool.turns.waiting_turns())
        self._turn_ends = pool.turns.ends()
        self._takes_turns = pool.turns.next_end() < NEVER
        priorities = {job.priority if job.floor == 1 else -1 for job in self._jobs.values()}
        self._even = len(priorities) == 1 and -1 not in priorities
        self._if_gone: dict[str, Rule] = {}
        self._ends: Ends = {}
        self._known: tuple[list[tuple[float, str]], list[tuple[float, str]]] = [], []

    def situation(self, me: CoreJob, group: InstanceGroup, now: float | None, ends: Ends) -> Situation:
        """Return the situation of a job of this pool in `group`, `now` and `ends` as in `Core.reason`."""
        cut = self._pool.rule.cut(me.name)
        return Situation(
            me=me,
            group=group,
            cut=cut,
            slots=len(self._pool.slots),
            most=self._pool.rule.most(group.name),
            running=self._running,
            leaving=self._leaving,
            ahead=self._ahead(me) if me.target == 0 else 0,
            turns=self._takes_turns,
            if_gone=self._if_rival_ends(cut.rival, me),
            forecast=self._forecast(me, group.quantum, ends),
            now=now,
        )

    def _ahead(self, job: CoreJob) -> int:
        """Return how many jobs and queues wait for a turn before this job, or before its queue."""
        return bisect_left(self._turns, (self._pool.turns.queue_of(job.name) or job).turn)

    def _if_rival_ends(self, rival: str, job: CoreJob) -> int | None:
        """Return the job's target without its rival. None where that takes too long to compute."""
        if rival not in self._jobs or len(self._jobs) > _FEW:
            return None
        rule = self._if_gone.get(rival)
        if rule is None:
            rule = self._if_gone[rival] = Rule(self._pool.groups, len(self._pool.slots))
            for name in self._jobs:
                if name != rival:
                    rule.put(self._pool.rule.claim(name))
            for queue in self._pool.turns.queues():
                rule.set_turn(queue.group, queue.user, queue.turn)
            rule.settle()
        return rule.target(job.name)

    def _forecast(self, me: CoreJob, quantum: float, ends: Ends) -> SlotForecast | None:
        """Return when turns of `quantum` seconds and ends of jobs make room for the job, as far as they are known."""
        if len(me.held) < me.target:
            return None  # its slots are already on the way
        turns = [] if me.target else self._turn_ends
        firsts, lasts = self._ends_of_others(me, ends)
        if not (turns or firsts):
            return None
        earliest = min([*turns[:1], *firsts[:1]])
        if me.target:
            return SlotForecast(earliest, lasts[0])
        # Each turn that ends makes room for one job if all are equal. A job that needs many slots or has less weight
        # may be passed over, so that no latest time can be given.
        return SlotForecast(earliest, _nth(self._ahead(me), turns, quantum, lasts) if self._even else None)

    def _ends_of_others(self, me: CoreJob, ends: Ends) -> tuple[list[float], list[float]]:
        """Return the earliest and the latest ends of the other jobs that hold slots, each ascending."""
        if ends is not self._ends:
            here = [name for name in ends if name in self._jobs and self._jobs[name].held]
            self._ends = ends
            self._known = sorted((ends[name][0], name) for name in here), sorted((ends[name][1], name) for name in here)
        firsts, lasts = ([at for at, name in known if name != me.name] for known in self._known)
        return firsts, lasts


def _nth(number: int, turns: list[float], quantum: float, ends: list[float]) -> float | None:
    """Return when the `number`-th slot (from 0) becomes free, None when unknown: turns end repeatedly, jobs once."""

    def turn(n: int) -> float:
        if n < 0:
            return float("-inf")
        return turns[n % len(turns)] + quantum * (n // len(turns)) if turns else NEVER

    if turns and turns[-1] - turns[0] > quantum:
        return None  # turns of different lengths
    # The first `jobs` slots come from jobs that end, the others from turns: take the best such mixture.
    mixtures = range(min(number + 1, len(ends)) + 1)
    found = min(max(turn(number - jobs), ends[jobs - 1] if jobs else float("-inf")) for jobs in mixtures)
    return None if found == NEVER else found


def explain(at: Situation, names: Names) -> Reason | None:
    """Return the reason of a job that is not suspended, None when it holds what it asked for.

    The codes are:

    - "suspended": a user suspended it, or it has reached its budget of epochs (`suspended`).
    - "never_fits": it needs more than there can be.
    - "busy": others run, and it waits.
    - "starting": others are still leaving slots that it is entitled to.
    - "share": it has its share.
    - "capped": it has every slot there is.
    - "limit": its group may not have more.
    - "order": its queue serves others first.
    - "unit": what is left is less than it takes at once.
    - "quota": its group, or its owner there, has as many jobs running as a quota allows (`quota.py`).
    - "slower": more slots were measured to make it slower.
    """
    me = at.me
    if len(me.held) >= me.asked:
        return None
    numbers: dict[str, Any] = {"slots": at.slots, "priority": me.priority, "since": me.short_since}
    if at.cut.borrowed:
        numbers["borrowed"] = dict(at.cut.borrowed)
    if at.forecast is not None:
        numbers["forecast"] = {"earliest": at.forecast.earliest, "latest": at.forecast.latest}
    if at.cut.why == "share" and 0 < me.target == len(me.held) < at.slots:
        code, text, details = _beaten(at, names, numbers)
    else:
        code, text, details = *_plainly(at, names, numbers), ""
    text += _borrowed(at.cut) + ("" if code == "never_fits" else _when(at, names, numbers))
    held = len(me.held)
    return Reason(code=code, text=text, details=details, held=held, entitled=me.target, asked=me.asked, numbers=numbers)


def _plainly(at: Situation, names: Names, numbers: dict[str, Any]) -> tuple[str, str]:
    """Return code and text of every reason that no comparison of claims decided."""
    me = at.me
    if at.slots == 0:
        numbers.update(needed=me.floor)
        return "never_fits", "There are no slots on this server: the job waits until one is added."
    if me.floor > at.most:
        numbers.update(most=at.most, needed=me.floor)
        return "never_fits", never(me.floor, at.most, at.slots, at.group)
    if me.target == 0:
        return _waiting(at, names, numbers)
    if len(me.held) < me.target:
        return "starting", _starting(me, at.leaving, at.slots, names, numbers)
    if me.target == at.slots:
        return "capped", f"It has all {_count(at.slots, 'slot')} of this server, and could use {me.asked}."
    start = _start(at)
    match at.cut.why:
        case "order":
            numbers["rival"] = at.cut.rival
            return "order", f"{start}: {_policy(at.group)}, and {names(at.cut.rival)} comes before it."
        case "borrow" | "lend":
            return "limit", f"{start}: {_limit(at, numbers)}"
        case "unit":
            return "unit", f"{start}: what is left is less than it takes at once."
        case "slower":
            return "slower", f"{start}: more were measured to be slower."
        case _:
            return "share", f"{start}: {_keepers(at, names, numbers)}"


def _start(at: Situation) -> str:
    return f"It has {len(at.me.held)} of {_count(at.slots, 'slot')}"


def never(needed: int, most: int, slots: int, group: InstanceGroup) -> str:
    """Return the sentence that a job which needs so many slots at once can never run in a group."""
    if most == slots:
        there = f"its resource group has {slots}"
    elif most == group.user_slots:
        there = f"a user has at most {most} of {slots} there (user_slots)"
    else:
        there = f"the plan gives that group at most {most} of {slots}"
    return (
        f"It needs {_count(needed, 'slot')} at once, which the instance group {group.name!r} can never have: {there}. "
        "Ask for fewer min_workers or another instance group."
    )


def suspended(me: CoreJob) -> Reason:
    """Return the reason of a suspended job."""
    again = f"job.resume(), or at a shell: edt resume {me.name}"
    leave = f"its workers still leave {_count(len(me.leaving), 'slot')}" if me.leaving else ""
    numbers = {"epoch": me.reached, "epochs": me.epochs} if me.reached else {}
    if me.reached:
        more = f", and {leave}" if leave else ""
        text = f"It has reached {me.reached} of {me.epochs} epochs; its search decides{more}."
    elif leave:
        text = f"It is being suspended: {leave}. To go on: {again}"
    else:
        text = f"It is suspended and needs no slot. To go on: {again}"
    return Reason(code="suspended", text=text, held=len(me.held), entitled=me.target, asked=me.asked, numbers=numbers)


def _waiting(at: Situation, names: Names, numbers: dict[str, Any]) -> tuple[str, str]:
    running = list(at.running.values())  # without the job itself, which holds nothing
    numbers.update(running=[each.name for each in running[:_MOST_NAMED]], ahead=at.ahead)
    need = f"It needs {_count(at.me.floor, 'slot')} at once. " if at.me.floor > 1 else ""
    if not running or at.cut.why in ("borrow", "lend"):
        return "limit", f"{need}It waits: {_limit(at, numbers)}"
    if at.group.user_slots is not None:
        mine = sum(each.target for each in running if each.owner == at.me.owner and each.group == at.me.group)
        if mine + at.me.floor > at.group.user_slots:
            return "limit", f"{need}It waits: {_user_limit(at, numbers)}"
    listed = _named(running, names)
    if at.group.policy != "fairshare" and at.cut.why != "turn":
        before = [each for each in running if each.group == at.me.group]
        rival = at.cut.rival or (before[-1].name if before else "")
        if rival and rival not in at.running:  # the queue waits, and it is not the first in it
            numbers["rival"] = rival
            return "order", f"{need}It waits: {_policy(at.group)}, and {names(rival)}, which waits, comes before it."
        if before:  # else no job of its queue runs, and the order of the queue explains nothing
            numbers["rival"] = rival
            who = f"{_named(before, names)} {'comes' if len(before) == 1 else 'come'}"
            return "order", f"{need}It waits: {_policy(at.group)}, and {who} before it."
    if len(running) < at.slots:
        taken = f"{listed} {'has' if len(running) == 1 else 'have'} the slots"
    elif at.slots == 1:
        taken = f"The only slot has a job ({listed})"
    else:
        taken = f"Each of the {at.slots} slots has a job of its own ({listed})"
    ahead = _count(at.ahead, "job") if at.group.policy == "fairshare" else str(at.ahead)
    place = "it is next" if at.ahead == 0 else f"{ahead} {'is' if at.ahead == 1 else 'are'} before it"
    if at.turns:
        numbers["quantum"] = at.group.quantum
        if at.group.policy != "fairshare":
            who = f"its queue takes turns of {at.group.quantum:g} s with others"
            return "busy", f"{need}{taken}, and {who}: {place}."
        return "busy", f"{need}{taken}, and jobs take turns of {at.group.quantum:g} s: {place}."
    return "busy", f"{need}{taken}, and none is taken from a job that runs: {place} when one of them ends."


def _starting(me: CoreJob, leaving: Sequence[CoreJob], slots: int, names: Names, numbers: dict[str, Any]) -> str:
    leavers = [each for each in leaving if each.name != me.name]
    missing = me.target - len(me.held)
    numbers.update(leaving={each.name: len(each.leaving) for each in (*leavers, me) if each.leaving})
    who = [f"{names(each.name)} is leaving {len(each.leaving)}" for each in leavers]
    if me.leaving:
        who.append(f"its own former workers are still in {len(me.leaving)}")
    text = (
        f"It gets {me.target} of {_count(slots, 'slot')} and has {len(me.held)} so far: "
        f"{missing} {'is' if missing == 1 else 'are'} on the way"
    )
    return f"{text} ({_list(who)})." if who else f"{text}."


def _beaten(at: Situation, names: Names, numbers: dict[str, Any]) -> tuple[str, str, str]:
    """Return the comparison that decided, between jobs or between their groups: code, text and details."""
    cut, me = at.cut, at.me
    rival = at.running.get(cut.rival) if cut.claimant == me.name else None
    who = names(cut.rival) if rival else f"the group {cut.rival}"
    numbers.update(claim=float(cut.worth), rival=cut.rival, rival_claim=float(cut.rival_worth), level=cut.level)
    if rival:
        numbers.update(rival_priority=rival.priority, rival_entitled=rival.target)
        if at.if_gone is not None:
            numbers["when_rival_ends"] = at.if_gone
        text = f"{who} {_stronger(cut, 'priority')} and gets {rival.target}."
    else:
        whom = "its group" if cut.claimant == at.group.name else f"the group {cut.claimant}"
        text = f"{who} {_stronger(cut, 'share', whom)}."
    return "share", f"{_start(at)}: {text}", _claims(at, who, whose=f"{who}'s" if rival else f"that of {who}")


def _stronger(cut: Cut, what: str, whom: str = "it") -> str:
    """Return how the rival compares: "has twice its priority (10000 vs 5000)"."""
    rival, mine = cut.rival_weight, cut.weight
    its = "its" if whom == "it" else f"{whom}'s"
    if _measured(cut):
        return f"gains more speed by the slot than {whom}"
    if rival == mine:
        return f"has the same {what} ({mine})" + (", came earlier" if cut.worth == cut.rival_worth else "")
    if rival < mine:
        return f"has a lower {what} ({rival} vs {mine}), takes its part"
    times = Fraction(rival, mine)
    if times.denominator > 1:
        return f"has a higher {what} ({rival} vs {mine})"
    return f"has {'twice' if times == 2 else f'{times} times'} {its} {what} ({rival} vs {mine})"


def _claims(at: Situation, who: str, whose: str) -> str:
    """Return the two claims that were compared, with their formula."""
    cut, me = at.cut, at.me
    mine = "Its claim" if cut.claimant == me.name else f"The claim of its group {cut.claimant}"
    verdict = "comes after"
    if cut.worth == cut.rival_worth:
        earlier = "arrived earlier" if cut.claimant == me.name else "came earlier"
        verdict = f"ties with and, as {who} {earlier if cut.rival_weight == cut.weight else 'weighs more'}, comes after"
    unit = cut.unit if cut.claimant == me.name else 1
    return (
        f"It could use {me.asked}. The strongest claims get the slots, and a claim to one more is the priority (of a "
        "group, the share) ÷ (slots held + ½). "
        f"{mine} to a {_ordinal(cut.held + 1)}, {_claim(cut.weight, cut.held, cut.unit, cut.worth)}, {verdict} "
        f"{whose} to its {_ordinal(cut.rival_held + 1)}, "
        f"{_claim(cut.rival_weight, cut.rival_held, unit, cut.rival_worth)}."
    )


def _keepers(at: Situation, names: Names, numbers: dict[str, Any]) -> str:
    running = [each for each in at.running.values() if each.name != at.me.name]
    numbers.update(rivals=[each.name for each in running[:_MOST_NAMED]])
    if not running:
        return "the rest is not for its group."
    listed = _named(running, names)
    if all(each.target == 1 for each in running):
        has = "has one slot" if len(running) == 1 else "have one slot each"
        return f"{listed} {has}, and a running job keeps its last."
    return f"{listed} {'keeps what it has' if len(running) == 1 else 'keep what they have'}."


def _limit(at: Situation, numbers: dict[str, Any]) -> str:
    name = at.cut.level or at.group.name
    numbers.update(limited=name, most=at.most)
    if at.cut.why == "borrow" and at.group.user_slots is not None and name == at.me.owner != at.group.name:
        return _user_limit(at, numbers)
    if at.cut.why == "borrow":
        return f"the group {name} may not borrow more."
    return f"what others own is not lent to the group {name}."


def _user_limit(at: Situation, numbers: dict[str, Any]) -> str:
    most = at.group.user_slots or 0
    numbers.update(quota="user_slots", limited=at.me.owner, most=most)
    return f"jobs of {at.me.owner} have at most {_count(most, 'slot')} in the instance group {at.group.name}."


def _policy(group: InstanceGroup) -> str:
    how = "the higher priority first" if group.policy == "priority" else "who came first"
    return f"the instance group {group.name} serves {how} (policy {group.policy})"


def _borrowed(cut: Cut) -> str:
    if not cut.borrowed:
        return ""
    lent = [f"{slots} from {group or 'nobody'}" for group, slots in cut.borrowed.items()]
    return f" It has borrowed {_list(lent)}, and gives back what the owner needs."


def _when(at: Situation, names: Names, numbers: Mapping[str, Any]) -> str:
    """Return when it gets more: as soon as its rival ends, at the forecast time, or both in one where they are one."""
    ends = ""
    if numbers.get("when_rival_ends", 0) > at.me.target:
        # Every forecast is about the other jobs. With one other job it is about that one.
        alone = len(at.running.keys() - {at.me.name}) == 1
        span = _span(at) if alone else ""
        ends = f" More when {names(numbers['rival'])} ends{f', in about {span}' if span else ''}."
        if alone:
            return ends
    span = _span(at)
    if not span or at.forecast is None:
        return ends
    if at.forecast.latest is None:
        return f"{ends} That may change in {span}."
    return f"{ends} It should get {'a slot' if at.me.target == 0 else 'more'} in {span}."


def _span(at: Situation) -> str:
    if at.forecast is None or at.now is None:
        return ""
    first = max(0.0, at.forecast.earliest - at.now)
    last = max(first, first if at.forecast.latest is None else at.forecast.latest - at.now)
    unit, size, digits = ("s", 1, 0) if last < 120 else ("min", 60, 0) if last < 7200 else ("h", 3600, 1)
    low, high = (f"{value / size:.{digits}f}".removesuffix(".0") for value in (first, last))
    # One unit for both: "79 min to 5.3 h" is read as a long time and a short one.
    if low == high:
        return f"{high} {unit}"
    return f"at most {high} {unit}" if low == "0" else f"{low} to {high} {unit}"


def _measured(cut: Cut) -> bool:
    return Fraction(2 * cut.weight, 2 * cut.held + cut.unit) != cut.worth


def _claim(weight: int, held: int, unit: int, worth: Fraction) -> str:
    if Fraction(2 * weight, 2 * held + unit) != worth:
        return "by measured speed"  # the worth has no unit that users know
    return f"{weight} ÷ {held + unit / 2:g} = {_number(worth)}"


def _number(value: Fraction) -> str:
    return str(value.numerator) if value.denominator == 1 else f"{float(value):.1f}"


def _ordinal(number: int) -> str:
    last = "th" if 10 <= number % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{last}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _named(jobs: Sequence[CoreJob], names: Names) -> str:
    # Most of thousands of reasons name the same many jobs, and show four.
    return _list([names(job.name) for job in jobs[:_MOST_LISTED]], len(jobs))


def _list(items: Sequence[str], total: int | None = None) -> str:
    """Return the first few items of a list of `total` in words."""
    shown, total = list(items[:_MOST_LISTED]), len(items) if total is None else total
    if total > _MOST_LISTED:
        shown.append(f"{total - _MOST_LISTED} more")
    return " and ".join([", ".join(shown[:-1]), shown[-1]]) if len(shown) > 1 else "".join(shown)
