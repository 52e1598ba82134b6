"""What a change of a job's settings comes to, in one sentence. Pure."""

from __future__ import annotations

from edt_sdk.formatting.number_words import clock, zone
from edt_sdk.monitor.parts import lasting
from edt_sdk.schemas.forecast import WhatIf

# Others named in a sentence; more are counted.
_NAMED = 3


def consequence(answer: WhatIf) -> str:
    """Who will hold how many slots, and what that does to the end of the training."""
    mine = next((share for share in answer.shares if share.job == answer.job), None)
    parts = []
    if mine is not None:
        parts.append(f"it goes from {mine.now} to {_slots(mine.then)}" if mine.now != mine.then else _stays(mine.then))
    others = [share for share in answer.shares if share.job != answer.job and share.now != share.then]
    said = [f"{share.name} from {share.now} to {share.then}" for share in others[:_NAMED]]
    if len(others) > _NAMED:
        said.append(f"{len(others) - _NAMED} more jobs change too")
    text = "; ".join(filter(None, [", ".join(parts), ", ".join(said)]))
    text = text[:1].upper() + text[1:] + "." if text else ""
    # Why it does not get more is said beside its state; why it gets nothing belongs to the consequence.
    why = answer.reason.text if answer.reason is not None and (mine is None or not mine.then) else ""
    return " ".join(filter(None, [text, _ends(answer), why]))


def _stays(slots: int) -> str:
    return f"it stays at {_slots(slots)}"


def _slots(count: int) -> str:
    return f"{count} slot{'' if count == 1 else 's'}"


def _ends(answer: WhatIf) -> str:
    if answer.ends_then is None:
        return ""
    text = f"Its training would end about {clock(answer.ends_then)} {zone()}"
    if answer.ends_now is not None and abs(answer.ends_now - answer.ends_then) >= 1:
        earlier = answer.ends_then < answer.ends_now
        text += f", {lasting(abs(answer.ends_now - answer.ends_then))} {'earlier' if earlier else 'later'}"
    return text + ", if nobody else comes."
