"""The scheduling core: who gets how many slots, pure and replayable.

`Core.apply(event, now)` is the whole interface; nothing in this package reads a clock, does I/O or draws a random
number, so the service, the simulator and the tests run the same object.
"""

from edt_server.core.core import Core
from edt_server.core.events import (
    CoreEvent,
    JobArrived,
    JobChanged,
    JobDemand,
    JobGone,
    JobResumed,
    JobSuspended,
    PlanChanged,
    SlotReleased,
    SlotsChanged,
    SpeedMeasured,
    TimePassed,
    from_data,
    inputs,
    kind_of,
    to_data,
)
from edt_server.core.instructions import GiveUp, Grant, Instruction, Revoke, to_event

__all__ = [
    "Core",
    "CoreEvent",
    "GiveUp",
    "Grant",
    "Instruction",
    "JobArrived",
    "JobChanged",
    "JobDemand",
    "JobGone",
    "JobResumed",
    "JobSuspended",
    "PlanChanged",
    "Revoke",
    "SlotReleased",
    "SlotsChanged",
    "SpeedMeasured",
    "TimePassed",
    "from_data",
    "inputs",
    "kind_of",
    "to_data",
    "to_event",
]
