"""When a host is doubtful and when it is lost, on a clock that the test sets."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from edt_sdk.schemas.hosts import HostState
from edt_sdk.schemas.wire import agent as wire
from edt_server.fleet import HostLost
from edt_server.fleet.connection import BACK, BEAT, LOST, LOST_ALL, SILENT, HostConnection
from edt_server.fleet.registry import HostRecord
from tests.server.fleet.machines import joined
from tests.waiting import until_async

pytestmark = pytest.mark.asyncio


@pytest.fixture
def host(clock):
    """A host that is up, and was heard just now."""
    made = HostConnection(HostRecord(name="a", public_key="p", up=True), since=0.0)
    made.peer, made.heard = b"peer", clock.now
    return made


@pytest.mark.parametrize(
    ("silent", "state", "lost"),
    [
        (0.0, HostState.UP, False),
        (SILENT - 0.1, HostState.UP, False),
        (SILENT + 0.1, HostState.DOUBTFUL, False),
        (LOST - 0.1, HostState.DOUBTFUL, False),
        (LOST + 0.1, HostState.DOUBTFUL, True),
    ],
)
async def test_a_silent_host_is_doubtful_and_then_lost(host, clock, silent, state, lost):
    clock.now += silent
    assert host.view().state is state
    assert bool(host.lost()) is lost
    assert host.connected, "what it has been asked for may still be done"


async def test_a_setting_makes_all_times_of_the_lease_shorter(host, clock):
    host.silent = SILENT / 3
    assert (host.beats, host.lease) == (BEAT / 3, LOST / 3)
    clock.now += SILENT / 3 + 0.1
    assert host.view().state is HostState.DOUBTFUL
    clock.now += (LOST - SILENT) / 3
    assert host.lost() == "It has been silent for 5 s."


async def test_a_host_whose_connection_was_closed_is_lost_when_it_is_not_back_soon(host, clock):
    clock.now += BEAT
    host.closed = clock.now
    clock.now += BACK - 0.1
    assert host.lost() == ""
    clock.now += 0.2
    assert host.lost() == "Its agent has ended."


async def test_a_connection_that_ends_after_a_silence_is_no_sign_of_an_end(host, clock):
    """ZeroMQ closes it then, at both ends, and the agent may live: it has all the time of its lease."""
    clock.now += SILENT + 0.5
    host.closed = clock.now
    clock.now += BACK + 0.1
    assert host.lost() == ""
    clock.now += LOST
    assert "silent" in host.lost()


async def test_a_lost_host_is_not_lost_again(host, clock):
    clock.now += LOST + 1
    host.record = msgspec.structs.replace(host.record, up=False)
    assert host.lost() == ""


async def test_beats_and_all_other_messages_renew_the_lease(server, clock):
    machine = await joined(server)
    for message in (
        wire.HostBeat(load=0.5, memory_free=1, disk_free=2),
        wire.SupervisorEnded(job="j", attempt=1, code=0),
    ):
        clock.now += SILENT + 1
        assert server.view("a").state is HostState.DOUBTFUL
        machine.say(message)
        assert server.view("a").state is HostState.UP
    view = server.view("a")
    assert (view.load, view.memory_free, view.disk_free) == (0.5, 1, 2)


async def test_messages_of_a_former_connection_renew_nothing(server, clock):
    machine = await joined(server)
    former = machine.peer
    machine.connect()
    clock.now += SILENT + 1
    assert machine.say(wire.HostBeat(load=9.0, memory_free=1, disk_free=2), peer=former) == []
    assert server.view("a").state is HostState.DOUBTFUL
    assert server.view("a").load is None


async def test_a_silent_host_loses_its_slots_and_has_them_again_when_it_is_heard(server, clock):
    machine = await joined(server)
    clock.now += LOST + 1
    await server.fleet.follow()
    assert server.changes == [["a"]], "it is offered until it is looked at"
    await until_async(lambda: server.changes == [["a"], []])
    view = server.view("a")
    assert (view.state, "silent" in view.why) == (HostState.LOST, True)
    assert machine.beat() == [], "it has to greet first: what it holds may be out of date"
    assert isinstance(machine.connect(), wire.HostWelcome)
    await until_async(lambda: server.changes == [["a"], [], ["a"]])
    assert server.view("a").state is HostState.UP


@pytest.mark.parametrize("closed", [False, True])
async def test_the_time_that_the_server_itself_was_stopped_does_not_count(server, clock, closed):
    machine = await joined(server)
    await server.fleet.follow()
    if closed:
        machine.close()  # it may be back, and that is still to be read
    looks = asyncio.Event()
    real, seen = server.fleet._report_changes, []

    async def counted():
        seen.append(clock.now)
        await real()
        if seen.count(clock.now) > 2:
            looks.set()

    server.fleet._report_changes = counted
    await until_async(lambda: seen)
    clock.now += LOST + 1
    await looks.wait()
    assert server.view("a").state is not HostState.LOST


async def test_where_no_host_is_heard_the_server_is_cut_off_and_takes_none_for_lost(server, clock):
    one, two = [await joined(server, name) for name in "ab"]
    await server.fleet.follow()

    async def passes(seconds):
        for _ in range(round(seconds)):
            clock.now += 1.0
            server.fleet._look_soon()
            await until_async(lambda: not server.fleet._look_due.is_set())

    await passes(10 * LOST)
    assert server.view("a").state is server.view("b").state is HostState.DOUBTFUL
    assert "this server may be cut off" in server.view("a").why
    assert isinstance(one.connect(), wire.HostWelcome)
    await passes(3)
    assert server.view("b").state is HostState.DOUBTFUL, "it has a moment to be back, too"
    for _ in range(4):
        one.beat()
        await passes(3)
    assert (server.view("a").state, server.view("b").state) == (HostState.UP, HostState.LOST)
    two.connect()
    await passes(LOST_ALL + LOST + 1)
    assert server.view("a").state is server.view("b").state is HostState.LOST


async def test_a_host_that_is_back_soon_keeps_its_slots(server, clock):
    machine = await joined(server)
    await server.fleet.follow()
    await until_async(lambda: server.changes == [["a"]])
    before = server.view("a").since
    machine.close()
    clock.now += BACK - 0.1
    assert server.view("a").state is not HostState.LOST
    machine.connect()
    clock.now += BACK + 1
    assert server.fleet._hosts["a"].lost() == ""
    assert server.changes == [["a"]]
    assert server.view("a").since == before


async def test_a_host_whose_agent_has_ended_is_lost_soon(server, clock):
    machine = await joined(server)
    machine.close()
    clock.now += BACK + 0.1
    await server.fleet.follow()
    await until_async(lambda: server.changes[-1:] == [[]])
    assert server.view("a").why == "Its agent has ended."


async def test_a_copy_of_a_machine_is_refused_while_the_first_beats(server, clock):
    first = await joined(server)
    copy = await joined(server, "b")
    copy.public, copy.name, copy.boot = first.public, "a", "boot-of-the-copy"
    refused = copy.connect()
    assert isinstance(refused, wire.HostRefused)
    assert "Another machine is the host a already" in refused.why
    assert first.beat() == [wire.Heard()], "it is the host as before"
    assert copy.say(wire.HostBeat(load=0.0, memory_free=0, disk_free=0)) == []


async def test_the_greeting_of_a_former_connection_that_comes_late_changes_nothing(server):
    machine = await joined(server)
    assert isinstance(machine.connect(connection=2), wire.HostWelcome)
    assert machine.say(machine.hello(connection=1), peer=b"former") == []
    assert machine.beat() == [wire.Heard()], "the newer connection counts"


@pytest.mark.parametrize("how", ["silent", "closed"])
async def test_a_machine_that_was_started_again_takes_its_own_place(server, clock, how):
    first = await joined(server)
    again = await joined(server, "b")
    again.public, again.name, again.boot = first.public, "a", "its next boot"
    if how == "silent":
        clock.now += SILENT + 0.1
    else:
        first.close()
    assert isinstance(again.connect(), wire.HostWelcome)


async def test_with_a_restarted_agent_the_supervisors_below_it_are_gone(server, placed):
    machine = await joined(server)
    server.fleet.attempts.adopt(placed)
    machine.connect(below=(wire.Below(job=placed.job_id, attempt=1, supervises=True),))
    gone = asyncio.create_task(server.fleet.attempts.supervisor_gone(placed.job_id, 1))
    machine.connect(below=(wire.Below(job=placed.job_id, attempt=1, supervises=True),))
    await asyncio.sleep(0)
    assert not gone.done(), "the same agent has dialled again, with the supervisor below it"
    machine.started += 1
    machine.connect()
    await asyncio.wait_for(gone, 10)


@pytest.mark.parametrize("how", ["ended", "lost", "not below", "removed"])
async def test_when_a_supervisor_on_a_host_is_gone(server, clock, placed, how):
    machine = await joined(server)
    server.fleet.attempts.adopt(placed)
    machine.connect(below=(wire.Below(job=placed.job_id, attempt=1, supervises=True),))
    gone = asyncio.create_task(server.fleet.attempts.supervisor_gone(placed.job_id, 1))
    await asyncio.sleep(0)
    assert not gone.done()
    match how:
        case "ended":
            machine.say(wire.SupervisorEnded(job=placed.job_id, attempt=1, code=0))
        case "lost":
            clock.now += LOST + 1
            await server.fleet.follow()
        case "not below":
            machine.connect()
        case "removed":
            await server.fleet.remove("a", force=True)
    assert await asyncio.wait_for(gone, 60) == ("" if how == "ended" else "a"), "the host that it was lost with"


async def test_attempts_that_went_on_elsewhere_are_outdated(server, placed):
    machine = await joined(server)
    second = msgspec.structs.replace(placed, attempt=2, host="b")
    server.fleet.attempts.adopt(second)
    below = [
        wire.Below(job=placed.job_id, attempt=1, supervises=True),
        wire.Below(job=placed.job_id, attempt=2, supervises=False),
        wire.Below(job=placed.job_id, attempt=2, supervises=True),
        wire.Below(job="gone", attempt=1, supervises=True),
    ]
    welcome = machine.connect(below=tuple(below))
    assert welcome.outdated == (below[0], below[2], below[3])


async def test_a_supervisor_is_started_by_values_and_its_host_answers(server, placed, tmp_path):
    machine = await joined(server)
    starting = asyncio.create_task(server.fleet.attempts.start_supervisor(placed))
    await until_async(lambda: machine.got(wire.Prepare))
    (prepare,) = machine.got(wire.Prepare)
    assert (prepare.launch, prepare.supervises) == (placed, True)
    assert prepare.launch.secret_key, "the supervisor needs its key, and only its host gets it"
    kept = (server.settings.data_dir / "jobs" / placed.job_id / "launch.json").read_text()
    assert placed.secret_key not in kept
    identity = machine.hello().identity
    machine.say(wire.SupervisorStarted(job=placed.job_id, attempt=1, identity=identity))
    assert await starting == identity


async def test_a_supervisor_that_could_not_be_started_is_told_with_the_reason(server, placed):
    machine = await joined(server)
    starting = asyncio.create_task(server.fleet.attempts.start_supervisor(placed))
    await until_async(lambda: machine.got(wire.Prepare))
    machine.say(wire.SupervisorStarted(job=placed.job_id, attempt=1, identity=None, why="no room"))
    with pytest.raises(Exception, match="Host a could not start the supervisor: no room"):
        await starting


@pytest.mark.parametrize("how", ["lost", "restarted", "stop"])
async def test_what_is_asked_of_a_host_that_is_lost_fails(server, clock, placed, how):
    machine = await joined(server)
    starting = asyncio.create_task(server.fleet.attempts.start_supervisor(placed))
    await until_async(lambda: machine.got(wire.Prepare))
    match how:
        case "lost":
            clock.now += LOST + 1
            await server.fleet.follow()
        case "restarted":
            machine.started += 1
            machine.connect()
        case "stop":
            await server.fleet.stop()
    with pytest.raises(HostLost):
        await asyncio.wait_for(starting, 60)


async def test_an_order_is_repeated_on_the_next_connection_until_it_is_answered(server, placed):
    machine = await joined(server)
    starting = asyncio.create_task(server.fleet.attempts.start_supervisor(placed))
    await until_async(lambda: machine.got(wire.Prepare))
    machine.connect()
    await until_async(lambda: machine.got(wire.Prepare))
    assert machine.got(wire.Prepare)[0].launch == placed
    machine.say(wire.SupervisorStarted(job=placed.job_id, attempt=1, identity=machine.hello().identity))
    await starting


async def test_the_key_of_a_supervisor_is_for_its_host_alone(server, placed):
    machine, other = await joined(server), await joined(server, "b")
    server.fleet.attempts.adopt(placed)
    server.fleet.may_span(placed.job_id, ["a", "b"])
    await until_async(lambda: other.got(wire.Prepare))
    (prepare,) = other.got(wire.Prepare)
    assert (prepare.supervises, prepare.launch.secret_key) == (False, "")
    assert prepare.launch.host == "a"
    assert machine.got(wire.Prepare) == [], "it had its orders when the supervisor was started"


@pytest.mark.parametrize("how", ["forgotten", "elsewhere", "removed", "lost"])
async def test_hosts_know_the_server_and_the_hosts_of_their_jobs(server, clock, placed, how):
    a, b, c = [await joined(server, name) for name in "abc"]
    server.fleet.attempts.adopt(placed)
    server.fleet.may_span(placed.job_id, ["a", "b"])

    def known(machine):
        return {peer.host: peer.public_key for peer in machine.got(wire.HostPeers)[-1].peers}

    own = {"": server.keys[0]}
    assert known(a) == known(b) == own | {"a": a.public, "b": b.public}
    assert known(c) == own | {"c": c.public}
    match how:
        case "forgotten":
            server.fleet.attempts.forget(placed.job_id)
        case "elsewhere":
            server.fleet.attempts.adopt(msgspec.structs.replace(placed, attempt=2, host="c"))
        case "removed":
            await server.fleet.remove("b", force=True)
        case "lost":
            b.close()
            clock.now += BACK + 0.1
            await server.fleet.follow()
    await until_async(lambda: known(a) == own | {"a": a.public})
    if how == "lost":
        b.connect()
        assert known(a) == known(b) == own | {"a": a.public, "b": b.public}
