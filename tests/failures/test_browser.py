"""JupyterLab's pages in a real browser, in front of a server that fails them while somebody looks."""

from __future__ import annotations

import json
import os
import re
import resource
from collections.abc import Callable, Iterator

import nbformat
import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from edt_sdk.client.job import Job
from edt_sdk.display.card import MIME
from edt_sdk.schemas.errors import JobFailed
from tests.browser.conftest import BASE, EXPOSED, NO_NEWS, browser, chromium, front_end  # the last three are fixtures
from tests.browser.screen import PATIENCE, Screen
from tests.failures.matrix import covers
from tests.failures.situations import ENDLESS_LINE, NO_NUMBERS
from tests.failures.world import Near, World, short

__all__ = ["browser", "chromium", "front_end"]

EVERYWHERE = ("card", "panel", "status", "tab", "form", "cluster", "catalogue", "compare")
# Opening a file asks the server for it; this one is open.
FRONT = """label => { const { shell } = window.jupyterapp;
    shell.activateById([...shell.widgets('main')].find(each => each.title.label === label).id) }"""
# Where each of them says what is wrong, once it has shown something.
SENTENCES = {
    "card": ".jp-edt-card .jp-edt-age",
    "panel": ".jp-edt-panel [role=alert]",
    "tab": ".jp-edt-job .jp-edt-stale, .jp-edt-page .jp-edt-failure",
    "form": ".jp-edt-train .jp-edt-failure",
    "cluster": ".jp-edt-cluster .jp-edt-stale, .jp-edt-page .jp-edt-failure",
    "catalogue": ".jp-edt-catalogue .jp-edt-stale, .jp-edt-catalogue .jp-edt-failure",
    "compare": ".jp-edt-compare .jp-edt-stale, .jp-edt-compare .jp-edt-failure",
}
# And where each shows what there is.
CONTENTS = {
    "card": ".jp-edt-card .jp-edt-age",
    "panel": ".jp-edt-machine > div:last-child",
    "tab": ".jp-edt-job-title .jp-edt-state",
    "form": ".jp-edt-train aside",
    "cluster": ".jp-edt-cluster h3",
    "catalogue": ".jp-edt-catalogue .jp-edt-empty",
    "compare": ".jp-edt-compare-result .jp-edt-empty",
}


def lab(front_end, **traits: object) -> dict[str, object]:
    """Settings of a server with the pages."""
    return {
        "ServerApp.base_url": BASE,
        "LabApp.extra_labextensions_path": front_end,
        **EXPOSED,
        **traits,
    }


def quiet(root) -> None:
    """JupyterLab asks for no news."""
    settings = root / "config" / "labconfig" / "default_setting_overrides.json"
    settings.parent.mkdir(parents=True, exist_ok=True)
    settings.write_text(json.dumps(NO_NEWS))


@pytest.fixture(scope="module")
def world(front_end, tmp_path_factory) -> Iterator[World]:
    root = tmp_path_factory.mktemp("world")
    made = World(root, app="lab", traits=lab(front_end))
    quiet(root)
    with made.server:
        yield made


class Desk:
    """A person with every surface open, about one job that lives; a notebook has cards of it and of others.

    Attributes:
        jobs: "living"; "other", which lives too; "numbers", whose losses are none; "talker", with lines without end.
    """

    def __init__(self, world: World, page: Page, jobs: dict[str, Job]) -> None:
        self.world = world
        self.page = page
        self.jobs = jobs
        self.screen = Screen(page, world.server)

    def open(self) -> None:
        """Open them all."""
        bundles = {name: job._repr_mimebundle_() for name, job in self.jobs.items()}
        bundles["later"] = json.loads(json.dumps(bundles["living"]))
        bundles["later"][MIME]["version"] = 2
        notebook = nbformat.v4.new_notebook()
        notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
        for name, bundle in bundles.items():
            output = nbformat.v4.new_output("execute_result", data=bundle, execution_count=1)
            notebook.cells.append(nbformat.v4.new_code_cell(name, outputs=[output]))
        nbformat.write(notebook, self.world.root / "cards.ipynb")
        code = self.world.root / "mine"
        code.mkdir(exist_ok=True)
        (code / "train.py").write_text("# FabricModel")
        living = self.jobs["living"].id
        self.show: dict[str, Callable[[], None]] = {
            "card": lambda: self.page.evaluate(FRONT, "cards.ipynb"),
            "tab": lambda: self.screen.run("edt:open-job", id=living),
            "form": lambda: self.screen.run("edt:train", key="one", draft={"source": "mine", "main": "train.py"}),
            "cluster": lambda: self.screen.run("edt:open-cluster"),
            "catalogue": lambda: self.screen.run("edt:open-catalogue"),
            "compare": lambda: self.screen.run("edt:compare", ids=[living]),
        }
        self.screen.open("lab/tree/cards.ipynb")
        expect(self.page.locator(CONTENTS["card"]).first).to_be_visible()
        self.screen.panel()

    def card(self, name: str) -> Locator:
        """The card in the cell of this name."""
        self.show["card"]()
        cell = self.page.locator(".jp-CodeCell").filter(has=self.page.locator(".cm-content", has_text=name))
        return cell.locator(".jp-edt-rendered-card")

    def at(self, surface: str, where: dict[str, str]) -> Locator:
        """Its element, in the page that is in front."""
        if surface in self.show:
            self.show[surface]()
        return self.page.locator(where[surface]).locator("visible=true").first

    def content(self, surface: str) -> Locator:
        """What it shows, once it is there."""
        found = self.at(surface, CONTENTS)
        expect(found).to_be_visible()
        return found

    def wrong(self, surface: str, words: str) -> str:
        """What it says is wrong, once it does, with these words in it."""
        if surface == "status":
            item = self.page.locator(".jp-edt-status")
            expect(item).to_have_attribute("aria-label", contains(words))
            return f"{item.inner_text()} ({item.get_attribute('aria-label')})"
        if surface == "form":
            self.show["form"]()
            self.page.locator(".jp-edt-train button[type=submit]").locator("visible=true").evaluate("it => it.click()")
        found = self.at(surface, SENTENCES)
        expect(found).to_contain_text(contains(words))
        return found.inner_text()

    def free(self) -> None:
        """Put away what JupyterLab itself says of its server, which lies over everything."""
        while (dialog := self.page.locator(".jp-Dialog")).count():
            dialog.first.locator("button").last.evaluate("it => it.click()")
            self.page.wait_for_timeout(100)

    def returns(self) -> None:
        """Somebody looks at this window again."""
        self.page.evaluate("() => window.dispatchEvent(new Event('focus'))")


def contains(words: str):
    """A pattern for these words, whatever the case of the first."""
    return re.compile(words, re.IGNORECASE)


@pytest.fixture(scope="module")
def page(browser: Browser, world: World) -> Iterator[Page]:
    """One window for all of them: loading JupyterLab is most of the work. An error of ours that nobody caught fails."""
    context = browser.new_context(viewport={"width": 1400, "height": 860}, locale="en-GB", timezone_id="Europe/Berlin")
    context.set_default_timeout(PATIENCE)
    made = context.new_page()
    errors: list[str] = []
    made.on("pageerror", lambda error: errors.append(f"{error.message}\n{error.stack}"))
    yield made
    context.close()
    assert [error for error in errors if "jupyter-edt" in error] == []


@pytest.fixture(scope="module")
def desk(world: World, page: Page) -> Iterator[Desk]:
    numbers = world.submit(NO_NUMBERS, name="numbers")
    talker = world.submit(ENDLESS_LINE, name="talker")
    numbers.wait(progress=False)
    with pytest.raises(JobFailed):
        talker.wait(progress=False)
    jobs = {"living": world.sleeper(), "other": world.sleeper("other"), "numbers": numbers, "talker": talker}
    made = Desk(world, page, jobs)
    made.open()
    for surface in EVERYWHERE:
        if surface != "status":
            made.content(surface)
    yield made
    jobs["living"].stop()


@pytest.mark.long  # in a kernel and at a shell always; the tab in browser/test_job_tab.py
@covers("gone", *EVERYWHERE)
@covers("back", *EVERYWHERE)
def test_a_server_that_is_gone_and_comes_back(world: World, desk: Desk, told):
    world.kill()
    try:
        for surface in EVERYWHERE:
            told(surface, "gone", desk.wrong(surface, "does not answer"))
            desk.screen.shot(f"gone-{surface}")
    finally:
        world.again()
    desk.returns()
    expect(desk.page.locator(".jp-edt-panel [role=alert]")).to_have_count(0)
    for surface in EVERYWHERE:
        if surface == "status":
            expect(desk.page.locator(".jp-edt-status")).to_have_text("EDT 2 · 2/4 slots")
            told("status", "back", desk.page.locator(".jp-edt-status").inner_text())
            continue
        found = desk.content(surface)
        if surface == "card":
            expect(found).to_contain_text("live")
        elif surface != "panel":
            desk.returns()
            if surface == "form":  # what was refused stays until it is sent again
                expect(found).to_contain_text("It would start at once")
            else:
                expect(desk.page.locator(SENTENCES[surface]).locator("visible=true")).to_have_count(0)
        # Which files are packed with a script is another test's.
        told(surface, "back", found.inner_text().partition("Packed")[0] or str(found.get_attribute("aria-label")))


@covers("token", *EVERYWHERE)
def test_a_login_that_is_over_and_a_new_one(world: World, desk: Desk, told):
    old = world.server.token
    world.kill()
    world.again(token="another")
    try:
        for surface in EVERYWHERE:
            told(surface, "token", desk.wrong(surface, "log in again"))
            desk.screen.shot(f"token-{surface}")
        # The way back: the link leads to a login in a tab of its own, and this page goes on.
        link = desk.page.locator(".jp-edt-panel .jp-edt-login")
        with desk.page.context.expect_page() as opened:
            link.evaluate("it => it.click()")
        other = opened.value
        other.locator("#password_input").fill("another")
        other.locator("#password_input").press("Enter")
        other.wait_for_url(lambda url: "/login" not in url)
        other.close()
        desk.returns()
        expect(desk.page.locator(".jp-edt-panel [role=alert]")).to_have_count(0)
        expect(desk.content("card")).to_contain_text("live")
    finally:
        world.kill()
        world.again(token=old, forget=False)


# What a surface asks for besides jobs is refused too, now before and now after them.
DENIED = {"form": "may not change jobs", "catalogue": "may not see data sets"}


@covers("denied", *EVERYWHERE)
def test_an_authorizer_that_says_no(world: World, desk: Desk, told):
    world.deny(True)
    try:
        for surface in EVERYWHERE:
            # Beside a part of the page there is a button too; the page itself asks again without one.
            said = desk.wrong(surface, DENIED.get(surface, "may not see jobs"))
            told(surface, "denied", said.removesuffix("Try again"))
            desk.screen.shot(f"denied-{surface}")
    finally:
        world.deny(False)
    desk.returns()
    expect(desk.page.locator(".jp-edt-panel [role=alert]")).to_have_count(0)


@pytest.mark.long  # in a kernel and at a shell always; the tab in browser/test_job_tab.py
@covers("deleted", "card", "tab", "compare")
def test_a_job_that_somebody_else_deletes(desk: Desk, told):
    desk.free()
    job = desk.jobs["other"]
    row = desk.page.locator(f"[data-edt-job={job.id}]")
    expect(row).to_be_visible()
    desk.screen.run("edt:compare", ids=[job.id])
    expect(desk.page.locator(".jp-edt-compare-result th", has_text="other")).to_be_visible()
    desk.screen.run("edt:open-job", id=job.id)
    expect(desk.page.locator(CONTENTS["tab"]).locator("visible=true")).to_be_visible()
    job.stop()
    with pytest.raises(JobFailed):
        job.wait(progress=False)
    job.delete()
    wrong = desk.page.locator(".jp-edt-page .jp-edt-failure").locator("visible=true")
    expect(wrong).to_contain_text("was deleted")
    told("tab", "deleted", wrong.inner_text())
    told("compare", "deleted", desk.wrong("compare", "was deleted"))
    desk.screen.shot("deleted-compare")
    desk.page.locator(SENTENCES["compare"]).get_by_role("button", name="Leave it out").click()
    expect(desk.page.locator(SENTENCES["compare"])).to_have_count(0)
    age = desk.card("other").locator(".jp-edt-age")
    expect(age).to_contain_text("was deleted")
    told("card", "deleted", age.inner_text())
    expect(row).to_have_count(0)


@pytest.mark.long  # in a kernel and at a shell always; a thousand in browser/test_panel.py
@covers("many", "panel", "compare")
def test_ten_thousand_jobs(desk: Desk, told):
    desk.free()
    foot = desk.page.locator(".jp-edt-panel .jp-edt-foot")
    expect(foot).to_contain_text("the newest 1,000 jobs")
    desk.screen.shot("many-panel")
    told("panel", "many", foot.inner_text())
    rows = desk.page.locator(".jp-edt-panel [role=option]")
    for there in ("2,000", "3,000"):
        foot.get_by_role("button").click()
        expect(foot).to_contain_text(f"the newest {there} jobs")
    expect(rows.first).to_have_attribute("aria-setsize", "3000")
    assert rows.count() < 40
    rows.first.focus()
    desk.page.keyboard.press("End")
    expect(rows.last).to_have_attribute("aria-posinset", "3000")
    desk.page.keyboard.press("Home")
    expect(rows.first).to_have_attribute("aria-posinset", "1")
    desk.show["compare"]()
    told("compare", "many", desk.page.locator(".jp-edt-compare fieldset > .jp-edt-hint").last.inner_text())


@pytest.mark.long  # in a kernel and at a shell always; the log in browser/test_job_tab.py
@covers("line", "card", "panel", "tab")
def test_a_line_of_a_megabyte(desk: Desk, told):
    desk.free()
    talker = desk.jobs["talker"]
    row = desk.page.locator(f"[data-edt-job={talker.id}]")
    assert len(row.evaluate("it => it.outerHTML")) < 10_000
    told("panel", "line", short(row.locator(".jp-edt-row-says").inner_text()))
    card = desk.card("talker").locator(".jp-edt-card")
    assert len(card.evaluate("it => it.outerHTML")) < 10_000
    told("card", "line", short(card.locator(".jp-edt-card-facts").inner_text()))
    desk.screen.run("edt:open-job", id=talker.id)
    desk.page.get_by_role("tab", name="Logs", exact=True).locator("visible=true").click()
    log = desk.page.get_by_label("Log", exact=True).locator("visible=true")
    expect(log).to_contain_text("ValueError: eee")
    # The log follows its end, and each of the two lines takes many rows.
    log.evaluate("it => { it.scrollTop = 0; }")
    line = desk.page.locator(".jp-edt-log-line", has_text="begins ooo")
    expect(line).to_be_visible()
    desk.screen.shot("line-tab")
    told("tab", "line", short(line.inner_text()))


@pytest.mark.long  # in a kernel and at a shell it is tested always
@covers("nan", "card", "panel", "tab", "compare")
def test_losses_that_are_no_numbers(desk: Desk, told):
    desk.free()
    numbers = desk.jobs["numbers"]
    told("panel", "nan", desk.page.locator(f"[data-edt-job={numbers.id}] .jp-edt-row-says").inner_text())
    told("card", "nan", desk.card("numbers").locator(".jp-edt-card-facts").inner_text())
    desk.screen.run("edt:open-job", id=numbers.id)
    chart = desk.page.locator("[data-curve] [role=img]").locator("visible=true")
    expect(chart).to_have_attribute("aria-label", contains("not a number"))
    told("tab", "nan", str(chart.get_attribute("aria-label")))
    desk.screen.shot("nan-tab")
    desk.screen.run("edt:compare", ids=[numbers.id])
    row = desk.page.locator(
        ".jp-edt-compare-result tr", has=desk.page.get_by_role("rowheader", name="Loss", exact=True)
    )
    expect(row).to_contain_text("not a number")
    desk.screen.shot("nan-compare")
    told("compare", "nan", row.inner_text())


@covers("disk", "form", "catalogue")
def test_a_full_disk(world: World, desk: Desk, told):
    desk.free()
    big = world.root / "mine" / "noise.bin"
    big.write_bytes(os.urandom(40_000_000))
    unlimited = resource.RLIM_INFINITY
    # No file may grow beyond this: what a quota does, without a file system of its own.
    resource.prlimit(world.server.pid, resource.RLIMIT_FSIZE, (32_000_000, unlimited))
    try:
        told("form", "disk", desk.wrong("form", "no room"))
        desk.screen.shot("disk-form")
        desk.show["catalogue"]()
        desk.page.get_by_role("button", name="Add a data set").click()
        form = desk.page.get_by_role("form", name="Add a data set")
        form.locator("[name=name]").fill("noise")
        form.locator("[name=source]").fill("mine")
        form.locator("button[type=submit]").click()
        alert = form.get_by_role("alert")
        expect(alert).to_contain_text("no room")
        told("catalogue", "disk", alert.inner_text())
        desk.screen.shot("disk-catalogue")
    finally:
        resource.prlimit(world.server.pid, resource.RLIMIT_FSIZE, (unlimited, unlimited))
        big.unlink()


@covers("version", "card")
def test_a_card_of_another_version(desk: Desk, told):
    card = desk.card("later")
    expect(card).to_contain_text("digits")
    told("card", "version", card.locator(".jp-edt-age").inner_text())


@pytest.mark.long  # another JupyterLab; in a kernel and at a shell it is tested always
@covers("far", *EVERYWHERE)
def test_the_far_server_is_gone(desk: Desk, front_end, told, tmp_path):
    quiet(tmp_path)
    far = {"EdtApp.remote_url": "http://127.0.0.1:9/far/"}
    with Near(tmp_path, app="lab", traits=lab(front_end, **far)) as near:
        there = World.of(near)
        desk = Desk(there, desk.page.context.new_page(), {"living": desk.jobs["living"]})
        desk.open()
        for surface in EVERYWHERE:
            told(surface, "far", desk.wrong(surface, "does not answer"))
            desk.screen.shot(f"far-{surface}")
        desk.screen.dark()
        desk.show["cluster"]()
        desk.screen.shot("far-dark")
