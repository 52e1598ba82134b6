"""A stretch of a picture in detail: with the mouse, with keys alone, and back to all of it."""

import re

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.patience import until
from tests.browser.screen import Screen


@pytest.fixture
def training(submit, page, slow_trainer):
    """A training of a hundred updates that has finished."""
    long, short = "train(100, 2, 2, checkpoint_freq=1", "train(50, 2, 2, checkpoint_freq=0"
    assert long in slow_trainer
    job = submit("digits", max_workers=1, script=slow_trainer.replace(long, short))
    until(page, lambda: (job.refresh().view.progress or None) and job.view.progress.update > 30, "thirty updates")
    submit.finish()
    job.wait(progress=False)
    return job


def across(picture: Locator) -> tuple[float, ...]:
    """Where the x axis of a picture lies, and what it shows: left, right, first, last."""
    return tuple(map(float, (picture.locator("svg").get_attribute("data-across") or "").split()))


def drag(page: Page, picture: Locator, begin: float, end: float) -> None:
    """Drag from one part of the x axis to another, each from 0 to 1."""
    left, right, *_ = across(picture)
    box = picture.locator("svg").bounding_box()
    scale = box["width"] / float(picture.locator("svg").get_attribute("width"))
    height = box["y"] + box["height"] / 2
    place = [box["x"] + scale * (left + part * (right - left)) for part in (begin, end)]
    page.mouse.move(place[0], height)
    page.mouse.down()
    page.mouse.move((place[0] + place[1]) / 2, height)
    page.mouse.move(place[1], height)


def test_a_part_of_the_time(screen: Screen, training):
    page = screen.open()
    screen.run("edt:open-job", id=training.id)
    page.get_by_role("tab", name="Allocation").click()
    picture = page.locator("[data-picture$='/pictures/allocation']")
    expect(picture.locator("svg")).to_have_attribute("data-across", re.compile(r"\d"))
    _, _, first, last = across(picture)
    drag(page, picture, 0.5, 1.0)
    expect(page.locator(".jp-edt-zoomed")).to_be_visible()
    screen.shot("zoom-under-way")
    page.mouse.up()
    said = page.get_by_role("status").filter(has_text=re.compile(r"^From \d\d:\d\d:\d\d to"))
    expect(said).to_be_visible()
    until(page, lambda: across(picture)[2] > first + (last - first) / 3, "the picture of that part is there")
    screen.shot("zoom")
    _, _, start, end = across(picture)
    zoomable = page.locator(".jp-edt-zoomable")
    zoomable.press("Shift+ArrowUp")
    until(page, lambda: across(picture)[3] - across(picture)[2] < (end - start) * 0.6, "half as long")
    before = across(picture)[2]
    zoomable.press("Shift+ArrowLeft")
    until(page, lambda: across(picture)[2] < before, "moved to the left")
    zoomable.press("Escape")
    until(page, lambda: across(picture)[2] == first, "all of it after Escape")
    expect(said).to_have_count(0)
    drag(page, picture, 0.9, 0.5)
    page.mouse.up()
    expect(said).to_be_visible()
    until(page, lambda: across(picture)[2] > first, "the picture of that part is there again")
    page.get_by_role("button", name="Show all").click()
    until(page, lambda: across(picture)[2] == first, "all of it")
