"""The page of hosts: slots in the colours of their jobs, what lets a machine join, drain and removal with consequences.

The server, its jobs and its slots are real. Hosts that join are a fleet in memory behind the page's requests, one of
which offers the slots of the server.
"""

from __future__ import annotations

import json
import re
import socket
from urllib.parse import urlsplit

import msgspec
import pytest
from playwright.sync_api import Route, expect

from edt_sdk.schemas.errors import EdtError
from edt_sdk.schemas.hosts import HostState
from tests.browser.patience import until
from tests.browser.screen import Screen
from tests.fleets import FleetInMemory, joined

HERE = socket.gethostname()
LINE = "edt host join 'edt1:secret'"


def finished(coroutine):
    """What a coroutine returns that never waits: the loop of this thread is Playwright's."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        return done.value
    raise AssertionError("it waits")


@pytest.fixture
def fleet(page, server):
    """Hosts that joined, as the server would answer: that of the server's slots, and a lost one."""
    lost = joined("gpu-2", state=HostState.LOST, why="Its agent has been silent for 15 s.", load=None)
    fleet = FleetInMemory(joined(HERE, load=1.5, kind="9c1f", wheel="0.2.0", memory=64 << 30), lost)

    def view(host):
        here = [slot for slot in server.client().cluster()["slots"] if slot["host"] == host.name]
        used = sum(1 for slot in here if slot["job"])
        return msgspec.to_builtins(msgspec.structs.replace(host, slots=len(here), used=used))

    def answer(method, name, verb, query, body):
        if name == "tokens":
            made = fleet.make_token(seconds=body["seconds"], uses=body["uses"])
            return 201, msgspec.to_builtins(msgspec.structs.replace(made, expires=1_800_000_000.0))
        if verb == "drain":
            finished(fleet.drain(name, body["draining"]))
        elif verb == "log":
            return 200, {"log": fleet.log_tail(name, 100)}
        elif method == "DELETE":
            fleet.asked.append(("remove", name, "force=1" in query))
            finished(fleet.remove(name, force="force=1" in query))
            return 204, None
        return 200, {"hosts": [view(host) for host in fleet.standing()]}

    def serve(route: Route) -> None:
        asked = urlsplit(route.request.url)
        name, verb, *_ = [*asked.path.partition("/edt/api/hosts")[2].strip("/").split("/"), ""]
        body = json.loads(route.request.post_data or "{}")
        try:
            status, told = answer(route.request.method, name, verb, asked.query, body)
        except EdtError as refused:
            status, told = refused.status, refused.to_json()
        route.fulfill(status=status, content_type="application/json", body="" if told is None else json.dumps(told))

    page.route(re.compile(r"/edt/api/hosts(/|\?|$)"), serve)
    return fleet


@pytest.fixture
def card(page):
    return lambda name: page.get_by_role("region", name=f"Host {name}")


def test_slots_have_the_colours_of_their_jobs_and_lead_to_them(screen: Screen, fleet, card, submit, server):
    page = screen.open("lab?reset")
    screen.run("edt:open-cluster")
    page.get_by_role("button", name="Hosts", exact=True).click()
    first = submit("first", max_workers=2)
    slots = card(HERE).get_by_label(f"Slots of {HERE}")
    held = slots.get_by_role("button", name="held by first")
    expect(held).to_have_count(2)
    expect(slots.get_by_role("img", name=re.compile("free$"))).to_have_count(2)
    expect(card(HERE)).to_contain_text("2 of 4 slots in use")
    expect(card(HERE)).to_contain_text("first 2")
    expect(card(HERE)).to_contain_text("1.50 on 8 cores")
    colour = next(job["colour"] for job in server.client().cluster()["jobs"] if job["id"] == first.id)
    shown = held.first.evaluate("one => getComputedStyle(one).backgroundColor")
    assert shown == f"rgb({', '.join(str(int(colour[at : at + 2], 16)) for at in (1, 3, 5))})"
    expect(card("gpu-2")).to_contain_text("lost")
    expect(card("gpu-2")).to_contain_text("Its agent has been silent for 15 s.")
    expect(page.get_by_text("2 hosts, 1 lost, 2 of 4 slots in use.")).to_be_visible()
    screen.shot("hosts")
    held.first.click()
    expect(page.locator(".jp-edt-job-header")).to_contain_text(first.id)


def test_the_line_that_lets_a_machine_join(screen: Screen, fleet):
    page = screen.open("lab?reset")
    screen.run("edt:open-hosts")
    page.get_by_role("button", name="Add a host …").click()
    form = page.get_by_role("form", name="Add a host")
    form.get_by_label("Machines").fill("0")
    form.get_by_role("button", name="Show the line").click()
    expect(form.locator(".jp-edt-field.jp-mod-wrong")).to_contain_text("Give a whole number of at least 1.")
    form.get_by_label("Machines").fill("3")
    form.get_by_label("Minutes").fill("5")
    form.get_by_role("button", name="Show the line").click()
    line = page.get_by_role("region", name="The line for the machine")
    expect(line).to_contain_text(LINE)
    expect(line).to_contain_text("3 machines may join with it, until 2027-01-15")
    assert fleet.asked == [("token", 300, 3)]
    line.get_by_role("button", name="Copy").click()
    assert page.evaluate("() => navigator.clipboard.readText()") == LINE
    screen.shot("hosts-add")
    line.get_by_role("button", name="Close").click()
    expect(page.get_by_text(LINE)).to_have_count(0)


def test_drain_and_removal_name_the_consequences(screen: Screen, fleet, card, submit):
    page = screen.open("lab?reset")
    screen.run("edt:open-hosts")
    submit("first", max_workers=2)
    expect(card(HERE)).to_contain_text("2 of 4 slots in use")
    card(HERE).get_by_role("button", name="Drain …").click()
    dialog = page.locator(".jp-Dialog")
    expect(dialog).to_contain_text(
        "1 job has all its slots there: it goes on elsewhere, or waits for a slot; none stops"
    )
    screen.shot("hosts-drain")
    screen.answer("Leave it")
    assert fleet.hosts[HERE].state is HostState.UP
    card(HERE).get_by_role("button", name="Drain …").click()
    screen.answer("Drain")
    expect(card(HERE).get_by_role("button", name="Undo drain")).to_be_visible()
    expect(card(HERE).locator(".jp-edt-state")).to_contain_text("draining")
    card(HERE).get_by_role("button", name="Undo drain").click()
    expect(card(HERE).locator(".jp-edt-state")).to_contain_text("up")

    card(HERE).get_by_role("button", name="Log").click()
    expect(card(HERE).get_by_label(f"Log of the agent of {HERE}")).to_contain_text(f"{HERE} is up")
    card(HERE).get_by_role("button", name="Remove …").click()
    expect(dialog).to_contain_text("1 job holds 2 slots there: its workers there end at once")
    screen.answer("Leave it")
    card("gpu-2").get_by_role("button", name="Remove …").click()
    expect(dialog).to_contain_text("No job holds a slot there. Its key is forgotten")
    screen.answer("Remove")
    expect(card("gpu-2")).to_have_count(0)
    assert fleet.asked == [("remove", "gpu-2", False)]


def test_a_refusal_is_shown_at_the_host(screen: Screen, fleet, card):
    page = screen.open("lab?reset")
    screen.run("edt:open-hosts")
    fleet.busy.add("gpu-2")
    card("gpu-2").get_by_role("button", name="Remove …").click()
    screen.answer("Remove")
    expect(card("gpu-2").get_by_role("alert")).to_contain_text("Drain it first.")
    expect(page.get_by_text("2 hosts, 1 lost")).to_be_visible()


def test_a_server_without_joined_hosts_shows_its_own_machine(screen: Screen, card):
    page = screen.open("lab?reset")
    screen.run("edt:open-hosts")
    expect(card(HERE)).to_contain_text("the server itself")
    expect(card(HERE).get_by_role("button")).to_have_count(0)
    page.get_by_role("button", name="Add a host …").click()
    page.get_by_role("button", name="Show the line").click()
    expect(page.get_by_role("form", name="Add a host")).to_contain_text("c.EdtApp.fleet_listen")


@pytest.fixture
def parted(start_server, tmp_path):
    """A server whose machine is divided into two hosts with an agent each."""
    server = start_server(**{"EdtApp.local_hosts": {"a": 2, "b": 2}})
    yield server
    (tmp_path / "enough").touch()
    server.client().stop_all()
    server.stop()


def test_a_drained_part_of_this_machine_gives_its_job_to_the_other(page, parted, lasting_trainer, tmp_path):
    """With agents and no fleet in memory: what the page shows is what the server does."""
    screen, client = Screen(page, parted), parted.client()
    screen.open("lab?reset")
    screen.run("edt:open-hosts")
    cards = {name: page.get_by_role("region", name=f"Host {name}") for name in "ab"}
    for card in cards.values():
        expect(card).to_contain_text("0 of 2 slots in use")
        expect(card.get_by_role("button", name="Remove …")).to_have_count(0)
    (tmp_path / "train.py").write_text(lasting_trainer)
    script, enough = tmp_path / "train.py", tmp_path / "enough"
    client.submit(script, name="first", max_workers=2, args=[str(enough)], progress=False)
    until(page, lambda: sum(host.used for host in client.hosts()) == 2, "it has both slots")
    drained = next(host.name for host in client.hosts() if host.used)
    expect(cards[drained]).to_contain_text("first")
    cards[drained].get_by_role("button", name="Drain …").click()
    screen.answer("Drain")
    expect(cards[drained].locator(".jp-edt-state")).to_contain_text("draining")
    expect(cards["b" if drained == "a" else "a"]).to_contain_text("2 of 2 slots in use")
    expect(cards[drained]).not_to_contain_text("first")
    screen.shot("hosts-drained")
    cards[drained].get_by_role("button", name="Undo drain").click()
    expect(cards[drained]).to_contain_text("of 2 slots in use")
