"""The machine of torchrun jobs, event by event."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from edt_sdk.schemas.job import JobState
from edt_sdk.schemas.wire import control, link
from edt_server.supervisor.state_machines.events import DRIVER, Exited, Hung, Received, Refuse, SendMessage, Stop
from edt_server.supervisor.state_machines.history import History
from tests.server.supervisor.agents_world import NotStarted, World, slots


def running(count: int, unit: int = 1, max_restarts: int = 0) -> World:
    world = World(unit, max_restarts)
    world.allocate(slots(*range(count * unit)))
    world.settle()
    assert len(world.running) == count
    return world


def test_the_first_round_is_of_all_who_come_together():
    world = running(3)
    assert [len(plan.members) for plan in world.rounds] == [3]
    (formed,) = world.of(control.GenerationFormed)
    assert (formed.workers, formed.slots, formed.update) == ((0, 1, 2), (0, 1, 2), None)


def test_a_joiner_makes_one_round_and_those_before_it_keep_their_ranks():
    world = running(1)
    world.allocate(slots(0, 1, 2))
    world.settle()
    assert world.members == [0, 1, 2]
    assert [plan.restarts for plan in world.rounds] == [0, 0]


def test_nobody_halts_before_the_joiner_is_ready():
    world = running(1)
    world.allocate(slots(0, 1))
    assert not world.agents[0].told
    world.settle()
    assert world.members == [0, 1]


def test_a_revoked_slot_is_released_when_its_agent_is_gone():
    world = running(3)
    world.allocate(slots(0, 1))
    assert not world.of(control.SlotReturned)
    world.settle()
    assert world.members == [0, 1]
    (released,) = world.of(control.SlotReturned)
    assert (released.slot, released.worker, released.exit_code) == (2, 2, 0)


def test_rank_0_may_leave():
    world = running(3)
    world.allocate(slots(1, 2))
    world.settle()
    assert world.members == [1, 2]
    assert world.running == {1, 2}


def test_units_come_and_go_as_a_whole():
    world = running(2, unit=2)
    (formed,) = world.of(control.GenerationFormed)
    assert (formed.workers, formed.slots) == ((0, 1, 2, 3), (0, 1, 2, 3))
    assert len(formed.pids) == 4
    world.allocate(slots(0, 1))
    world.settle()
    assert world.members == [0]
    assert {report.slot for report in world.of(control.SlotReturned)} == {2, 3}


def test_only_as_many_train_as_can_share_the_parts_equally():
    world = World(units=6)
    world.allocate(slots(0, 1, 2, 3))
    world.settle()
    assert world.members == [0, 1, 2], "four cannot share six"
    world.allocate(slots(0, 1, 2, 3, 4, 5))
    world.settle()
    assert world.members == [0, 1, 2, 3, 4, 5]
    world.allocate(slots(0, 2, 3, 4, 5))
    world.settle()
    assert world.members == [0, 2, 3]
    pairs = World(2, units=8)
    pairs.allocate(slots(*range(6)))
    pairs.settle()
    assert len(pairs.members) == 2


def test_what_is_left_of_two_units_makes_another():
    world = running(2, unit=2)
    world.allocate(slots(0, 3))
    world.settle()
    (agent,) = world.agents.values()
    assert [slot.id for slot in agent.slots] == [0, 3]
    assert {report.slot for report in world.of(control.SlotReturned)} == {1, 2}


def test_an_agent_is_on_one_host():
    world = World(unit=2)
    world.allocate((*slots(0, 1, 2, host="a"), *slots(3, 4, 5, host="b")))
    world.settle()
    assert sorted(tuple(slot.id for slot in agent.slots) for agent in world.agents.values()) == [(0, 1), (3, 4)]


def test_finished_when_every_process_is():
    world = running(2)
    world.done(0)
    world.settle()
    assert world.finished is None
    world.done(1)
    world.settle()
    assert world.finished is not None
    assert world.end == (JobState.FINISHED, "Finished: every process of train.py ended with exit code 0.")


def test_nobody_joins_a_script_that_comes_to_its_end():
    world = running(2)
    world.done(0)
    world.allocate(slots(0, 1, 2))
    world.settle()
    assert len(world.rounds) == 1
    world.done(1)
    world.settle()
    assert world.finished is not None


def test_one_that_is_ready_too_late_waits_in_vain():
    world = running(2)
    world.allocate(slots(0, 1, 2))
    world.done(0)
    world.settle()
    assert 2 in world.agents
    assert len(world.rounds) == 1
    world.done(1)
    world.settle()
    assert world.finished is not None


def test_a_crash_costs_a_restart_and_all_begin_again():
    world = running(2, max_restarts=1)
    world.crash(0)
    world.settle()
    assert [plan.restarts for plan in world.rounds] == [0, 1]
    assert world.members == [0, 1]
    (lost,) = world.of(control.WorkerLost)
    assert lost.why == "Worker 0 (rank 0, slot 0) ended with exit code 1. Restart 1 of 1."
    assert (lost.member, lost.exit_code) == (True, 1)


def test_one_crash_too_many_fails_the_job_with_its_last_words():
    world = running(2, max_restarts=1)
    world.crash(0)
    world.settle()
    world.crash(1, code=3, words="Last lines of worker-1.stderr:\nboom")
    world.settle()
    assert world.end is not None
    state, message = world.end
    assert state is JobState.FAILED
    assert message.splitlines() == [
        "Worker 1 (rank 1, slot 1) ended with exit code 3. It was restarted 1 times before.",
        "Last lines of worker-1.stderr:",
        "boom",
    ]


def test_of_several_crashes_the_first_is_the_cause_and_they_count_once():
    world = running(3, max_restarts=5)
    world.crash(2, failed=2.0)
    world.crash(1, code=7, failed=1.0)
    world.crash(0, failed=3.0)
    world.settle()
    assert world.machine.restarts == 1
    (lost,) = world.of(control.WorkerLost)
    assert (lost.worker, lost.exit_code) == (1, 7)


def test_a_process_that_still_ends_is_the_cause_of_a_crash_that_it_led_to():
    world = running(2)
    world.crash(1, failed=1.0, words="boom", leaving=True)
    world.settle()
    assert not world.of(control.WorkerLost), "nothing follows before a process has ended"
    world.crash(0, failed=1.1, words="its peer is gone")
    world.settle()
    assert world.end == (JobState.FAILED, "Worker 1 (rank 1, slot 1) ended with exit code 1.\nboom")


def test_a_process_that_ends_well_after_all_is_no_cause():
    world = running(2, max_restarts=1)
    world.crash(1, failed=1.0, leaving=True)
    world.done(1)
    world.crash(0, failed=1.1)
    world.settle()
    (lost,) = world.of(control.WorkerLost)
    assert lost.worker == 0


def test_a_crash_that_follows_the_death_of_an_agent_costs_nothing():
    world = running(3)
    world.crash(0)  # heard before the death that led to it
    world.die(2)
    world.settle()
    assert world.end is None
    assert world.machine.restarts == 0
    assert len(world.running) == 3


def test_an_agent_that_was_killed_is_replaced_in_one_round():
    world = running(3)
    world.die(1)
    world.settle()
    assert [len(plan.members) for plan in world.rounds] == [3, 3]
    assert world.members == [0, 2, 3]
    (lost,) = world.of(control.WorkerLost)
    assert "SIGKILL" in lost.why


def test_an_agent_that_hangs_is_killed_and_replaced():
    world = running(2)
    world.tell(Hung(1, "was stopped for 5 s"))
    world.settle()
    assert len(world.running) == 2
    (lost,) = world.of(control.WorkerLost)
    assert "was stopped for 5 s" in lost.why


def test_a_crash_while_all_halt_for_a_change_is_that_change():
    world = running(2)
    world.allocate(slots(0))
    world.tell(Received(0, link.Crashed(worker=0, round=1, local_rank=0, pid=1, exit_code=1, failed=1.0)))
    world.settle()
    assert world.machine.restarts == 0
    assert world.members == [0]


def test_suspended_all_end_and_resumed_all_begin_again():
    world = running(2)
    world.allocate(())
    world.settle()
    assert not world.agents
    assert not world.machine.holding
    world.allocate(slots(0, 1))
    world.settle()
    assert len(world.running) == 2
    assert world.machine.restarts == 0
    assert world.rounds[-1].number > world.rounds[0].number


def test_stop_ends_everybody():
    world = running(2)
    world.tell(Stop("by eva"))
    world.settle()
    assert world.end == (JobState.KILLED, "by eva")
    assert world.finished is not None
    assert world.finished.over


def test_refused_ends_without_a_word():
    world = running(1)
    world.tell(Refuse("another attempt"))
    world.settle()
    assert world.end is None
    assert world.finished is not None
    assert not world.finished.over


def test_an_interpreter_that_cannot_run_agents_is_an_error():
    world = World()
    world.allocate(slots(0))
    (order,) = world.starting
    world.starting.clear()
    world.tell(Exited(order.worker, 1))
    world.settle()
    assert world.end is not None
    assert world.end[0] is JobState.ERROR
    assert "could not start" in world.end[1]


def test_folders_that_cannot_be_made_end_the_job_at_once():
    world = World()
    world.tell(NotStarted(DRIVER, "The job's folders could not be prepared: the disk is full"))
    assert world.reports == [
        control.JobEnded(state=JobState.ERROR, message="The job's folders could not be prepared: the disk is full")
    ]


def test_processes_that_cannot_be_made_end_the_job_after_some_tries():
    world = World()
    world.allocate(slots(0))
    for _ in range(3):
        world.tell(NotStarted(world.starting.popleft().worker, "no memory"))
    assert world.end is not None
    assert world.end[0] is JobState.ERROR
    assert "no memory" in world.end[1]


def test_a_later_attempt_goes_on_with_the_numbers():
    world = World(history=History(reports=0, workers=7, generations=4))
    world.allocate(slots(0))
    world.settle()
    assert world.members == [7]
    assert world.rounds[0].number == 5


def test_a_torchrun_of_the_jobs_own_may_restart_by_itself_and_end():
    world = running(2)
    world.agents[0].runs = False
    world.tell(Received(0, link.Stopped(worker=0, round=1)))
    world.settle()
    assert world.running == {0, 1}
    for number in (0, 1):
        del world.agents[number]
        world.tell(Exited(number, 0))
    assert world.end is not None
    assert world.end[0] is JobState.FINISHED


def test_everybody_is_told_the_same_round():
    world = running(1)
    machine = world.machine
    world.allocate(slots(0, 1))
    while not world.rounds[1:]:
        assert world.step()
    told = [tell for agent in world.agents.values() for tell in agent.told if isinstance(tell, link.Round)]
    assert len({plan.number for plan in told}) == 1
    assert machine.round.number == told[0].number
    assert SendMessage(0, told[0]).message is told[0]


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_whatever_happens_in_whatever_order(data: st.DataObject):
    """The world itself checks what must always hold; at rest every unit of slots trains, or the job has ended."""
    unit = data.draw(st.sampled_from([1, 1, 2]))
    world = World(unit, max_restarts=data.draw(st.integers(0, 2)))
    granted: tuple[int, ...] = ()
    crashes = 0
    for _ in range(data.draw(st.integers(1, 25))):
        if world.finished is not None:
            break
        what = data.draw(st.sampled_from(["allocate", "step", "step", "step", "kill", "crash", "settle"]))
        if what == "allocate":
            granted = tuple(sorted(data.draw(st.sets(st.integers(0, 5)))))
            whole = len(granted) // unit * unit
            granted = granted[:whole]
            world.allocate(slots(*granted))
        elif what == "step":
            world.step(data.draw(st.integers(0, 7)))
        elif what == "settle":
            world.settle()
        elif what == "kill" and world.agents:
            world.die(data.draw(st.sampled_from(sorted(world.agents))))
        elif what == "crash" and world.running:
            crashes += 1
            world.crash(data.draw(st.sampled_from(sorted(world.running))))
    world.settle()
    assert world.machine.restarts <= crashes
    if world.finished is None:
        # A slot whose release the server had not acknowledged when it was granted again is granted anew.
        world.allocate(slots(*granted))
        world.settle()
        assert len(world.running) * unit == len(granted)
        assert set(world.machine.holding) == set(granted)
        for number in sorted(world.running):
            world.done(number)
        world.settle()
        if granted:
            assert world.end is not None
            assert world.end[0] is JobState.FINISHED
    elif world.end is not None:
        assert world.end[0] is JobState.FAILED


def noted(world: World, *notes: str) -> str:
    """The reason that holds the size after these notes of agent 0, "" for none."""
    for note in notes:
        world.tell(Received(0, link.Noted(worker=0, round=world.agents[0].round, note=note)))
    held = world.of(control.SizeHeld)
    return held[-1].why if held else ""


def test_a_script_keeps_its_size_until_it_has_written_a_checkpoint():
    world = running(2, unit=2)
    assert "written no checkpoint" in noted(world, "runs")
    assert world.of(control.SizeHeld)[-1].workers == 4
    assert noted(world, "saved") == ""
    world.allocate(slots(0, 1))
    world.settle()
    assert noted(world, "runs", "loaded", "saved") == ""
    assert len(world.of(control.SizeHeld)) == 2


def test_a_script_that_loads_no_checkpoint_of_its_own_is_found_and_remembered():
    world = running(1)
    noted(world, "runs", "saved")
    for ids in ((0, 1), (0,)):
        world.allocate(slots(*ids))
        world.settle()
        why = noted(world, "runs", "saved")
        assert "begun again from nothing" in why
    assert noted(world, "loaded") == ""


def test_a_trainer_that_counts_workers_keeps_its_size_with_checkpoints_too():
    world = running(1)
    assert "EDT_UNITS_HERE" in noted(world, "runs", "counts_workers", "saved")
    # Nothing of it is left in a suspension, after which it may begin with any number.
    world.allocate(())
    world.settle()
    assert world.of(control.SizeHeld)[-1].why == ""


def test_programs_are_not_watched_and_change_their_size():
    world = running(1)
    world.allocate(slots(0, 1))
    world.settle()
    assert world.of(control.SizeHeld) == []


def test_the_next_supervisor_knows_that_the_size_is_held():
    world = World(history=History(reports=0, size_held="It restarts from nothing."))
    world.allocate(slots(0))
    world.settle()
    assert world.of(control.SizeHeld) == []
    noted(world, "saved", "runs")
    assert [report.why for report in world.of(control.SizeHeld)] == [""]
