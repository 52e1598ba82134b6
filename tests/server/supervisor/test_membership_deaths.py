"""Deaths, one story at a time: of workers in and outside a generation, and what they cost the job."""

import msgspec

from edt_sdk.schemas.job import JobState
from edt_sdk.schemas.wire import control, link
from edt_sdk.schemas.wire.control import Slot
from edt_server.supervisor.state_machines.attempts import HANG_LIMIT, OUTSIDE_LIMIT
from edt_server.supervisor.state_machines.events import (
    DRIVER,
    End,
    Exited,
    Hung,
    Kill,
    LinkLost,
    Note,
    NotStarted,
    Recheck,
    Rechecked,
    StartDriver,
    Started,
    StartWorker,
)
from edt_server.supervisor.state_machines.wording import LastLines

from .story import told_of


def test_a_killed_worker_is_replaced_and_the_others_go_on_in_their_order(story):
    story.running(0, 1, 2)
    story.kill(1)
    lost = story.reports[-1]
    assert lost == control.WorkerLost(
        worker=1,
        slot=1,
        pid=101,
        exit_code=-9,
        member=True,
        update=0,
        why="Worker 1 (rank 1, slot 1) was killed by SIGKILL.",
    )
    assert told_of(story) == (4, [(0, False), (2, False)], [0, 2])
    assert {each.message.gone for each in story.told(link.Generation)} == {(1,)}
    assert story.of(StartWorker) == [StartWorker(3, Slot(id=1, host="h"))]
    story.joined(0, 4, update=6)
    story.joined(2, 4, update=6)
    assert story.reports[-1].workers == (0, 2)
    story.hello(3)
    assert told_of_after_ready(story, 3) == (5, [(0, False), (2, False), (3, True)], [0, 2, 3])
    assert {each.message.gone for each in story.told(link.Generation)} == {()}


def told_of_after_ready(story, worker):
    story.ready(worker)
    return told_of(story)


def test_the_next_generation_waits_until_the_dying_is_reaped(story):
    story.running(0, 1)
    story(LinkLost(1, "it closed the connection"))
    assert story.last == [Kill(1, 1.0)]
    story.broken(0, 2, update=3)
    assert story.told(link.Generation) == []
    story(Rechecked(2))
    assert story.last == []
    story(Exited(1, -9, (9,)))
    assert told_of(story)[:2] == (3, [(0, False)])
    assert "closed its link to the supervisor" in story.reports[-1].why


def test_no_planned_change_is_published_while_somebody_dies(story):
    story.running(0, 1)
    story.allocate(2, 0, 1, 2)
    story.hello(2)
    story(LinkLost(1, "it closed the connection"))
    story.ready(2)
    assert story.told(link.Generation) == []
    story(Exited(1, -9))
    assert told_of(story) == (3, [(0, False), (2, True)], [0, 2])


def test_a_death_during_a_change_supersedes_a_generation_that_never_formed(story):
    story.running(0, 1)
    story.allocate(2, 0, 1, 2)
    story.hello(2)
    story.ready(2)
    story.joined(0, 3)
    story.kill(0)
    assert told_of(story) == (4, [(1, False), (2, False)], [1, 2])
    story.joined(1, 3)
    story.joined(2, 3)
    assert story.of(control.GenerationFormed) == []
    story.joined(1, 4)
    story.joined(2, 4)
    assert story.reports[-1].number == 4


def test_leavers_of_a_change_that_never_formed_are_told_the_newer_one_too(story):
    story.running(0, 1, 2)
    story.allocate(2, 0, 1)
    story.kill(1)
    assert told_of(story) == (5, [(0, False)], [0, 2])
    story.left(2, 5)
    story.exit(2)
    assert isinstance(story.reports[-1], control.SlotReturned)
    story.joined(0, 5)
    assert story.reports[-1].workers == (0,)


def test_of_a_leaver_that_dies_those_are_told_who_may_wait_for_it(story):
    story.running(0, 1)
    story.allocate(2, 0)
    before = story.told(link.Generation)[0].message
    story.kill(1)
    assert story.of(Note)
    (again,) = story.told(link.Generation)
    assert again.message == msgspec.structs.replace(before, gone=(1,)), "the same generation once more"
    assert again.process == 0
    assert story.reports[-1] == control.SlotReturned(slot=1, worker=1, exit_code=-9)
    story.joined(0, 3)
    assert isinstance(story.reports[-1], control.GenerationFormed)


def test_when_only_a_leaver_has_the_state_it_writes_it_before_others_begin(story):
    story.running(0, 1)
    story.allocate(2, 1, 5)
    story.hello(2)
    story.kill(1)
    assert told_of(story) == (4, [], [0])
    story.ready(2)
    assert story.told(link.Generation) == [], "one is still writing"
    story.left(0, 4, update=3)
    story.exit(0)
    assert told_of(story) == (5, [(2, True)], [2])


def test_when_all_have_died_the_next_are_all_fresh(story):
    story.running(0, 1)
    story.kill(0, updates=5)
    assert told_of(story)[1] == [(1, False)]
    story.kill(1, updates=5)
    assert story.told(link.Generation) == []
    for worker in (2, 3):
        story.hello(worker)
    assert told_of_after_ready(story, 3) == (4, [(3, True)], [3])


def test_a_group_that_breaks_with_all_alive_is_put_together_anew(story):
    story.running(0, 1)
    story.broken(1, 2)
    story.broken(0, 2)
    assert story.of(Recheck) == [Recheck(2)]
    story(Rechecked(2))
    assert told_of(story) == (3, [(0, False), (1, False)], [0, 1])
    story(Rechecked(2))
    assert story.last == []
    story.broken(0, 2)
    assert story.last == [], "of an older generation"
    for generation in range(3, 3 + OUTSIDE_LIMIT):
        story.broken(0, generation)
        story(Rechecked(generation))
    assert End(0, 0.0) in story.last
    for worker in (0, 1):
        story.exit(worker, -15, signals=(15,))
    story.exit(DRIVER, 1)
    assert f"{OUTSIDE_LIMIT + 1} times in a row without progress" in story.reports[-1].message


def test_three_failures_in_a_row_without_progress_end_the_job_with_the_traceback(story):
    story.running(0)
    story.say(0, link.Progress(worker=0, training=0, update=4, total_updates=9, epoch=0, epochs=1))
    for worker in (0, 1, 2):
        story.say(worker, link.Failed(worker=worker, message="ValueError: bad", traceback="Traceback\nValueError: bad"))
        story.exit(worker, 1)
        if worker < 2:
            assert story.reports[-1].why == f"Worker {worker} (rank 0, slot 0) failed: ValueError: bad."
            story.hello(worker + 1)
            story.ready(worker + 1)
            story.joined(worker + 1, worker + 2, update=4)
    story.exit(DRIVER, 1)
    assert story.reports[-1].state is JobState.FAILED
    assert story.reports[-1].message == (
        "Worker 2 (rank 0, slot 0) failed: ValueError: bad. It was tried 3 times without progress in between.\n"
        "Traceback\nValueError: bad"
    )


def test_what_cannot_succeed_is_not_tried_again(story):
    story.running(0)
    story.say(0, link.Progress(worker=0, training=0, update=4, total_updates=9, epoch=0, epochs=1))
    story.say(0, link.Failed(worker=0, message="The loss of update 5 is not a number", traceback="", final=True))
    story.exit(0, 1)
    story.exit(DRIVER, 1)
    assert story.reports[-1].message == "Worker 0 (rank 0, slot 0) failed: The loss of update 5 is not a number."


def test_progress_known_only_from_the_last_sign_of_life_counts(story):
    story.running(0)
    story.exit(0, 1, updates=2)
    assert isinstance(story.reports[-1], control.WorkerLost)
    assert story.reports[-1].update == 2


def test_a_slot_in_which_no_worker_gets_ready_stays_empty_while_others_train(story):
    story.running(0)
    story.allocate(2, 0, 1)
    for worker in (1, 2, 3):
        assert story.of(StartWorker) == [StartWorker(worker, Slot(id=1, host="h"))]
        story(Started(worker, 100))
        story.exit(worker, 1)
        assert not story.reports[-1].member
    assert story.of(StartWorker) == []
    assert story.of(Note)
    story.kill(0)
    assert [each.slot.id for each in story.of(StartWorker)] == [0, 1], "nobody trains: every slot has to be tried"


def test_a_worker_that_cannot_be_started_is_tried_again_while_others_train(story):
    story.running(0)
    story.allocate(2, 0, 1)
    story(NotStarted(1, "no memory."))
    assert story.reports[-1].why == "Worker 1 (slot 1) could not be started: no memory."
    assert story.of(StartWorker)


def test_a_ready_worker_that_is_about_to_die_is_taken_in_by_nobody(story):
    story.running(0)
    story.allocate(2, 0, 1)
    story.hello(1)
    story.say(1, link.Failed(worker=1, message="x", traceback=""))
    story.ready(1)
    assert story.told(link.Generation) == []


def test_a_worker_that_hangs_is_killed_and_replaced(story):
    story.running(0, 1)
    story(Hung(1, "did not move for 75 s"))
    assert story.last == [Kill(1, 0.0)]
    story.exit(1, -9, signals=(9,))
    assert story.reports[-1].why == "Worker 1 (rank 1, slot 1) did not move for 75 s and was replaced."


def test_a_job_that_hangs_at_the_same_place_is_given_up_and_says_where(story):
    story.running(0)
    for worker in range(HANG_LIMIT):
        story(Hung(worker, "did not move for 75 s after update 6", own=True))
        assert story.last == [Kill(worker, 3.0, stack=True)]
        stack = LastLines(f"worker-{worker}.stderr", "Stack (most recent call first):")
        story.exit(worker, -9, signals=(64, 9), words=stack)
        if worker < HANG_LIMIT - 1:
            story.hello(worker + 1)
            story.ready(worker + 1)
            story.joined(worker + 1, worker + 2)
    story.exit(DRIVER, 1)
    ended = story.reports[-1]
    assert ended.state is JobState.FAILED
    assert ended.message.startswith(
        "Worker 2 (rank 0, slot 0) did not move for 75 s after update 6 and was killed. "
        "It was tried 3 times without progress in between. The stack in its log shows where it hung. "
    )
    assert ended.message.endswith("\nLast lines of worker-2.stderr:\nStack (most recent call first):")


def test_a_hang_with_progress_in_between_is_survived(story):
    story.running(0)
    for worker in range(3 * HANG_LIMIT):
        story.progress(worker, worker + 1)
        story(Hung(worker, "did not move for 75 s", own=True))
        story.exit(worker, -9, signals=(64, 9))
        story.hello(worker + 1)
        story.ready(worker + 1)
        story.joined(worker + 1, worker + 2)
    assert not any(isinstance(report, control.JobEnded) for report in story.reports)


def test_many_kills_without_progress_end_the_job(story):
    story.running(0)
    for worker in range(OUTSIDE_LIMIT):
        story.kill(worker)
        story.hello(worker + 1)
        story.ready(worker + 1)
        story.joined(worker + 1, worker + 2)
    story.kill(OUTSIDE_LIMIT)
    story.exit(DRIVER, 1)
    assert story.reports[-1].message == (
        f"Worker {OUTSIDE_LIMIT} (rank 0, slot 0) was killed by SIGKILL. "
        "It was tried 11 times without progress in between."
    )


# --- the end of a training --------------------------------------------------------------------------------------------


def test_a_death_behind_the_last_update_loses_nothing(story):
    story.running(0, 1)
    story.say(0, link.Trained(worker=0, training=0, updates=9))
    story.kill(0)
    story.broken(1, 2, update=9)
    assert story.last == [End(1, 0.0)]
    story.exit(1, -15, signals=(15,))
    assert story.told(link.TrainingDone)
    assert not any(isinstance(report, control.WorkerLost) for report in story.reports)


def test_a_member_that_ends_well_before_the_training_is_over_is_lost(story):
    story.running(0, 1)
    story.say(0, link.Progress(worker=0, training=0, update=4, total_updates=9, epoch=0, epochs=1))
    story.exit(1, 0)
    assert story.reports[-1].why == "Worker 1 (rank 1, slot 1) ended with exit code 0 before the training was finished."


# --- suspended --------------------------------------------------------------------------------------------------------


def test_suspend_and_resume(story):
    story.running(0, 1)
    story.allocate(2)
    assert told_of(story) == (3, [], [0, 1])
    for worker in (0, 1):
        story.left(worker, 3, update=7)
        story.exit(worker)
        assert story.reports[-1] == control.SlotReturned(slot=worker, worker=worker, exit_code=0)
    assert story.machine.processes == {}
    story.allocate(3, 6)
    assert story.of(StartDriver) == []
    assert story.of(StartWorker) == [StartWorker(2, Slot(id=6, host="h"))]
    story.hello(2)
    assert told_of_after_ready(story, 2) == (4, [(2, True)], [2])


def test_a_death_while_suspending_is_told_to_the_others(story):
    story.running(0, 1, 2)
    story.allocate(2)
    story.kill(1)
    assert told_of(story) == (5, [], [0, 2])
    assert not any(isinstance(report, control.WorkerLost) for report in story.reports)
    story.left(0, 5)
    story.exit(0)
    story.kill(2)
    assert story.told(link.Generation) == []
    assert sorted(report.slot for report in story.reports[-3:]) == [0, 1, 2]


def test_a_death_and_the_loss_of_all_slots_suspend_the_survivors(story):
    story.running(0, 1)
    story(LinkLost(1, "it closed the connection"))
    story.allocate(2)
    assert story.told(link.Generation) == []
    story(Exited(1, -9))
    assert told_of(story) == (3, [], [0])


def test_without_a_training_the_workers_are_ended_and_the_driver_stays(story):
    story.allocate(1, 0)
    story.driver()
    story.hello(0)
    story.allocate(2)
    assert story.last == [End(0, 0.0)]
    story.exit(0, -15, signals=(15,))
    assert story.reports[-1] == control.SlotReturned(slot=0, worker=0, exit_code=-15)
    story.train()
    story.allocate(3, 1)
    story.hello(1)
    assert told_of_after_ready(story, 1)[1] == [(1, True)]
