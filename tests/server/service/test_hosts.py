"""What the service adds to the hosts of a fleet: slots and jobs from the core, and who may change them."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from edt_sdk.schemas.errors import NotAllowed, NotFound, Unprocessable
from edt_sdk.schemas.hosts import HostState, NewHostToken
from edt_server.core.events import SlotsChanged
from edt_server.service.hosts import HostService
from edt_server.settings import Settings
from edt_server.system.slots import Host
from tests.fleets import FleetInMemory, joined
from tests.server.ledger_play import Play


class Withdrawing(FleetInMemory):
    """A fleet that withdraws the slots of a host that drains, as the real one does."""

    def __init__(self, play, *hosts):
        super().__init__(*hosts)
        self.play = play

    async def drain(self, name, draining=True):
        await super().drain(name, draining)
        left = tuple(slot for slot in self.play.ledger.core.slots if slot.host != name)
        self.play.do(lambda change: change.apply(SlotsChanged(left)))


@pytest.fixture
def play(tmp_path):
    """Three slots of the host "h", two of which a job of ann holds."""
    play = Play(tmp_path)
    play.submit("a", max_workers=2)
    play.train("a")
    yield play
    play.ledger.close()


@pytest.fixture
def hosts(play, tmp_path):
    async def read(work, *args):
        return work(*args)

    writer = SimpleNamespace(ledger=play.ledger, read=read)
    sharing = SimpleNamespace(hosts=(Host("machine", cores=4),))
    settings = Settings(data_dir=tmp_path, runtime_dir=tmp_path, admins=frozenset({"ann"}))
    return HostService(writer, sharing, settings, Withdrawing(play, joined("h"), joined("idle")))


async def test_slots_and_jobs_come_from_the_core(hosts):
    own, h, idle = await hosts.hosts("ann")
    assert (own.name, own.provider, own.state, own.slots) == ("machine", "machine", HostState.UP, 0)
    assert (h.slots, h.used, h.jobs) == (3, 2, ("a",))
    assert (idle.slots, idle.used, idle.jobs) == (0, 0, ())
    assert (await hosts.host("bob", "h")).jobs == ()
    assert (await hosts.host("bob", "h")).used == 2


async def test_a_job_that_has_not_left_yet_counts_after_its_slots_were_withdrawn(hosts, play):
    drained = await hosts.drain("ann", "h")
    assert (drained.state, drained.slots, drained.used, drained.jobs) == (HostState.DRAINING, 0, 2, ("a",))
    play.leave("a")
    left = await hosts.host("ann", "h")
    assert (left.used, left.jobs) == (0, ())


async def test_only_an_admin_changes_them_and_learns_of_a_wrong_name(hosts):
    for refused in (
        hosts.make_token("bob", NewHostToken()),
        hosts.drain("bob", "h"),
        hosts.remove("bob", "none"),
    ):
        with pytest.raises(NotAllowed, match="may not change the hosts"):
            await refused
    with pytest.raises(NotFound, match="There is no host 'none'"):
        await hosts.drain("ann", "none")
    with pytest.raises(Unprocessable, match="is the server's own machine"):
        await hosts.remove("ann", "machine")
    assert hosts.fleet.asked == []
    await hosts.remove("ann", "idle")
    assert [view.name for view in await hosts.hosts("ann")] == ["machine", "h"]
