"""What would be if: the answer is what happens when it is done, and asking changes nothing."""

import pytest

from edt_sdk.schemas import events as kinds
from edt_sdk.schemas.errors import Unprocessable
from edt_sdk.schemas.job import JobPatch, JobProgress, JobSpec, JobState
from edt_sdk.schemas.wire.control import Slot
from edt_sdk.schemas.wire.paths import JobPaths
from edt_server.core.events import JobChanged, JobDemand, SlotsChanged
from edt_server.jobs.submission import Submission
from edt_server.ledger.ledger import Ledger
from edt_server.service import what_if

NOW = 2_000_000_000.0  # of the questions; what happened before is told relative to it


class Place:
    """A ledger with 8 slots; jobs in it train since `since` seconds with the workers they have."""

    def __init__(self, folder):
        self.folder = folder
        self.ledger = Ledger.open(f"sqlite:///{folder / 'edt.db'}")
        self.ledger.change(lambda change: change.apply(SlotsChanged(tuple(Slot(id=n, host="h") for n in range(8)))))
        self.progress = {}

    def train(self, job, *, max_workers=8, search=""):
        spec = JobSpec(
            name=f"the {job}", main="train.py", max_workers=max_workers, instance_group="default", search=search
        )
        submission = Submission(job, "ann", spec, "/python", 1, JobPaths(self.folder, "ann", job))
        self.ledger.change(submission.enter)
        self.ledger.change(lambda change: change.apply(JobDemand(job, 8)))
        what_if.settle(self.ledger.core, NOW)

    def moved(self, job, update, total, since=100.0):
        workers = len(self.ledger.core.holding(job))
        self.progress[job] = JobProgress(update=update, total_updates=total)

        def work(change):
            change.append(kinds.TRAINING_STARTED, job, {"training": 0, "shards": 8, "epochs": 1}, time=NOW - since)
            data = {"training": 0, "number": 1, "workers": list(range(workers)), "update": 0, "pids": [], "slots": []}
            # The ledger keeps no time of the future; in this test what happened lies before NOW, not before today.
            change.now = NOW
            change.append(kinds.GENERATION, job, data, time=NOW - since)

        self.ledger.change(work)

    def ask(self, job, **changes):
        before = self.ledger.core.digest()
        now = what_if.look(self.ledger, self.progress.get, NOW)
        answer = what_if.answer(now, job, JobPatch(**changes).check())
        assert self.ledger.core.digest() == before
        return answer


@pytest.fixture
def place(tmp_path):
    place = Place(tmp_path)
    yield place
    place.ledger.close()


def shares(answer):
    return {each.job: (each.now, each.then) for each in answer.shares}


def test_shares_are_those_that_the_change_gives(place):
    place.train("a")
    place.train("b")
    answer = place.ask("b", priority=10000)
    assert shares(answer) == {"a": (4, 3), "b": (4, 5)}
    assert [each.name for each in answer.shares] == ["the a", "the b"]
    assert (answer.priority, answer.max_workers, answer.instance_group) == (10000, 8, "default")
    assert answer.reason.entitled == 5
    assert (answer.ends_now, answer.ends_then) == (None, None)
    place.ledger.change(lambda change: change.apply(JobChanged("b", JobPatch(priority=10000))))
    what_if.settle(place.ledger.core, NOW)
    assert {job: len(place.ledger.core.holding(job)) for job in ("a", "b")} == {"a": 3, "b": 5}


def test_a_search_is_one_job_to_the_others(place):
    place.train("a")
    for trial in ("s-0", "s-1", "s-2"):
        place.train(trial, max_workers=2, search="s")
    spec = JobSpec(name="s", main="train.py", max_workers=2, instance_group="default", priority=10000)
    patch = JobPatch(priority=10000)
    now = what_if.look(place.ledger, place.progress.get, NOW)
    answer = what_if.answer_of_search(now, "s", spec, patch)
    assert shares(answer) == {"a": (4, 3), "s": (4, 5)}
    assert (answer.job, answer.priority, answer.ends_then) == ("s", 10000, None)
    assert "search" in answer.reason.text
    of_a_trial = place.ask("s-1", priority=10000)
    assert set(shares(of_a_trial)) == {"a", "s", "s-1"}, "the one that is asked for has its own row"
    for trial in ("s-0", "s-1", "s-2"):
        place.ledger.change(lambda change, trial=trial: change.apply(JobChanged(trial, patch)))
    what_if.settle(place.ledger.core, NOW)
    assert sum(len(place.ledger.core.holding(f"s-{number}")) for number in range(3)) == 5


def test_a_lower_maximum(place):
    place.train("a")
    place.train("b")
    assert shares(place.ask("a", max_workers=1)) == {"a": (4, 1), "b": (4, 7)}


def test_the_end_is_told_from_what_was_done_so_far(place):
    place.train("a")
    place.moved("a", update=50, total=150)
    answer = place.ask("a", priority=9000)
    # Alone it has all slots whatever its priority: 100 s for 50 updates, 200 s for the other 100.
    assert answer.ends_now == answer.ends_then == pytest.approx(NOW + 200)


def test_more_slots_end_it_sooner(place):
    place.train("a")
    place.train("b")
    place.moved("b", update=50, total=500)
    answer = place.ask("b", priority=10000)
    assert NOW < answer.ends_then < answer.ends_now
    assert answer.ends_now == pytest.approx(NOW + 900)


def test_others_that_end_make_room_in_the_forecast(place):
    place.train("a")
    place.train("b")
    place.moved("b", update=50, total=500)
    alone = place.ask("b", priority=6000).ends_now
    place.moved("a", update=90, total=100)
    assert place.ask("b", priority=6000).ends_now < alone


def test_what_would_be_refused_is_refused(place):
    place.train("a")
    with pytest.raises(Unprocessable, match="nowhere"):
        place.ask("a", instance_group="nowhere")


def test_a_suspended_job_stays_so(place):
    place.train("a")
    place.ledger.change(lambda change: change.set_state("a", JobState.SUSPENDED))
    assert shares(place.ask("a", priority=1)) == {"a": (8, 8)}
