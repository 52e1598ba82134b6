"""Each picture is its golden file, in every theme of which there is one.

After a wanted change: EDT_GOLDEN=write pytest tests/sdk/pictures/test_golden.py, look at what changed in a browser
(tests/sdk/pictures/gallery.py makes a page of all), commit it.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from edt_sdk.pictures.parts.look import Look
from tests.sdk.pictures.drawn import check, crowding, texts
from tests.sdk.pictures.samples import PICTURES

GOLDEN = Path(__file__).parent / "golden"
IN_THE_GUIDE = Path(__file__).parents[3] / "docs/images/pictures"


def width_of(name):
    return 260 if name == "spark" else 720


@pytest.mark.parametrize("name", PICTURES)
def test_it_is_the_golden_file(name):
    drawn = PICTURES[name](Look(width=width_of(name)))
    path = GOLDEN / f"{name}.svg"
    if os.environ.get("EDT_GOLDEN") == "write":
        path.write_text(drawn + "\n", encoding="utf-8")
    assert drawn + "\n" == path.read_text(encoding="utf-8")


def test_there_is_no_golden_file_of_nothing():
    assert {path.stem for path in GOLDEN.glob("*.svg")} == set(PICTURES)


def test_the_guide_shows_the_same():
    shown = sorted(IN_THE_GUIDE.glob("*.svg"))
    assert shown
    for path in shown:
        golden = (GOLDEN / path.name).read_text(encoding="utf-8")
        if os.environ.get("EDT_GOLDEN") == "write":
            path.write_text(golden, encoding="utf-8")
        assert path.read_text(encoding="utf-8") == golden


@pytest.mark.parametrize("theme", ["auto", "light", "dark"])
@pytest.mark.parametrize("width", [200, 320, 720, 1200, 2400])
@pytest.mark.parametrize("name", PICTURES)
def test_it_fits_at_every_width(name, width, theme):
    root = check(PICTURES[name](Look(theme, width)), width)
    assert texts(root), "a picture without any word"
    assert crowding(root) == []


@pytest.mark.parametrize("name", PICTURES)
def test_drawn_twice_it_is_the_same(name):
    assert PICTURES[name](Look()) == PICTURES[name](Look())
