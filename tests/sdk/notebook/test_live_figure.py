"""The live figure: with matplotlib a PNG that owes nothing to the user's settings, without it the same as SVG."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from base64 import b64decode
from xml.etree import ElementTree

import pytest

from edt_sdk.notebook import live_figure
from edt_sdk.notebook.curves import Curves
from edt_sdk.pictures.parts.scales import ticks

matplotlib = pytest.importorskip("matplotlib")


def curves(updates: int = 200, loss: float = 1.0) -> Curves:
    made = Curves()
    for u in range(updates):
        world = 1 + u // 80
        made.add({"kind": "train", "update": u, "loss": loss / (1 + u), "world": world, "time": u / (10.0 * world)})
        if u % 50 == 49:
            made.add({"kind": "test", "update": u, "loss": loss / u, "time": 0.0})
    return made


def size_of(png: bytes) -> tuple[int, int]:
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    return int.from_bytes(png[16:20], "big"), int.from_bytes(png[20:24], "big")


def test_it_is_a_png_of_wmlas_size() -> None:
    data, metadata = live_figure.bundle(curves())
    assert size_of(b64decode(data["image/png"])) == (1200, 800)
    assert metadata == {"image/png": {"width": 1200, "height": 800}}
    assert data["text/plain"].startswith("Train loss 0.005, test loss 0.005")
    assert "with 3 workers, average" in data["text/plain"]


@pytest.mark.parametrize("updates", [1, 2, 3, 79])
def test_a_few_points_are_enough(updates: int) -> None:
    picture = live_figure.png(curves(updates))
    assert picture is not None
    assert size_of(picture) == (1200, 800)
    ElementTree.fromstring(live_figure.svg(curves(updates)))


def test_losses_that_are_no_numbers_are_left_out() -> None:
    made = Curves()
    for u in range(3):
        made.add({"kind": "train", "update": u, "loss": None, "world": 1, "time": float(u)})
    assert live_figure.loss_title(made) == "Train loss –, test loss –"
    assert live_figure.png(made) is not None
    ElementTree.fromstring(live_figure.svg(made))


def test_it_is_legible_on_white_and_on_black() -> None:
    """Nothing is drawn as a ground, and text has contrast above 3 (large text) against either."""
    from matplotlib import image

    picture = live_figure.png(curves())
    assert picture is not None
    pixels = image.imread(io.BytesIO(picture))
    assert pixels[0, 0, 3] == 0
    assert (pixels[..., 3] == 0).mean() > 0.5

    def luminance(colour: str) -> float:
        parts = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
        red, green, blue = (c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    for colour in (live_figure.TEXT, live_figure.ACCENT, live_figure.GREEN):
        assert 1.05 / (luminance(colour) + 0.05) > 3
        assert (luminance(colour) + 0.05) / (luminance("#111111") + 0.05) > 3


def test_the_users_matplotlib_neither_changes_it_nor_is_changed() -> None:
    before = live_figure.png(curves())
    with matplotlib.rc_context({"axes.facecolor": "red", "font.size": 40.0, "lines.linewidth": 9.0}):
        settings = dict(matplotlib.rcParams)
        assert live_figure.png(curves()) == before
        assert dict(matplotlib.rcParams) == settings


def test_pyplot_stays_unloaded_and_nothing_warns() -> None:
    code = (
        "import sys, json; from edt_sdk.notebook import live_figure;"
        "from edt_sdk.notebook.curves import Curves; c = Curves()\n"
        "[c.add({'kind': 'train', 'update': u, 'loss': 1.0, 'world': 1, 'time': float(u)}) for u in range(5)]\n"
        "live_figure.png(c); print(json.dumps([m for m in ('matplotlib.pyplot', 'torch') if m in sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == []
    assert done.stderr == ""


def test_without_matplotlib_it_is_svg_in_an_image(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    for name in [name for name in sys.modules if name.startswith("matplotlib.")]:
        monkeypatch.setitem(sys.modules, name, None)
    data, _ = live_figure.bundle(curves())
    found = re.fullmatch(r'<img src="data:image/svg\+xml;base64,([^"]+)" alt="([^"]+)"/>', data["text/html"])
    assert found is not None
    root = ElementTree.fromstring(b64decode(found[1]))
    assert (root.get("width"), root.get("height")) == ("1200", "800")
    texts = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"Steps", "train loss", "test loss", "workers", "steps per second"} <= set(texts)
    assert data["text/plain"] == found[2]


def test_losses_below_zero_have_their_place() -> None:
    root = ElementTree.fromstring(live_figure.svg(curves(loss=-2.0)))
    numbers = re.findall(r"-?[\d.]+,(-?[\d.]+)", " ".join(e.get("points", "") for e in root.iter()))
    assert numbers
    assert all(0 <= float(y) <= 800 for y in numbers)


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(0, 10, [0, 2, 4, 6, 8, 10]), (0, 1, [0, 0.2, 0.4, 0.6, 0.8, 1.0]), (-3, 5, [-2, 0, 2, 4]), (0, 7e-7, None)],
)
def test_ticks_are_round_numbers(low: float, high: float, expected: list[float] | None) -> None:
    if expected is not None:
        assert ticks(low, high) == pytest.approx(expected)
    assert 2 <= len(ticks(low, high)) <= 7
