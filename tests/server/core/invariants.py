"""What holds for every core after every event, in O(jobs + slots)."""

from edt_server.core.core import Core


def replayed(events, plan=None):
    """The core that has seen these events, the first of them under `plan`."""
    core = Core(plan)
    core.follow(events)
    return core


def check(core):
    """Assert the invariants of a core."""
    jobs, pools = core._jobs.values(), core._pools
    taken = [slot for job in jobs for slot in (*job.held, *job.leaving)]
    assert len(taken) == len(set(taken)), f"a slot has two jobs: {sorted(taken)}"
    assert set(taken) == set(core._taken), "the index of taken slots differs from the jobs"
    for job in jobs:
        held, target = len(job.held), job.target
        assert held <= target <= job.asked, f"{job.name}: {held} held of {target} of {job.asked}"
        assert target == 0 or (target >= job.floor and target % job.unit == 0), f"{job.name} gets {target}"
        assert all(core._belongs(job, slot) for slot in job.held), f"{job.name} holds a slot of another resource group"
        assert target == pools[job.pool].rule.target(job.name), f"{job.name}: an entitlement out of date"
    for pool in pools.values():
        here = [job for job in jobs if job.pool == pool.name]
        assert sum(job.target for job in here) <= len(pool.slots), "more entitled than there is"
        assert pool._free == {slot for slot in pool.slots if slot not in core._taken}, "a free slot was forgotten"
        short = [job.missing for job in here if job.missing]
        assert not short or min(short) > len(pool._free), "a free slot was not granted"
        fair = {job.name for job in here if job.asked and not job.target and not pool.turns.queue_of(job.name)}
        queues = {queue.name for queue in pool.turns.queues() if not queue.target}
        assert fair | queues == set(pool.turns.waiting), "the waiting list differs from the jobs that wait"
        for queue in pool.turns.queues():
            assert queue.jobs == {job.name for job in here if pool.turns.queue_of(job.name) is queue}
            assert queue.target == sum(core._jobs[name].target for name in queue.jobs), f"{queue}: wrong target"
