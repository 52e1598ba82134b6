"""The loss as a chart: a part of it, its legend, what it says to a screen reader, and that it follows a training."""

import re

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.patience import until
from tests.browser.screen import Screen


@pytest.fixture
def running(lasting, page):
    """A training that goes on, with ten updates at least."""
    until(page, lambda: (lasting.refresh().view.progress or None) and lasting.view.progress.update > 10, "ten updates")
    return lasting


def shown(chart: Locator) -> tuple[float, float]:
    """The visible part of the x axis."""
    first, last = (chart.locator("[data-shown]").get_attribute("data-shown") or "nan nan").split()
    return float(first), float(last)


def drag(page: Page, chart: Locator, begin: float, end: float) -> None:
    """Drag from one part of the plot to another, each from 0 to 1."""
    box = chart.locator(".u-over").bounding_box()
    height = box["y"] + box["height"] / 2
    places = [box["x"] + part * box["width"] for part in (begin, (begin + end) / 2, end)]
    page.mouse.move(places[0], height)
    page.mouse.down()
    for place in places[1:]:
        page.mouse.move(place, height)


def test_a_part_of_the_loss_stays_while_the_training_goes_on(screen: Screen, running):
    page = screen.open()
    screen.run("edt:open-job", id=running.id, tab="metrics")
    chart = page.locator(f"[data-curve='{running.id}']")
    expect(chart.locator("[role=img]")).to_have_attribute("aria-label", re.compile("lasting: training loss from"))
    first, last = shown(chart)
    until(page, lambda: shown(chart)[1] > last, "the chart follows the training")
    screen.shot("curve")
    first, last = shown(chart)
    drag(page, chart, 0.25, 0.75)
    screen.shot("curve-drag")
    page.mouse.up()
    part = page.get_by_role("status").filter(has_text=re.compile(r"^From \S+ to \S+\."))
    expect(part).to_be_visible()
    until(page, lambda: shown(chart)[0] > first, "that part")
    start, end = shown(chart)
    width = last - first
    assert abs(start - (first + width / 4)) < width / 10
    assert abs(end - (first + 3 * width / 4)) < width / 10
    before = chart.locator("[role=img]").get_attribute("aria-label")
    expect(chart.locator("[role=img]")).not_to_have_attribute("aria-label", before)
    assert shown(chart) == (start, end)
    screen.shot("curve-zoomed")

    group = chart.get_by_role("group")
    group.press("Shift+ArrowUp")
    until(page, lambda: abs(shown(chart)[1] - shown(chart)[0] - (end - start) / 2) < width / 50, "half as long")
    middle = shown(chart)[0]
    group.press("Shift+ArrowRight")
    until(page, lambda: shown(chart)[0] > middle, "moved to the right")
    group.press("Escape")
    until(page, lambda: shown(chart)[0] == first and shown(chart)[1] >= last, "all of it")
    expect(part).to_have_count(0)

    drag(page, chart, 0.9, 0.5)
    page.mouse.up()
    expect(part).to_be_visible()
    chart.locator(".u-over").dblclick()
    expect(part).to_have_count(0)
    until(page, lambda: shown(chart)[0] == first and shown(chart)[1] >= last, "all of it after a double click")


def test_the_legend_reads_the_values_under_the_cursor(screen: Screen, running):
    page = screen.open()
    screen.run("edt:open-job", id=running.id, tab="metrics")
    chart = page.locator(f"[data-curve='{running.id}']")
    samples, loss = (chart.locator(".u-legend .u-value").nth(place) for place in (0, 1))
    expect(loss).to_have_text(re.compile(r"\d"))
    newest = samples.inner_text()
    chart.locator(".u-over").hover(position={"x": 20, "y": 40})
    expect(samples).not_to_have_text(newest)
    expect(loss).to_have_text(re.compile(r"\d"))
    page.get_by_label("logarithmic").check()
    page.get_by_role("slider", name="Smoothing").fill("0.5")
    expect(chart.locator(".u-legend")).to_contain_text("training loss, smoothed")
    screen.shot("curve-log")
    page.get_by_label("time", exact=True).check()
    expect(samples).to_have_text(re.compile(r"\d\d:\d\d:\d\d"))


def test_a_part_of_a_comparison(screen: Screen, running):
    page = screen.open()
    screen.dark()
    screen.run("edt:compare", ids=[running.id])
    chart = page.locator(".jp-edt-compare-result")
    expect(chart.locator("[role=img]")).to_have_attribute("aria-label", re.compile("Training loss at the end: lasting"))
    first, last = shown(chart)
    drag(page, chart, 0.0, 0.5)
    page.mouse.up()
    part = page.get_by_role("status").filter(has_text=re.compile(r"^From \S+ to \S+\."))
    expect(part).to_be_visible()
    until(page, lambda: shown(chart)[1] < last, "that part")
    screen.shot("curve-compare")
    page.get_by_role("button", name="Show all").click()
    until(page, lambda: shown(chart)[0] == first and shown(chart)[1] >= last, "all of it")
