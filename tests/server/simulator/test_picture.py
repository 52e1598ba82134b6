"""The picture of an allocation: a pure function with a golden file.

After a wanted change: EDT_GOLDEN=write pytest this file, look at golden/allocation.svg, commit it.
"""

import os
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from edt_server.simulator.engine import Life, SimulatedRun
from edt_server.simulator.picture import BANDS, COLUMNS, OTHERS, allocation, draw

GOLDEN = Path(__file__).parent / "golden" / "allocation.svg"
NAMESPACE = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def two(job):
    a = Life(job("first <job>"), ((0.0, 8), (60.0, 4), (300.0, 0)), 300.0, 1)
    b = Life(job("second", time=60.0), ((60.0, 4), (300.0, 8), (420.0, 0)), 420.0, 1)
    return SimulatedRun((a, b), 8, ())


def test_it_is_the_golden_file(two):
    drawn = draw(allocation(two))
    if os.environ.get("EDT_GOLDEN") == "write":
        GOLDEN.write_text(drawn, encoding="utf-8")
    assert drawn == GOLDEN.read_text(encoding="utf-8")


def test_it_is_svg_that_says_what_it_shows(two):
    root = ElementTree.fromstring(draw(allocation(two)))
    assert root.get("role") == "img"
    assert root.get("aria-label") == (
        "Slots held over 7 min: 8 of 8 on average; of these second 57 %, first <job> 43 %."
    )
    titles = [group.find(f"{NAMESPACE}title").text for group in root.iter(f"{NAMESPACE}g") if len(group) > 1]
    assert titles == ["second: 0 to 8 slots", "first <job>: 0 to 8 slots", "slots there are: 8 slots"]


def test_few_changes_are_exact(two):
    held = allocation(two)
    assert held.edges == (0, 60, 300, 420)
    assert {band.name: band.slots for band in held.bands} == {"first <job>": (8, 4, 0), "second": (0, 4, 8)}


def test_many_changes_are_means_that_keep_every_slot_second(job):
    lives = [
        Life(job(f"j{n}", application=f"app{n % 3}"), ((n * 7.3, 2), (n * 7.3 + 55, 1), (n * 7.3 + 90, 0)), 0.0, 0)
        for n in range(500)
    ]
    held = allocation(SimulatedRun(tuple(lives), 64, ()))
    assert len(held.edges) == COLUMNS + 1
    width = held.edges[1] - held.edges[0]
    assert sum(sum(band.slots) * width for band in held.bands) == pytest.approx(500 * (2 * 55 + 35))
    assert {band.name for band in held.bands} == {"app0", "app1", "app2"}
    assert len(re.findall(r"[HV]", draw(held))) <= 4 * COLUMNS * 3


def test_many_applications_are_put_together(job):
    lives = [Life(job(f"j{n}", application=f"app{n:02}"), ((0.0, 1), (100.0 - n, 0)), 0.0, 0) for n in range(30)]
    names = [band.name for band in allocation(SimulatedRun(tuple(lives), 64, ())).bands]
    assert len(names) == BANDS
    assert names[-1] == OTHERS


def test_of_nothing_at_all():
    drawn = draw(allocation(SimulatedRun((), 4, ())))
    assert "No job held any of 4 slots." in drawn
    ElementTree.fromstring(drawn)
