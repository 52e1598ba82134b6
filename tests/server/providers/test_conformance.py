"""What every provider does, whatever its engine."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from edt_server.providers import NOTICE, ProvidedState, Wish
from tests.server.providers.engines import all_up, gone, reported, states, up
from tests.waiting import until_async

pytestmark = pytest.mark.asyncio


@asynccontextmanager
async def provided(engine, **more):
    """A provider that ends its machines with the test."""
    provider = engine.provider(**more)
    try:
        yield provider
    finally:
        engine.heal()
        engine.fail(fails=False)
        await provider.close(keep=False)
        await until_async(lambda: not engine.agents(), "all agents to end")


async def test_a_wish_starts_machines_with_their_own_ids_and_tokens(engine, caplog):
    caplog.set_level("DEBUG")
    async with provided(engine, slots=3) as provider:
        assert await provider.hosts() == ()
        ids = await up(provider, engine, 2)
        agents = engine.agents()
        assert {each.rpartition("-")[0].split("-")[0] for each in ids} == {engine.mark}
        assert {host_id: note["token"].rstrip("\n") for host_id, note in agents.items()} == engine.tokens.given
        assert provider.trouble == ""
        tokens = list(engine.tokens.given.values())
        assert len(set(tokens)) == 2
        for host_id, note in agents.items():
            arguments = note["arguments"]
            assert arguments[:4] == ["-P", "-m", "edt_server.agent", "join"]
            assert arguments[arguments.index("--provider") :][:4] == [
                "--provider",
                engine.kind,
                "--provider-id",
                host_id,
            ]
            assert arguments[arguments.index("--slots") + 1] == "3"
        shown = [note["line"] + str(note["environ"]) for note in agents.values()] + [caplog.text] + _command_lines()
        assert [text for text in shown if any(token in text for token in tokens)] == []


async def test_the_same_wish_again_starts_nothing(engine):
    async with provided(engine) as provider:
        await asyncio.gather(*(provider.want(Wish(hosts=1)) for _ in range(5)))
        ids = await all_up(provider, engine, 1)
        for _ in range(5):
            await provider.want(Wish(hosts=1))
            await _another_look(provider)
        assert set(await states(provider)) == set(engine.agents()) == ids


async def test_never_more_than_max_hosts(engine):
    async with provided(engine, max_hosts=1) as provider:
        (first,) = await up(provider, engine, 1)
        await provider.want(Wish(hosts=7))
        await _another_look(provider)
        await _another_look(provider)
        assert set(await states(provider)) == {first}


async def test_min_hosts_are_there_without_a_wish(engine):
    async with provided(engine, min_hosts=1) as provider:
        await up(provider, engine, 0)
        await all_up(provider, engine, 1)


async def test_a_smaller_wish_leaves_machines_that_are_up(engine):
    async with provided(engine) as provider:
        ids = await up(provider, engine, 2)
        await provider.want(Wish(hosts=0))
        for _ in range(2):  # what the first one decides the second one sees
            await _another_look(provider)
        assert await states(provider) == dict.fromkeys(ids, ProvidedState.UP)
        assert [await engine.undisturbed(host_id) for host_id in ids] == [True, True]


async def test_release_ends_this_machine_and_another_takes_its_place(engine):
    async with provided(engine) as provider:
        ids = await up(provider, engine, 2)
        first = min(ids)
        await provider.release(first, "It was idle.")
        assert (await gone(provider, first)).id == first
        assert engine.ended(first) == "SIGTERM"
        after = await all_up(provider, engine, 2)
        assert len(after & ids) == 1
        assert first not in after
        await provider.release(first, "again")
        await _another_look(provider)
        assert set(await states(provider)) == after


async def test_release_after_a_smaller_wish_leaves_the_others_alone(engine):
    async with provided(engine) as provider:
        ids = await up(provider, engine, 2)
        await provider.want(Wish(hosts=1))
        first = min(ids)
        await provider.release(first, "It was idle.")
        assert await all_up(provider, engine, 1) == ids - {first}


async def test_a_machine_whose_agent_ends_is_gone_and_replaced(engine):
    async with provided(engine) as provider:
        (first,) = await up(provider, engine, 1)
        os.kill(engine.agents()[first]["pid"], signal.SIGKILL)
        assert (await gone(provider, first)).why
        (second,) = await all_up(provider, engine, 1)
        assert second != first


async def test_a_start_that_fails_is_tried_again_until_it_works(engine):
    async with provided(engine) as provider:
        engine.fail(fails=True)
        await provider.want(Wish(hosts=1))
        await until_async(lambda: provider.trouble, "the trouble to be reported")
        failed = [each for each in await provider.hosts() if each.state is ProvidedState.GONE]
        assert all(each.why for each in failed)
        engine.fail(fails=False)
        (good,) = await all_up(provider, engine, 1)
        assert good not in {each.id for each in failed}
        await until_async(lambda: not provider.trouble, "the trouble to be over")


async def test_machines_outlive_the_server_and_the_next_one_finds_them(engine):
    first = engine.provider()
    ids = await up(first, engine, 2)
    pids = {note["pid"] for note in engine.agents().values()}
    await first.close(keep=True)
    assert [await engine.undisturbed(host_id) for host_id in ids] == [True, True]
    async with provided(engine) as second:
        assert await up(second, engine, 2) == ids
        assert {note["pid"] for note in engine.agents().values()} == pids
        assert set(engine.tokens.given) >= ids
        one = min(ids)
        await second.want(Wish(hosts=1))
        await second.release(one, "It was idle.")
        await gone(second, one)
        assert engine.ended(one) == "SIGTERM"
    assert engine.agents() == {}


async def test_a_machine_of_an_earlier_server_can_be_released_without_a_wish(engine):
    first = engine.provider()
    (host_id,) = await up(first, engine, 1)
    await first.close(keep=True)
    async with provided(engine) as second:
        await second.want(Wish(hosts=0))
        await second.release(host_id, "It is not needed.")
        await until_async(lambda: engine.ended(host_id) == "SIGTERM", "the agent to be ended")


async def test_closing_without_keep_ends_all_machines(engine):
    provider = engine.provider()
    ids = await up(provider, engine, 2)
    await provider.close(keep=False)
    await until_async(lambda: not engine.agents(), "all agents to end")
    assert {engine.ended(each) for each in ids} == {"SIGTERM"}


async def test_a_provider_leaves_the_machines_of_another_mark_alone(engine):
    other = f"{engine.mark}-b"
    async with provided(engine, max_hosts=1) as provider:
        second = engine.provider(mark=other, max_hosts=1)
        (own,) = await up(provider, engine, 1)
        (another,) = await up(second, engine, 1, other)
        assert own != another
        await provider.release(own, "idle")
        await provider.want(Wish(hosts=0))
        await gone(provider, own)
        assert set(await states(second)) == set(engine.agents(other)) == {another}
        await second.close(keep=False)
        await until_async(lambda: not engine.agents(other), "the other agent to end")


async def test_an_engine_that_is_down_changes_nothing(engine):
    async with provided(engine) as provider:
        (first,) = await up(provider, engine, 1)
        engine.break_()
        await provider.want(Wish(hosts=2))
        await until_async(lambda: _in_trouble(provider, first), "the trouble to be reported")
        assert (await states(provider))[first] is ProvidedState.UP
        assert set(engine.agents()) == {first}
        engine.heal()
        assert first in await all_up(provider, engine, 2)
        assert provider.trouble == ""


async def test_a_notice_comes_once_and_the_machine_gets_a_successor(engine):
    if not engine.noticing:
        pytest.skip(f"{engine.kind} gives no notices.")
    async with provided(engine) as provider:
        notices, later = provider.notices(), []
        (first,) = await up(provider, engine, 1)
        await engine.notice(first)
        notice = await asyncio.wait_for(anext(notices), 60)
        assert notice.id == first
        assert 0 < notice.seconds <= NOTICE
        assert notice.why
        machine = await reported(provider, first)
        assert machine is not None
        assert machine.state in (ProvidedState.UP, ProvidedState.DRAINING)
        assert machine.until is not None

        async def more():
            later.extend([each async for each in notices])

        listening = asyncio.create_task(more())
        await _another_look(provider)
        await _another_look(provider)
        await provider.close(keep=True)
        await listening
        assert later == []


async def _another_look(provider):
    """Return after the loop has compared again."""
    looked = asyncio.Event()
    look = provider._compare

    async def looking():
        await look()
        looked.set()

    provider._compare = looking
    provider._wake.set()
    await asyncio.wait_for(looked.wait(), 120)
    provider._compare = look


async def _in_trouble(provider, host_id):
    return provider.trouble or (await reported(provider, host_id)).why


def _command_lines():
    lines = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            lines.append(path.read_text(errors="replace"))
        except OSError:
            continue
    return lines
