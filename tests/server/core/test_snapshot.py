"""A core that was put into bytes and taken out again is the same core, whatever happens to it afterwards."""

from __future__ import annotations

import json
import random
import zlib

import pytest

from edt_sdk.schemas.errors import EdtError
from edt_sdk.schemas.events import JOB_ARRIVED, SLOTS_CHANGED
from edt_sdk.schemas.plan import QUOTAS, InstanceGroup, Plan, ResourceGroup
from edt_sdk.schemas.wire.control import Slot
from edt_server.core.core import Core
from edt_server.core.events import JobArrived, JobBudget, JobHeld, PlanChanged, SlotsChanged, SpeedMeasured, TimePassed
from edt_server.core.snapshot import VERSION, dump, load
from edt_server.ledger.ledger import _RECENT, Ledger
from edt_server.store import Store, sqlite_url
from tests.server.core.invariants import check, replayed
from tests.server.core.test_properties import some_event

PLANS = (
    Plan(),
    Plan(
        resource_groups=(ResourceGroup(name="default"), ResourceGroup(name="other", hosts=("g",))),
        instance_groups=(
            InstanceGroup(name="top"),
            InstanceGroup(name="default", parent="top", own=2, quantum=3.0, pending_timeout=40.0),
            InstanceGroup(name="b", parent="top", policy="fifo", user_shares={"ann": 2, "*": 1}),
            InstanceGroup(name="c", resource_group="other", throughput_aware=True),
        ),
    ),
    Plan(instance_groups=(InstanceGroup(name="default", policy="priority"), InstanceGroup(name="b", preemption=False))),
)
QUOTED = Plan(
    instance_groups=(
        InstanceGroup(name="default", user_running=2, max_running=3, user_slots=4),
        InstanceGroup(name="b", preemption=False, max_running=1),
    )
)


def history(rng: random.Random, length: int, plans=PLANS):
    """Events the core accepts, of every kind, with their times, under these plans in turn."""
    core, now = Core(), 0.0
    for number in range(length):
        now += rng.random()
        dice = rng.random()
        if dice < 0.05:
            event = PlanChanged(rng.choice(plans))
        elif dice < 0.15:
            event = TimePassed()
        elif dice < 0.20 and core.jobs:
            event = SpeedMeasured(rng.choice(core.jobs), {1: 10.0, 2: 15.0 + dice, 4: 16.0})
        elif dice < 0.25:
            event = SlotsChanged(tuple(Slot(id=n, host=rng.choice("gh")) for n in range(rng.randint(0, 9))))
        elif dice < 0.40 and len(core.jobs) < 8:
            group = rng.choice([each.name for each in core.plan.leaves()])
            unit = rng.choice((1, 1, 2))
            event = JobArrived(f"k{number}", 5000, 4, group, rng.choice(("ann", "bob")), unit, unit, 30.0)
        else:
            event = some_event(core, rng, number, 8, 8)
        try:
            core.apply(event, now)
        except EdtError:  # refused: it left the core as it was
            continue
        yield event, now


@pytest.mark.parametrize("seed", range(60))
def test_what_was_dumped_goes_on_as_if_it_had_not_been(seed: int) -> None:
    rng = random.Random(seed)
    events = list(history(rng, 80, (*PLANS, QUOTED, QUOTED)))
    cut = rng.randint(0, len(events))
    whole, first = replayed(events), replayed(events[:cut])
    restored = load(VERSION, dump(first))
    assert restored is not None
    assert restored.digest() == first.digest()
    check(restored)
    for event, now in events[cut:]:
        assert restored.apply(event, now) == first.apply(event, now)
        assert restored.next_wake(now) == first.next_wake(now)
    assert restored.digest() == whole.digest()


def test_what_cannot_be_read_is_no_snapshot() -> None:
    data = dump(Core())
    assert load("another", data) is None
    assert load(VERSION, b"rubbish") is None
    assert load(VERSION, data[:-3]) is None


# What 43813dc, d7f2f61, 4bb9306, 6814e72, 0895f7c, 43d4392, ac94089, d6765e1 and ace5734 wrote for this form.
@pytest.mark.parametrize(
    "version",
    [
        "5d450cfec1d5594e",
        "7e018cf0f7a12ea8",
        "fa66e22ae5eb95d7",
        "3af2497bc715c643",
        "b55155f3a73835a9",
        "4e231cac1fab208a",
        "391bc166d8f0f2fb",
        "f3cf8e5bf01693ab",
        "167eeaeb40e47dfe",
        "d4bb79e42e3ca64c",
    ],
)
def test_a_snapshot_of_the_release_before_is_read(version: str) -> None:
    events = [each for each in history(random.Random(1), 80) if not isinstance(each[0], JobBudget | JobHeld)]
    core = replayed(events)
    state = core.state()
    has_hosts_apart = version == "d4bb79e42e3ca64c"
    has_searches = version in ("f3cf8e5bf01693ab", "167eeaeb40e47dfe") or has_hosts_apart
    has_budgets = version == "391bc166d8f0f2fb" or has_searches
    has_held_sizes = version == "4e231cac1fab208a" or has_budgets
    has_quotas = version == "b55155f3a73835a9" or has_held_sizes
    assert has_searches or state.pop("bundles") == []
    for job in state["jobs"]:
        # What they did not have: hosts apart, a search, then a budget, then `size_held`, and before quotas `queued`.
        assert has_hosts_apart or (job.pop(), job.pop(), job.pop(), job.pop()) == (0, [], "", [])
        assert has_searches or job.pop() == ""
        assert has_budgets or (job.pop(), job.pop(), job.pop()) == (0, 0, None)
        assert has_held_sizes or job.pop() == ""
        assert has_quotas or job.pop() is False
    for group in state["plan"]["resource_groups"]:
        del group["portable"]
    for group in [] if has_quotas else state["plan"]["instance_groups"]:
        for field in ("max_priority", *QUOTAS):
            del group[field]
    restored = load(version, zlib.compress(json.dumps(state).encode()))
    assert restored is not None
    assert restored.digest() == core.digest()


def test_the_ledger_begins_with_its_snapshot_and_without_one_with_everything(tmp_path) -> None:
    url = sqlite_url(tmp_path / "edt.sqlite")
    ledger = Ledger.open(url)
    slots = SlotsChanged(tuple(Slot(id=n, host="h") for n in range(4)))
    ledger.change(lambda change: change.apply(slots))
    ledger.change(lambda change: change.apply(JobArrived("a", 5000, 4, "default")))
    ledger.keep_snapshot()
    kept = ledger.seq
    ledger.change(lambda change: change.apply(JobArrived("b", 5000, 4, "default")))
    digest, seq = ledger.core.digest(), ledger.seq
    read: list[int] = []

    class Watched(Store):
        def events(self, **chosen):
            read.append(chosen.get("after", 0))
            return super().events(**chosen)

    again = Ledger(Watched(ledger.store._engine))
    assert (again.core.digest(), again.seq) == (digest, seq)
    # Not from the beginning, and some of the newest for their times.
    assert read == [kept, seq - _RECENT]
    with ledger.store.write() as tx:
        tx.put_snapshot(seq, "another release", b"")
    assert (Ledger(ledger.store).core.digest(), Ledger(ledger.store).seq) == (digest, seq)
    assert [event.kind for event in ledger.store.events(kinds=[SLOTS_CHANGED, JOB_ARRIVED])] == [
        SLOTS_CHANGED,
        JOB_ARRIVED,
        JOB_ARRIVED,
    ]
    ledger.close()


def test_a_snapshot_is_due_after_many_events(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("edt_server.ledger.ledger.SNAPSHOT_EVERY", 3)
    ledger = Ledger.open(sqlite_url(tmp_path / "edt.sqlite"))
    assert not ledger.snapshot_due
    ledger.change(lambda change: change.apply(SlotsChanged((Slot(id=0, host="h"),))))
    ledger.change(lambda change: change.apply(JobArrived("a", 5000, 4, "default")))
    assert ledger.snapshot_due
    ledger.keep_snapshot()
    assert not ledger.snapshot_due
    ledger.close()
