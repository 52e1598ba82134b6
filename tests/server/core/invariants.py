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
        assert held <= target <= job.usable, f"{job.name}: {held} held of {target} of {job.usable}"
        assert target == 0 or (target >= job.floor and target % job.unit == 0), f"{job.name} gets {target}"
        assert all(core._belongs(job, slot) for slot in job.held), f"{job.name} holds a slot of another resource group"
        assert not any(core.slot(slot).host in job.apart for slot in job.held), f"{job.name} holds a slot it may not"
        bundle = core._bundle_of.get(job.name)
        assert (bundle is not None) == bool(job.search), f"{job.name} is in no bundle"
    for claimant in core._claimants(jobs):
        assert claimant.target == pools[claimant.pool].rule.target(claimant.name), f"{claimant}: out of date"
        behind = sum(job.target for job in core._jobs_behind(claimant.name))
        assert behind == claimant.target or (behind < claimant.target and claimant.unit > 1), f"{claimant}: {behind}"
    assert all(bundle.jobs for bundle in core._bundles.values()), "an empty bundle stays"
    for group in core.plan.leaves():
        _check_quotas(core, group)
    for pool in pools.values():
        here = [job for job in jobs if job.pool == pool.name]
        assert sum(job.target for job in here) <= len(pool.slots), "more entitled than there is"
        assert pool._free == {slot for slot in pool.slots if slot not in core._taken}, "a free slot was forgotten"
        for job in here:
            assert not job.missing or job.missing > len(pool._free.difference(job.barred)), (
                "a free slot was not granted"
            )
        claimants = list(core._claimants(here))
        fair = {one.name for one in claimants if one.usable and not one.target and not pool.turns.queue_of(one.name)}
        queues = {queue.name for queue in pool.turns.queues() if not queue.target}
        assert fair | queues == set(pool.turns.waiting), "the waiting list differs from the jobs that wait"
        for queue in pool.turns.queues():
            assert queue.jobs == {one.name for one in claimants if pool.turns.queue_of(one.name) is queue}
            targets = [one.target for one in claimants if one.name in queue.jobs]
            assert queue.target == sum(targets), f"{queue}: wrong target"


def _check_quotas(core, group):
    """No user has more slots or jobs than a quota allows, except jobs that keep what they have."""
    here = list(core._jobs_of(group))
    active = [job for job in here if not job.suspended]
    placed = [job for job in active if not job.queued]
    for owner in {job.owner for job in here}:
        mine = [job for job in placed if job.owner == owner]
        kept = [job for job in mine if job.claim(group).keep]
        if group.user_running is not None:
            running = sum(job.target > 0 for job in mine)
            assert running <= max(group.user_running, len(kept)), f"{owner} has too many jobs in {group.name}"
        if group.user_slots is not None:
            most = max(group.user_slots, sum(job.claim(group).keep for job in kept))
            assert sum(job.target for job in mine) <= most, f"{owner} has too many slots in {group.name}"
    kept = [job for job in placed if job.claim(group).keep]
    if group.max_running is not None:
        running = sum(job.target > 0 for job in placed)
        assert running <= max(group.max_running, len(kept)), f"too many jobs run in {group.name}"
    for job in active:
        if job.queued:
            of_user = sum(each.owner == job.owner for each in placed)
            full = group.max_running is not None and len(placed) >= group.max_running
            assert full or (group.user_running is not None and of_user >= group.user_running), f"{job.name} queues"
