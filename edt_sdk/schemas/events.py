"""Define the one list of events that the timeline, `job.story()` and the core's replay read.

An event is a row of the store: which job, when, what, and which event caused it. Inputs of the core
(`INPUTS`) are enough to replay every decision. The others follow from them.
"""

from __future__ import annotations

from typing import Any

import msgspec

# Inputs of the scheduling core, see edt_server/core/events.py for their data.
SLOTS_CHANGED = "slots_changed"
JOB_ARRIVED = "job_arrived"
JOB_DEMAND = "job_demand"
JOB_CHANGED = "job_changed"
JOB_GONE = "job_gone"
SLOT_RELEASED = "slot_released"
JOB_SUSPENDED = "job_suspended"
JOB_RESUMED = "job_resumed"
JOB_BUDGET = "job_budget"
JOB_HELD = "job_held"
JOB_APART = "job_apart"
PLAN_CHANGED = "plan_changed"
TIME_PASSED = "time_passed"  # no data: the row has the time
SPEED_MEASURED = "speed_measured"
INPUTS = frozenset(
    {
        *(SLOTS_CHANGED, PLAN_CHANGED, TIME_PASSED),
        *(JOB_ARRIVED, JOB_DEMAND, JOB_CHANGED, JOB_GONE, JOB_SUSPENDED, JOB_RESUMED, SLOT_RELEASED, SPEED_MEASURED),
        *(JOB_BUDGET, JOB_HELD, JOB_APART),
    }
)

# Decisions of the core.
SLOT_GRANTED = "slot_granted"  # data: slot, slots (held afterwards)
SLOT_REVOKED = "slot_revoked"  # data: slot, slots (entitled to afterwards), the slot is free at its slot_released

JOB_GIVEN_UP = "job_given_up"  # data: seconds (its pending time-out), the service ends the job

# What else happened to a job.
STATE = "state"  # data: state, before, message
DRIVER_STARTED = "driver_started"
TRAINING_STARTED = "training_started"
TRAINING_ENDED = "training_ended"
VALIDATED = "validated"
WORKER_STARTED = "worker_started"
WORKER_LOST = "worker_lost"
DRIVER_LOST = "driver_lost"
SUPERVISOR_LOST = "supervisor_lost"  # data: moved_to, where its job has left its host; lost_host, where it is lost
RELOCATED = "relocated"  # data: host (the one it leaves)
GENERATION = "generation"
RUN_STARTED = "run_started"
RUN_STOPPED = "run_stopped"
REMARK = "remark"  # data: text


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the list.

    Attributes:
        seq: its number in the whole store, growing.
        time: seconds since the epoch.
        job: the job it belongs to, None for the machine itself.
        kind: what happened, such as state or generation.
        data: JSON object, by kind.
        cause: `seq` of the event that caused it, None for the first of a chain.
        text: one sentence for people.
    """

    seq: int
    time: float
    job: str | None
    kind: str
    data: dict[str, Any]
    cause: int | None
    text: str
