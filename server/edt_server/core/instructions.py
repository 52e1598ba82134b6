"""Define the core's decisions. The service commits them to the store before it acts on them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from edt_sdk.schemas.events import JOB_GIVEN_UP, SLOT_GRANTED, SLOT_REVOKED


@dataclass(frozen=True, slots=True)
class Grant:
    """The job may use this slot from now on, and then holds `held` slots."""

    job: str
    slot: int
    held: int


@dataclass(frozen=True, slots=True)
class Revoke:
    """The job must leave this slot, which stays occupied until then. It is entitled to `entitled` slots now."""

    job: str
    slot: int
    entitled: int


@dataclass(frozen=True, slots=True)
class GiveUp:
    """The job has waited `seconds` for its first slot, its whole timeout: it has to be ended."""

    job: str
    seconds: float


Instruction = Grant | Revoke | GiveUp


def to_event(instruction: Instruction) -> tuple[str, dict[str, Any]]:
    """Return kind and data of the instruction's row in the event list. The row's job is `instruction.job`."""
    match instruction:
        case Grant(slot=slot, held=held):
            return SLOT_GRANTED, {"slot": slot, "slots": held}
        case Revoke(slot=slot, entitled=entitled):
            return SLOT_REVOKED, {"slot": slot, "slots": entitled}
        case GiveUp(seconds=seconds):
            return JOB_GIVEN_UP, {"seconds": seconds}
