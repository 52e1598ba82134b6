"""The membership machine in a small random world (`world.py`): whatever happens when, and whoever dies."""

from hypothesis import given, settings
from hypothesis import strategies as st

from edt_sdk.schemas.job import JobState
from edt_server.supervisor.state_machines.events import (
    Stop,
)
from tests.server.supervisor.world import World, assert_at_rest, drive


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_slots_and_generations_stay_in_order_whatever_happens_when(data):
    world = World()
    drive(world, data, data.draw(st.integers(1, 150)))
    world.drain()
    assert world.ended is None, world.ended
    assert_at_rest(world)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_whatever_dies_when_the_rest_goes_on_or_the_job_ends_with_a_reason(data):
    world = World()
    drive(world, data, data.draw(st.integers(1, 150)), deadly=True)
    world.drain()
    if world.ended is None:
        assert_at_rest(world)
    else:
        assert world.finished
        assert not world.workers
        assert world.driver == "gone"
        assert world.ended.state in (JobState.FAILED, JobState.ERROR), world.ended
        assert world.ended.message


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_a_stop_at_any_moment_ends_everything_with_one_report(data):
    world = World()
    drive(world, data, data.draw(st.integers(0, 80)), deadly=True)
    if world.ended is not None or world.machine.over:
        return
    world.feed(Stop("enough"))
    world.drain()
    assert world.finished
    assert not world.workers
    assert world.ended is not None


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_a_worker_that_fails_before_the_first_update_fails_the_job_and_is_named(data):
    world = World()
    drive(world, data, data.draw(st.integers(5, 80)))
    candidates = [
        process
        for process in world.workers.values()
        if not process.told_to_end and not world.trained and (process.group or not world.in_training)
    ]
    if not candidates or world.committed or world.trainings:
        return
    victim = data.draw(st.sampled_from(candidates))
    if world.machine._workers[victim.worker].phase.name == "LEAVING":
        return
    world.exit(victim, 3)
    world.drain()
    assert world.finished
    assert world.ended.state in (JobState.FAILED, JobState.ERROR)
    assert world.ended.message.startswith(f"Worker {victim.worker} (")
    assert "ended with exit code 3" in world.ended.message
