"""Every kind of event told as a sentence, also from rows that say little."""

from __future__ import annotations

import pytest

from edt_sdk.schemas import events as kinds
from edt_sdk.schemas.events import Event
from edt_server.history.story import because, describe


def call(job: str) -> str:
    return {"a": "digits-a", "b": "digits-b"}.get(job, job)


def event(kind, job, data, *, seq=1, cause=None, text=""):
    return Event(seq=seq, time=0.0, job=job, kind=kind, data=data, cause=cause, text=text)


ARRIVED = {"job": "a", "priority": 5000, "max_workers": 4, "instance_group": "default"}


@pytest.mark.parametrize(
    ("kind", "data", "sentence"),
    [
        ("job_arrived", {**ARRIVED, "owner": "ana"}, "submitted by ana: max 4 workers, priority 5000"),
        ("job_arrived", {**ARRIVED, "max_workers": 1}, "submitted: max 1 worker, priority 5000"),
        (
            "job_arrived",
            {**ARRIVED, "instance_group": "night"},
            "submitted: max 4 workers, priority 5000, instance group night",
        ),
        ("training_started", {"training": 0, "shards": 4, "epochs": 0}, "its test began"),
        ("training_ended", {"training": 0, "updates": 0}, "its test ended"),
        ("job_demand", {"job": "a", "demand": 8}, "its training can use up to 8 slots"),
        ("job_demand", {"job": "a", "demand": 0}, "needs no slot: no training of it runs"),
        (
            "job_changed",
            {"job": "a", "priority": 10000, "max_workers": None, "before": {"priority": 5000}, "by": "ana"},
            "its priority is now 10000 (was 5000) (by ana)",
        ),
        (
            "job_changed",
            {"job": "a", "priority": 7, "max_workers": 2},
            "its priority is now 7 and its maximum of workers is now 2",
        ),
        ("job_arrived", {**ARRIVED, "again": True, "by": "ana"}, "taken up again (by ana)"),
        ("job_suspended", {"job": "a", "by": "ana"}, "is being suspended (by ana): it leaves all its slots"),
        ("run_started", {"number": 1, "pids": [7]}, "its program runs (pid 7)"),
        ("run_started", {"number": 2, "pids": [8, 9]}, "its program runs again, from the beginning (pids 8, 9)"),
        (
            "run_stopped",
            {"number": 1, "why": "Rank 1 (slot 7) was lost with host b."},
            "its program was ended, and will begin again from the beginning: Rank 1 (slot 7) was lost with host b",
        ),
        ("remark", {"text": "--msd-label x has no meaning here."}, "--msd-label x has no meaning here"),
        ("job_suspended", {"job": "a"}, "is being suspended: it leaves all its slots"),
        ("job_resumed", {"job": "a", "checkpoint": "epoch-3"}, "resumed, from checkpoint epoch-3"),
        ("job_budget", {"job": "a", "budget": 1}, "may train 1 epoch, and holds then"),
        ("job_budget", {"job": "a", "budget": None}, "may train to its end"),
        ("job_held", {"job": "a", "epoch": 3, "epochs": 27}, "holds: it has reached 3 of 27 epochs"),
        (
            "validated",
            {"training": 0, "epoch": 3, "loss": 0.25, "accuracy": None, "metrics": {"f1": 0.5}},
            "validated after epoch 3: loss 0.25, f1 0.5",
        ),
        ("validated", {"epoch": 3, "loss": None, "accuracy": None, "metrics": {}}, "validated after epoch 3"),
        (
            "supervisor_lost",
            {"attempt": 2},
            "its supervisor, the process that looks after its workers, ended unexpectedly (attempt 2)",
        ),
        ("supervisor_lost", {"attempt": 1, "moved_to": "b"}, "moved to host b"),
        ("supervisor_lost", {"attempt": 1, "moved_to": ""}, "moves to another host when it has a slot there"),
        ("supervisor_lost", {}, "its supervisor, the process that looks after its workers, ended unexpectedly"),
        (
            "worker_lost",
            {"worker": 3, "member": True, "update": 0, "why": "Worker 3 was killed by SIGKILL."},
            "worker 3 was killed by SIGKILL; the training goes on from the start",
        ),
        (
            "worker_lost",
            {"worker": 3, "member": False, "update": 4, "exit_code": 1},
            "worker 3 ended with exit code 1; its slot is filled again",
        ),
        ("driver_lost", {"exit_code": -9}, "the driver was ended by signal 9; its main script runs again"),
        ("job_gone", {"job": "a"}, "ended: all its slots are free"),
        ("slot_granted", {"slot": 2, "slots": 3}, "slot 2 granted (3 held)"),
        ("slot_revoked", {"slot": 3, "slots": 2}, "asked to give back slot 3"),
        ("slot_released", {"job": "a", "slot": 3}, "slot 3 given back"),
        (
            "slot_released",
            {"job": "a", "slot": 3, "worker": 1, "exit_code": 0},
            "slot 3 given back: worker 1 left",
        ),
        (
            "slot_released",
            {"job": "a", "slot": 3, "worker": 1, "exit_code": -9},
            "slot 3 given back: worker 1 was ended by signal 9",
        ),
        (
            "slot_released",
            {"job": "a", "slot": 3, "worker": 1, "exit_code": 1},
            "slot 3 given back: worker 1 ended with exit code 1",
        ),
        ("slots_changed", {"slots": []}, "this server offers no slots"),
        ("slots_changed", {"slots": [{"id": 0, "host": "h"}]}, "this server offers 1 CPU slot"),
        (
            "slots_changed",
            {"slots": [{"id": n, "host": "h", "device": f"cuda:{n}"} for n in range(2)]},
            "this server offers 2 GPU slots",
        ),
        ("state", {"state": "FINISHED", "updates": 184, "seconds": 12.4}, "finished after 184 updates in 12.4 s"),
        ("state", {"state": "FINISHED", "seconds": 7384.0}, "finished in 2 h 03 min"),
        ("state", {"state": "FINISHED", "seconds": 199.7}, "finished in 3 min 20 s"),
        ("state", {"state": "FINISHED"}, "finished"),
        ("state", {"state": "FAILED", "message": "The dataset raised."}, "failed: The dataset raised"),
        ("state", {"state": "ERROR", "message": "No such interpreter."}, "could not start: No such interpreter"),
        ("state", {"state": "KILLED", "message": ""}, "stopped"),
        ("state", {"state": "PENDING", "message": ""}, "waits for a slot"),
        ("state", {"state": "PENDING", "message": "It is next."}, "waits: it is next"),
        ("state", {"state": "PENDING", "message": "Items follow."}, "waits: Items follow"),
        ("state", {"state": "RECOVERING", "message": "Its supervisor is gone."}, "recovers: its supervisor is gone"),
        ("state", {"state": "RUNNING"}, "runs"),
        ("state", {"state": "SOMETHING_NEW"}, "something_new"),
        ("state", {}, "?"),
        ("driver_started", {"pid": 11}, "driver started (pid 11)"),
        ("training_started", {"training": 0, "shards": 8, "epochs": 1}, "training began: 1 epoch, 8 shards an update"),
        ("training_started", {"training": 1}, "training 2 began"),
        ("training_ended", {"training": 0, "updates": 1}, "training ended after 1 update"),
        ("worker_started", {"worker": 2, "slot": 3, "pid": 13}, "worker 2 started in slot 3 (pid 13)"),
        (
            "generation",
            {"number": 2, "workers": [0, 1], "pids": [11, 12], "update": 12},
            "trains on 2 workers after update 12 (generation 2: pids 11, 12)",
        ),
        (
            "generation",
            {"number": 1, "workers": [0], "pids": [11], "update": 0},
            "trains on 1 worker from the start (generation 1: pid 11)",
        ),
        ("something_newer", {}, "something newer"),
    ],
)
def test_sentences(kind, data, sentence):
    assert describe(kind, data, job="a", names=call) == sentence


def test_every_kind_has_its_words():
    every = {value for name, value in vars(kinds).items() if name.isupper() and isinstance(value, str)}
    from edt_server.history.story import _TELLERS

    assert set(_TELLERS) == every


@pytest.mark.parametrize(
    ("kind", "job", "data", "told_to_a", "told_to_all"),
    [
        ("job_arrived", "b", {}, "digits-b arrived", "digits-b arrived"),
        ("job_arrived", "a", {}, "the job arrived", "digits-a arrived"),
        ("job_gone", "b", {}, "digits-b ended", "digits-b ended"),
        ("job_demand", "b", {"demand": 0}, "digits-b finished a training", "digits-b finished a training"),
        (
            "job_demand",
            "a",
            {"demand": 1},
            "the job began a training that can use 1 slot",
            "digits-a began a training that can use 1 slot",
        ),
        (
            "job_changed",
            "a",
            {"priority": 7, "instance_group": "g"},
            "its priority is now 7 and its instance group is now g",
            "digits-a's priority is now 7 and digits-a's instance group is now g",
        ),
        ("slot_released", "b", {"slot": 2}, "digits-b gave slot 2 back", "digits-b gave slot 2 back"),
        (
            "slots_changed",
            None,
            {"slots": [{"id": 0}]},
            "this server offers 1 slot now",
            "this server offers 1 slot now",
        ),
        ("generation", "b", {}, "generation", "generation"),
    ],
)
def test_causes(kind, job, data, told_to_a, told_to_all):
    cause = event(kind, job, data)
    assert because(cause, job="a", names=call) == told_to_a
    assert because(cause, names=call) == told_to_all


def test_why_a_slot_was_granted_or_asked_back():
    gone, arrived = event("job_gone", "b", {}), event("job_arrived", "b", {})
    assert describe("slot_granted", {"slot": 2, "slots": 3}, job="a", cause=gone, names=call) == (
        "slot 2 granted (3 held): it came free as digits-b ended"
    )
    assert describe("slot_revoked", {"slot": 3, "slots": 2}, job="a", cause=arrived, names=call) == (
        "asked to give back slot 3: digits-b arrived, entitled to 2 now"
    )
    # Nobody takes from a job what it has no use for, or what it is to leave because somebody said so.
    stopped = event("job_suspended", "a", {})
    assert describe("slot_revoked", {"slot": 3, "slots": 0}, job="a", cause=stopped, names=call) == (
        "gives back slot 3: the job was suspended"
    )
    held = event("job_held", "a", {"epoch": 3, "epochs": 27})
    assert describe("slot_revoked", {"slot": 3, "slots": 0}, job="a", cause=held, names=call) == (
        "gives back slot 3: the job has reached its budget of epochs"
    )
    done = event("job_demand", "a", {"demand": 0})
    assert describe("slot_revoked", {"slot": 3, "slots": 0}, job="a", cause=done, names=call) == (
        "slot 3 is not needed any more: the job finished a training"
    )


def test_what_was_just_told_is_not_told_again():
    lost = event("worker_lost", "a", {"worker": 3, "member": True, "update": 4, "why": "Worker 3 was killed."})
    data = {"state": "RECOVERING", "message": "Worker 3 was killed."}
    assert describe("state", data, job="a", cause=lost, names=call) == "recovers"
    assert describe("state", data, job="a", names=call) == "recovers: Worker 3 was killed"


def test_other_kinds_are_not_explained_by_their_cause():
    assert describe("driver_started", {}, job="a", cause=event("job_gone", "b", {}), names=call) == "driver started"


def test_who_stopped_a_job_is_said_once():
    assert describe(kinds.STATE, {"state": "KILLED", "message": "Stopped by ann."}) == "stopped by ann"
    assert describe(kinds.STATE, {"state": "KILLED", "message": "Its job ended."}) == "stopped: Its job ended"
