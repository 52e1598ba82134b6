"""Why a job holds less than it asked for: one sentence with numbers, worked out when somebody asks.

Pure: from the standings of all jobs to a `Reason`. Under a divisor rule the answer is always the same comparison: the
job's claim to its next slot, and the weakest claim of another job that still beat it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from edt_sdk.schemas.job import Reason
from edt_server.core.webster import Claim, divide

Names = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class Standing:
    """One job as the rule sees it; counts are slots. `short_since` in seconds since the epoch, None when not short."""

    job: str
    priority: int
    asked: int
    held: int
    leaving: int
    entitled: int
    arrival: int
    short_since: float | None
    suspended: bool = False


def explain(job: str, standings: Sequence[Standing], slots: int, names: Names) -> Reason | None:
    """The reason of `job`, None when it holds what it asked for and is not suspended.

    Codes: "suspended" a person suspended it; "never_fits" there are no slots; "busy" every slot has a job of its own;
    "starting" slots it is entitled to are still being left by others; "share" it has its share; "capped" it has every
    slot there is.
    """
    me = next(each for each in standings if each.job == job)
    if me.suspended:
        return _suspended(me)
    if me.held >= me.asked:
        return None
    others = [each for each in standings if each.job != job]
    numbers: dict[str, Any] = {"slots": slots, "priority": me.priority, "since": me.short_since}
    if slots == 0:
        code, text = "never_fits", "There are no slots on this server: the job waits until one is added."
    elif me.entitled == 0:
        code, text = "busy", _busy(me, others, slots, names, numbers)
    elif me.held < me.entitled:
        code, text = "starting", _starting(me, others, slots, names, numbers)
    elif me.entitled == slots:
        code, text = "capped", f"It holds all {_count(slots, 'slot')} of this server; it could use {me.asked}."
    else:
        code, text = "share", _share(me, others, slots, names, numbers)
    return Reason(code=code, text=text, held=me.held, entitled=me.entitled, asked=me.asked, numbers=numbers)


def _suspended(me: Standing) -> Reason:
    again = f"job.resume(), or at a shell: edt resume {me.job}"
    if me.leaving:
        text = f"It is being suspended: its workers still leave {_count(me.leaving, 'slot')}. To go on: {again}"
    else:
        text = f"It is suspended and needs no slot. To go on: {again}"
    return Reason(code="suspended", text=text, held=me.held, entitled=me.entitled, asked=me.asked, numbers={})


def _busy(me: Standing, others: Sequence[Standing], slots: int, names: Names, numbers: dict[str, Any]) -> str:
    running = [each for each in others if each.entitled > 0]
    ahead = sum(1 for each in others if each.asked > 0 and each.entitled == 0 and each.arrival < me.arrival)
    numbers.update(running=[each.job for each in running], ahead=ahead)
    taken = "The only slot has a job" if slots == 1 else f"Each of the {slots} slots has a job of its own"
    place = "It is next" if ahead == 0 else f"{_count(ahead, 'job')} that arrived earlier {_be(ahead)} before it"
    return (
        f"{taken} ({_list([names(each.job) for each in running])}), and running jobs are not suspended for waiting "
        f"ones in this release. {place} when one of them ends."
    )


def _starting(me: Standing, others: Sequence[Standing], slots: int, names: Names, numbers: dict[str, Any]) -> str:
    leavers = [each for each in others if each.leaving > 0]
    missing = me.entitled - me.held
    numbers.update(leaving={each.job: each.leaving for each in (*leavers, me) if each.leaving})
    who = [f"{names(each.job)} is leaving {each.leaving}" for each in leavers]
    if me.leaving:
        who.append(f"its own former workers are still in {me.leaving}")
    text = (
        f"It is entitled to {me.entitled} of {_count(slots, 'slot')} and holds {me.held}: "
        f"{missing} {'is' if missing == 1 else 'are'} on the way"
    )
    return f"{text} ({_list(who)})." if who else f"{text}."


def _share(me: Standing, others: Sequence[Standing], slots: int, names: Names, numbers: dict[str, Any]) -> str:
    rivals = [each for each in others if each.entitled > 1]
    start = f"It has its share, {me.held} of {_count(slots, 'slot')}, and could use {me.asked}"
    if not rivals:
        running = [each for each in others if each.entitled > 0]
        numbers.update(rivals=[each.job for each in running])
        holding = "holds one, which it keeps" if len(running) == 1 else "hold one each, which they keep"
        return f"{start}: {_list([names(each.job) for each in running])} {holding}."
    rival = min(rivals, key=lambda each: (_worth(each, each.entitled - 1), each.entitled, -each.arrival))
    mine, theirs = _worth(me, me.entitled), _worth(rival, rival.entitled - 1)
    alone = _if_gone(me, rival, others, slots)
    numbers.update(
        claim=float(mine),
        rival=rival.job,
        rival_priority=rival.priority,
        rival_entitled=rival.entitled,
        rival_claim=float(theirs),
        when_rival_ends=alone,
    )
    verdict = "comes after"
    if mine == theirs:
        first = "arrived earlier" if rival.priority == me.priority else "has the higher priority"
        verdict = f"ties with and, as {names(rival.job)} {first}, comes after"
    return (
        f"{start}: its claim to a {_ordinal(me.entitled + 1)}, {_claim(me, me.entitled)}, {verdict} "
        f"{names(rival.job)}'s to its {_ordinal(rival.entitled)}, {_claim(rival, rival.entitled - 1)}. "
        f"It gets {alone} when {names(rival.job)} ends."
    )


def _if_gone(me: Standing, rival: Standing, others: Sequence[Standing], slots: int) -> int:
    """Slots of `me` if `rival` ended now."""
    # Nobody waits for a first slot here: a rival with two would have been asked for one.
    left = [me, *(each for each in others if each is not rival)]
    return divide(slots, [Claim(each.priority, 1, each.asked, each.arrival) for each in left])[0]


def _worth(each: Standing, held: int) -> Fraction:
    return Fraction(2 * each.priority, 2 * held + 1)


def _claim(each: Standing, held: int) -> str:
    return f"{each.priority} ÷ {held + 0.5:g} = {_number(_worth(each, held))}"


def _number(value: Fraction) -> str:
    return str(value.numerator) if value.denominator == 1 else f"{float(value):.1f}"


def _ordinal(number: int) -> str:
    last = "th" if 10 <= number % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{last}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _be(number: int) -> str:
    return "is" if number == 1 else "are"


def _list(items: Sequence[str], most: int = 4) -> str:
    shown = list(items[:most])
    if len(items) > most:
        shown.append(f"{len(items) - most} more")
    return " and ".join([", ".join(shown[:-1]), shown[-1]]) if len(shown) > 1 else "".join(shown)
