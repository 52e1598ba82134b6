"""Measure what one host that comes or goes costs beside a thousand others: planning its slots, and deciding. Seconds.

Processor time of the best of several tries, so that other programs of the machine count little.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from edt_sdk.schemas.plan import Plan, ResourceGroup
from edt_server.core.core import Core
from edt_server.core.events import CoreEvent, JobArrived, JobDemand, SlotReleased, SlotsChanged
from edt_server.core.instructions import Revoke
from edt_server.system.slots import Host, plan_slots

HOSTS, SLOTS, JOBS, TRIES = 1000, 8, 300, 9


def best(work: Callable[[], object]) -> float:
    """Return the least milliseconds of processor time of several calls."""
    found = []
    for _ in range(TRIES):
        began = time.thread_time()
        work()
        found.append(time.thread_time() - began)
    return 1000 * min(found)


def settle(core: Core, event: CoreEvent, now: float) -> None:
    """Apply the event and release every slot that it revokes."""
    waiting = [event]
    while waiting:
        told = core.apply(waiting.pop(), now)
        waiting += [SlotReleased(each.job, each.slot) for each in told if isinstance(each, Revoke)]


def main() -> None:
    """Print the table."""
    hosts = [Host(f"h{number:04}", cores=SLOTS) for number in range(HOSTS)]
    names = tuple(host.name for host in hosts)
    plans = {"any host": Plan(), "named hosts": Plan(resource_groups=(ResourceGroup(name="default", hosts=names),))}
    for name, plan in plans.items():
        slots = plan_slots(plan, hosts)
        lost = best(lambda plan=plan, slots=slots: plan_slots(plan, hosts[:-1], slots))
        print(f"plan_slots, {name}: {lost:.1f} ms for one of {HOSTS} hosts lost; {len(slots)} slots")
    slots = plan_slots(Plan(), hosts)
    for most in (20, 64):
        core = Core()
        core.apply(SlotsChanged(slots), 0.0)
        for number in range(JOBS):
            settle(core, JobArrived(f"j{number}", 5000 + number, most, "default"), 1.0)
            settle(core, JobDemand(f"j{number}", most), 1.0)
        took = []
        for number in range(0, HOSTS, 100):
            left = SlotsChanged(tuple(slot for slot in core.slots if slot.host != names[number]))
            began = time.thread_time()
            core.apply(left, 2.0)
            took.append(1000 * (time.thread_time() - began))
            for job in core.jobs:
                for slot in core.leaving(job):
                    core.apply(SlotReleased(job, slot), 2.0)
        began = time.thread_time()
        core.demand()
        told = 1000 * (time.thread_time() - began)
        print(f"{JOBS} jobs of up to {most}: SlotsChanged {min(took):.1f} to {max(took):.1f} ms, demand {told:.1f} ms")


if __name__ == "__main__":
    main()
