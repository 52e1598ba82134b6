"""Describe events in sentences, with the reason for each.

Pure. These sentences become `Event.text` when the service appends an event, so the story, the timeline, the card and
the log use the same words. A sentence is about the event's own job and does not name it. Other jobs are named by
`names`. Every key of `data` except those of the core's inputs may be missing, because old rows are described too.

Keys beyond those listed in `edt_sdk/schemas/events.py`, all optional and for people only. job_arrived: owner, again,
by, checkpoint. job_resumed: by, checkpoint. job_changed: before (object of former values), by. job_suspended: by.
slot_released: worker, exit_code. state: updates, seconds. The other kinds have the fields of their message in
`edt_sdk/schemas/wire/control.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from edt_sdk.schemas import events as kinds
from edt_sdk.schemas.events import Event
from edt_sdk.schemas.job import JobState
from edt_sdk.schemas.wire.control import NO_TRAINING

Names = Callable[[str], str]
Data = Mapping[str, Any]
_GROUP_KINDS = (("instance_groups", "instance group"), ("resource_groups", "resource group"))


def describe(kind: str, data: Data, *, job: str | None = None, cause: Event | None = None, names: Names = str) -> str:
    """Return one sentence without a full stop.

    Args:
        kind: of the event.
        data: its data.
        job: the job it belongs to.
        cause: the event it followed from. It is the reason of a grant or a revocation, and appears only there.
        names: maps ids to the jobs' names.
    """
    # A kind of a newer release, or of an older one, still gets a sentence.
    teller = _TELLERS.get(kind)
    sentence = kind.replace("_", " ") if teller is None else teller(data)
    lost = cause is not None and cause.kind in (kinds.WORKER_LOST, kinds.RUN_STOPPED)
    # The line of the loss comes just before and has the reason already.
    if lost and data.get("state") == JobState.RECOVERING:
        return "recovers"
    if cause is None or kind not in (kinds.SLOT_GRANTED, kinds.SLOT_REVOKED):
        return sentence
    why = because(cause, job=job, names=names)
    if kind == kinds.SLOT_REVOKED and between_trainings(cause):
        return f"slot {data['slot']} is not needed any more: {why}"
    if kind == kinds.SLOT_REVOKED and suspends(cause) and cause.job == job:
        return f"gives back slot {data['slot']}: {why}"
    if kind == kinds.SLOT_REVOKED:
        return f"{sentence}: {why}, entitled to {_get(data, 'slots', '?')} now"
    if cause.kind == kinds.JOB_GONE:
        return f"{sentence}: it came free as {why}"
    return f"{sentence}: {why}"


def because(cause: Event, *, job: str | None = None, names: Names = str) -> str:
    """Return an event as the reason for another one, from the view of `job`: "digits-b ended", "the job arrived"."""
    data = cause.data
    who = "the job" if cause.job is not None and cause.job == job else names(cause.job or "")
    whose = "its" if who == "the job" else f"{who}'s"
    match cause.kind:
        case kinds.JOB_ARRIVED:
            return f"{who} {'was resumed' if data.get('again') else 'arrived'}"
        case kinds.JOB_SUSPENDED:
            return f"{who} was suspended"
        case kinds.JOB_RESUMED:
            return f"{who} was resumed"
        case kinds.JOB_HELD:
            return f"{who} has reached its budget of epochs"
        case kinds.JOB_BUDGET:
            return f"{who} may train on"
        case kinds.JOB_GONE:
            return f"{who} ended"
        case kinds.JOB_DEMAND if between_trainings(cause):
            return f"{who} finished a training"
        case kinds.JOB_DEMAND:
            return f"{who} began a training that can use {_count(data['demand'], 'slot')}"
        case kinds.JOB_CHANGED:
            return " and ".join(f"{whose} {change}" for change in _changes(data))
        case kinds.SLOT_RELEASED:
            return f"{who} gave slot {data['slot']} back"
        case kinds.SLOTS_CHANGED:
            return f"this server offers {_count(len(data['slots']), 'slot')} now"
        case kinds.PLAN_CHANGED:
            changes = plan_changes(data["before"], data["plan"]) if data.get("before") else []
            return changes[0] if len(changes) == 1 else "the plan of the groups changed"
        case kinds.TIME_PASSED:
            return "another job's turn begins"
        case kinds.SPEED_MEASURED:
            return f"{whose} speed was measured anew"
        case _:
            return cause.text or cause.kind.replace("_", " ")


def between_trainings(cause: Event) -> bool:
    """Return True when a job can use no slot any more, so that the slots it gives back were not taken from it."""
    return cause.kind == kinds.JOB_DEMAND and cause.data["demand"] == 0


def suspends(cause: Event) -> bool:
    """Return True when a job leaves all its slots, as a user suspended it or as it holds."""
    return cause.kind in (kinds.JOB_SUSPENDED, kinds.JOB_HELD)


def plan_changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Return sentences such as "share of the instance group night is 3 (was 1)". Empty for equal plans."""
    found: list[str] = []
    for key, kind in _GROUP_KINDS:
        old = {group["name"]: group for group in before.get(key) or ()}
        new = {group["name"]: group for group in after.get(key) or ()}
        found += [f"the {kind} {name} is new" for name in new if name not in old]
        found += [f"the {kind} {name} was removed" for name in old if name not in new]
        for name in new:
            if name in old:
                found += _field_changes(f"the {kind} {name}", old[name], new[name])
        # The order matters, because a job that names no group belongs to the first.
        if not found and list(old) != list(new):
            found.append(f"the order of the {kind}s is another one")
    return found


def _field_changes(what: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    for field in new:
        if new[field] != old.get(field):
            yield f"{field} of {what} is {_setting(new[field])} (was {_setting(old.get(field))})"


def _setting(value: Any) -> str:
    match value:
        case None | "":
            return "not set"
        case bool():
            return "on" if value else "off"
        case dict():
            return ", ".join(f"{key}={each}" for key, each in value.items()) or "empty"
        case list() | tuple():
            return ", ".join(map(str, value)) or "all the others"
        case _:
            return str(value)


# --- one function per kind --------------------------------------------------------------------------------------------


def _arrived(data: Data) -> str:
    if data.get("again"):
        return f"taken up again{_by(data)}{_from(data)}"
    by = f" by {data['owner']}" if data.get("owner") else ""
    group = f", instance group {data['instance_group']}" if data["instance_group"] != "default" else ""
    return f"submitted{by}: max {_count(data['max_workers'], 'worker')}, priority {data['priority']}{group}"


def _demand(data: Data) -> str:
    if data["demand"] == 0:
        return "needs no slot: no training of it runs"
    return f"its training can use up to {_count(data['demand'], 'slot')}"


def _changed(data: Data) -> str:
    return " and ".join(f"its {change}" for change in _changes(data)) + _by(data)


def _by(data: Data) -> str:
    return f" (by {data['by']})" if data.get("by") else ""


def _from(data: Data) -> str:
    return f", from checkpoint {data['checkpoint']}" if data.get("checkpoint") else ""


def _changes(data: Data) -> list[str]:
    called = {"priority": "priority", "max_workers": "maximum of workers", "instance_group": "instance group"}
    before = data.get("before") or {}
    changes = [
        f"{word} is now {data[key]}" + (f" (was {before[key]})" if key in before else "")
        for key, word in called.items()
        if data.get(key) is not None
    ]
    return changes or ["settings were confirmed"]


def _released(data: Data) -> str:
    worker, code = data.get("worker"), data.get("exit_code")
    if worker is None:
        return f"slot {data['slot']} given back"
    left = "left" if code in (None, 0) else _exit(code)
    return f"slot {data['slot']} given back: worker {worker} {left}"


def _exit(code: int) -> str:
    return f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"


def _slots_changed(data: Data) -> str:
    devices = Counter("CPU" if slot.get("device", "cpu") == "cpu" else "GPU" for slot in data["slots"])
    if not devices:
        return "this server offers no slots"
    parts = " and ".join(_count(number, f"{device} slot") for device, number in sorted(devices.items()))
    return f"this server offers {parts}"


def _plan_changed(data: Data) -> str:
    changes = plan_changes(data["before"], data["plan"]) if data.get("before") else []
    if changes:
        return f"the plan changed{_by(data)}: {'; '.join(changes)}"
    groups = data["plan"].get("instance_groups") or ()
    names = ", ".join(str(group["name"]) for group in groups)
    return f"the plan has {_count(len(groups), 'instance group')} now{_by(data)}" + (f": {names}" if names else "")


def _speed_measured(data: Data) -> str:
    speeds = sorted((int(slots), speed) for slots, speed in data["speeds"].items())
    told = ", ".join(f"{speed:.4g} a second on {_count(slots, 'slot')}" for slots, speed in speeds)
    return f"its speed was measured: {told or 'nothing yet'}"


def _state(data: Data) -> str:
    state, message = str(_get(data, "state", "?")), str(_get(data, "message", "")).rstrip(".")
    after = f": {message}" if message else ""
    match state:
        case JobState.FINISHED:
            updates, seconds = data.get("updates"), data.get("seconds")
            done = "" if updates is None else f" after {_count(updates, 'update')}"
            return f"finished{done}{'' if seconds is None else f' in {_duration(seconds)}'}"
        case JobState.KILLED:
            return (
                f"stopped{message.removeprefix('Stopped')}" if message.startswith("Stopped by ") else f"stopped{after}"
            )
        case JobState.ERROR:
            return f"could not start{after}"
        case JobState.PENDING:
            return f"waits{_going_on(after) or ' for a slot'}"
        case JobState.SUBMITTED:
            return "accepted"
        case JobState.LAUNCHING:
            return "starts its processes"
        case JobState.RUNNING:
            return "runs"
        case JobState.RECOVERING:
            return f"recovers{_going_on(after)}"
        case _:  # failed, suspended, or a state of a newer release
            return f"{state.lower()}{after}"


def _going_on(after: str) -> str:
    """Return a sentence about the job, for after a colon."""
    return after.replace(": It", ": it", 1) if after.startswith((": It ", ": Its ")) else after


def _training_started(data: Data) -> str:
    shards, epochs = data.get("shards"), data.get("epochs")
    # A validation goes over the test data once and trains nothing (docs/decisions/031).
    if epochs == 0:
        return "its test began"
    parts = [] if epochs is None else [_count(epochs, "epoch")]
    parts += [] if shards is None else [f"{_count(shards, 'shard')} an update"]
    return _training(data) + " began" + (f": {', '.join(parts)}" if parts else "")


def _training_ended(data: Data) -> str:
    updates = data.get("updates")
    if updates == 0:
        return "its test ended"
    return _training(data) + " ended" + ("" if updates is None else f" after {_count(updates, 'update')}")


def _training(data: Data) -> str:
    # People count trainings from 1, and most jobs have one.
    number = data.get("training")
    return f"training {number + 1}" if number else "training"


def _budget(data: Data) -> str:
    budget = data["budget"]
    return "may train to its end" if budget is None else f"may train {_count(budget, 'epoch')}, and holds then"


def _validated(data: Data) -> str:
    given = {"loss": data.get("loss"), "accuracy": data.get("accuracy"), **(data.get("metrics") or {})}
    told = ", ".join(f"{name} {value:.4g}" for name, value in given.items() if value is not None)
    return f"validated after epoch {_get(data, 'epoch', '?')}{f': {told}' if told else ''}"


def _lost(data: Data) -> str:
    number = data.get("worker")
    what = "the driver" if number is None else f"worker {number}"
    why = str(_get(data, "why", "")).rstrip(".")
    said = why[:1].lower() + why[1:] if why else f"{what} {_exit(data.get('exit_code') or 0)}"
    if number is None:
        return f"{said}; its main script runs again"
    update = data.get("update")
    if not data.get("member") or update is None:
        return f"{said}; its slot is filled again"
    return f"{said}; the training goes on {'from the start' if update == 0 else f'after update {update:,}'}"


def _supervisor_lost(data: Data) -> str:
    if "moved_to" in data:
        return (
            f"moved to host {data['moved_to']}"
            if data["moved_to"]
            else "moves to another host when it has a slot there"
        )
    attempt = data.get("attempt")
    of = "" if attempt is None else f" (attempt {attempt})"
    if "lost_host" in data:
        return f"its supervisor, the process that looks after its workers, was lost with host {data['lost_host']}{of}"
    return f"its supervisor, the process that looks after its workers, ended unexpectedly{of}"


def _generation(data: Data) -> str:
    pids = list(data.get("pids") or ())
    count = len(pids or data.get("workers") or ())
    if data.get("training") == NO_TRAINING:
        return f"answers with {_count(count, 'replica')} ({_pids(pids)})"
    listed = f": {_pids(pids)}" if pids else ""
    update = data.get("update")
    since = "" if update is None else " from the start" if update == 0 else f" after update {update:,}"
    return f"trains on {_count(count, 'worker')}{since} (generation {_get(data, 'number', '?')}{listed})"


def _run_started(data: Data) -> str:
    again = " again, from the beginning" if (data.get("number") or 1) > 1 else ""
    return f"its program runs{again} ({_pids(list(data.get('pids') or ()))})"


def _pids(pids: Sequence[int]) -> str:
    return f"pid{'s' if len(pids) != 1 else ''} {', '.join(map(str, pids))}"


def _run_stopped(data: Data) -> str:
    why = str(_get(data, "why", "")).rstrip(".")
    return f"its program was ended, and will begin again from the beginning{f': {why}' if why else ''}"


def _pid(data: Data) -> str:
    return f" (pid {data['pid']})" if data.get("pid") is not None else ""


_TELLERS: dict[str, Callable[[Data], str]] = {
    kinds.SLOTS_CHANGED: _slots_changed,
    kinds.PLAN_CHANGED: _plan_changed,
    kinds.TIME_PASSED: lambda _: "it was looked whose turn it is",
    kinds.JOB_ARRIVED: _arrived,
    kinds.JOB_DEMAND: _demand,
    kinds.JOB_CHANGED: _changed,
    kinds.JOB_GONE: lambda _: "ended: all its slots are free",
    kinds.JOB_SUSPENDED: lambda data: f"is being suspended{_by(data)}: it leaves all its slots",
    kinds.JOB_RESUMED: lambda data: f"resumed{_by(data)}{_from(data)}",
    kinds.JOB_BUDGET: _budget,
    kinds.JOB_HELD: lambda data: f"holds: it has reached {data['epoch']} of {data['epochs']} epochs",
    kinds.JOB_APART: lambda data: data["why"].rstrip(".") or "may have slots of all hosts again",
    kinds.SLOT_RELEASED: _released,
    kinds.SPEED_MEASURED: _speed_measured,
    kinds.SLOT_GRANTED: lambda data: f"slot {data['slot']} granted ({_get(data, 'slots', '?')} held)",
    kinds.SLOT_REVOKED: lambda data: f"asked to give back slot {data['slot']}",
    kinds.JOB_GIVEN_UP: lambda data: f"given up: it got no slot in {_duration(data['seconds'])}",
    kinds.STATE: _state,
    kinds.DRIVER_STARTED: lambda data: f"driver started{_pid(data)}",
    kinds.TRAINING_STARTED: _training_started,
    kinds.TRAINING_ENDED: _training_ended,
    kinds.VALIDATED: _validated,
    kinds.WORKER_STARTED: lambda data: (
        f"worker {_get(data, 'worker', '?')} started in slot {_get(data, 'slot', '?')}{_pid(data)}"
    ),
    kinds.WORKER_LOST: _lost,
    kinds.DRIVER_LOST: _lost,
    kinds.SUPERVISOR_LOST: _supervisor_lost,
    kinds.RELOCATED: lambda data: f"It has no slot left on host {_get(data, 'host', '?')} and goes on elsewhere",
    kinds.GENERATION: _generation,
    kinds.RUN_STARTED: _run_started,
    kinds.RUN_STOPPED: _run_stopped,
    kinds.REMARK: lambda data: str(_get(data, "text", "")).rstrip("."),
}


def _get(data: Data, key: str, default: object) -> object:
    value = data.get(key)
    return default if value is None else value


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _duration(seconds: float) -> str:
    """12.4 s, 3 min 20 s, 2 h 05 min."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"
