"""When a job that is not submitted yet would start: what is told is what happens, and asking changes nothing."""

import time

import pytest

from edt_sdk.schemas.errors import Unprocessable
from edt_sdk.schemas.job import JobProgress, JobSpec
from edt_sdk.schemas.plan import InstanceGroup, Plan, ResourceGroup
from edt_sdk.schemas.wire.control import Slot
from edt_sdk.schemas.wire.paths import JobPaths
from edt_server.core.events import JobDemand, SlotsChanged
from edt_server.jobs.submission import Submission
from edt_server.ledger.ledger import Ledger
from edt_server.service import what_if
from edt_server.service.coming_hosts import ComingHosts
from edt_server.service.forecast import forecast

NOW = 2_000_000_000.0


class Place:
    """A ledger with slots, and jobs that train in it."""

    def __init__(self, folder, slots=8, plan=None):
        self.folder = folder
        self.ledger = Ledger.open(f"sqlite:///{folder / 'edt.db'}", *([] if plan is None else [plan]))
        self.progress, self.ends = {}, {}
        there = tuple(Slot(id=n, host="h") for n in range(slots))
        self.ledger.change(lambda change: change.apply(SlotsChanged(there)))

    def train(self, job, *, group="default", **sizes):
        spec = JobSpec(name=f"the {job}", main="t.py", instance_group=group, **{"max_workers": 8, **sizes})
        self.ledger.change(Submission(job, "ann", spec, "/python", 1, JobPaths(self.folder, "ann", job)).enter)
        self.ledger.change(lambda change: change.apply(JobDemand(job, 8)))
        what_if.settle(self.ledger.core, NOW)

    def pace(self, job, *, left, updates):
        """It has so many seconds and updates left, for all that is known."""
        self.progress[job] = JobProgress(update=10, total_updates=10 + updates)
        self.ends[job] = (NOW + left / 2, NOW + left * 2)

    def ask(self, now=NOW, *, coming=(), **fields):
        before = self.ledger.core.digest()
        now = what_if.look(self.ledger, self.progress.get, now, {"default": coming} if coming else None)
        told = forecast(now, self.ends, "ann", JobSpec(name="new", main="t.py", **{"max_workers": 1, **fields}))
        assert self.ledger.core.digest() == before
        return told


@pytest.fixture
def place(tmp_path):
    place = Place(tmp_path)
    yield place
    place.ledger.close()


@pytest.fixture
def narrow(tmp_path):
    """One slot, which nobody is made to leave."""
    (tmp_path / "narrow").mkdir()
    place = Place(
        tmp_path / "narrow", slots=1, plan=Plan(instance_groups=(InstanceGroup(name="default", preemption=False),))
    )
    yield place
    place.ledger.close()


def test_on_an_empty_machine_it_starts_at_once_and_grows(place):
    told = place.ask(max_workers=4)
    assert (told.code, told.start_low, told.start_high, told.slots) == ("now", 0, 0, 4)
    assert told.text == "It would start at once, on 1 of 8 slots (8 are free), and grow to 4 as soon as it trains."


def test_others_make_room(place):
    place.train("a")
    place.pace("a", left=100, updates=100)
    told = place.ask(max_workers=8, priority=10000)
    assert (told.code, told.start_low, told.slots) == ("soon", 0, 5)
    assert told.start_high == pytest.approx(4)  # two updates of at most 2 s
    assert told.text == (
        "It would start on 1 of 8 slots as soon as the a has made room, which takes up to 4 s, and grow to 5 as soon "
        "as it trains. Slots would go over to it: the a from 8 to 3."
    )


def test_where_nobody_knows_how_fast_they_are(place):
    place.train("a")
    told = place.ask()
    assert (told.code, told.start_low, told.start_high) == ("soon", 0, None)
    assert "as soon as the a has made room. Slots" in told.text


def test_it_waits_for_the_end_of_another(narrow):
    narrow.train("a")
    narrow.pace("a", left=60, updates=10)
    told = narrow.ask()
    assert (told.code, told.slots) == ("waits", None)
    assert (told.start_low, told.start_high) == pytest.approx((30, 120))
    assert told.text.startswith(
        "It would wait. The only slot has a job (the a), and none is taken from a job that runs"
    )
    assert told.text.endswith("It should get a slot in at most 2 min.")


def test_it_waits_for_its_turn(tmp_path):
    place = Place(tmp_path, slots=1)
    place.train("a")
    told = place.ask(now=time.time())
    place.ledger.close()
    assert told.code == "waits"
    assert 0 < told.start_low <= told.start_high <= 60
    assert "jobs take turns of 60 s" in told.text


def test_it_waits_and_nobody_knows_how_long(narrow):
    narrow.train("a")
    told = narrow.ask()
    assert (told.code, told.start_low, told.start_high) == ("waits", None, None)
    assert told.text.endswith("When that will be is not known: nothing that runs has told how far it is.")


def test_what_never_fits_says_so(place):
    told = place.ask(max_workers=9, min_workers=9)
    assert (told.code, told.start_low, told.start_high, told.slots) == ("never", None, None, None)
    assert told.text.startswith("It would never start. It needs 9 slots at once")


def test_a_machine_without_slots(tmp_path):
    place = Place(tmp_path, slots=0)
    told = place.ask()
    place.ledger.close()
    assert told.code == "never"
    assert "There are no slots" in told.text


def test_frameworks_that_cannot_grow_get_all_at_once(place):
    told = place.ask(max_workers=4, framework="distPyTorch")
    assert told.text == "It would start at once, on 4 of 8 slots (8 are free)."
    place.train("a", max_workers=6, framework="distPyTorch")
    assert place.ask(max_workers=4, framework="distPyTorch").code == "waits"


def test_the_slots_are_those_of_its_group(tmp_path):
    plan = Plan(
        resource_groups=(ResourceGroup(name="all", hosts=("h",)), ResourceGroup(name="none", hosts=("elsewhere",))),
        instance_groups=(
            InstanceGroup(name="here", resource_group="all"),
            InstanceGroup(name="there", resource_group="none"),
        ),
    )
    place = Place(tmp_path, slots=3, plan=plan)
    assert "on 1 of 3 slots" in place.ask(instance_group="here").text
    assert place.ask(instance_group="there").code == "never"
    with pytest.raises(Unprocessable, match="nowhere"):
        place.ask(instance_group="nowhere")
    place.ledger.close()


def test_what_is_told_is_what_happens(place):
    """The forecast's slots are those that the core gives when the job comes."""
    place.train("a")
    place.train("b", priority=10000)
    told = place.ask(max_workers=3, priority=7000)
    place.train("new", max_workers=3, priority=7000)
    assert told.slots == len(place.ledger.core.holding("new"))


def test_more_workers_than_slots_is_remarked(place):
    said = "max_workers is 400, and at most 8 slots exist: it will use what there is."
    told = place.ask(max_workers=400)
    assert (told.code, told.slots) == ("now", 8)
    assert told.text.endswith(f" {said}")
    assert said not in place.ask(max_workers=8).text


def test_a_host_on_its_way_is_the_earliest_start(narrow):
    narrow.train("a")
    narrow.pace("a", left=400.0, updates=10)
    assert narrow.ask().start_low == 200
    told = narrow.ask(coming=[ComingHosts("1 host was asked of ray 40 s ago", expected=NOW + 50, room=8)])
    assert (told.code, told.start_low, told.start_high) == ("waits", 50, 800)
    assert told.text.endswith(" 1 host was asked of ray 40 s ago.")


def test_a_job_that_needs_more_than_there_is_waits_for_hosts_that_could_come(place):
    assert place.ask(max_workers=16, min_workers=16).code == "never"
    told = place.ask(max_workers=16, min_workers=16, coming=[ComingHosts("1 host was asked of ray", room=8)])
    assert (told.code, told.start_low) == ("waits", None)
    assert "It needs 16 slots at once, and its resource group has 8. 1 host was asked of ray." in told.text
    assert place.ask(max_workers=17, min_workers=17, coming=[ComingHosts("1 host was asked", room=8)]).code == "never"
