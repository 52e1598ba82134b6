"""The README's moving picture: two trainings share four slots in JupyterLab, recorded from a real run.

`make moving-picture` writes it to docs/images/, in about two minutes. Nothing else runs this. The captions below the
page are added here, and the picture is faster than the run. Everything else is what the page shows.
"""

from __future__ import annotations

import io
import os
import re
import time
from collections.abc import Callable
from itertools import pairwise

import pytest
from PIL import Image, ImageDraw, ImageFont
from playwright.sync_api import Page, expect

from edt_sdk import Job
from tests.browser.camera import few_colours
from tests.browser.digits import Trainings, project, updates
from tests.browser.screen import Screen, pictures_folder
from tests.waiting import until

pytestmark = pytest.mark.skipif(
    "EDT_SCREENSHOTS" not in os.environ, reason="The README's moving picture; the pages have tests of their own."
)
NAME = "slots-moving.gif"
SIZE = (1000, 455)
CAPTION = 44
SECONDS = 18.0
LARGEST = 1_500_000
# Seconds that each part is shown after it has settled, and the pause between two pictures.
REST, PAUSE = 6.0, 0.4


class Film:
    """Pictures of the window with their times, each above the caption of its part."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.frames: list[tuple[float, Image.Image]] = []

    def record(self, caption: str, settled: Callable[[], bool]) -> None:
        """Record until the part has settled, and a little longer."""
        rest: list[float] = []

        def done() -> bool:
            self.frames.append((time.monotonic(), captioned(self.page.screenshot(), caption)))
            if not rest and settled():
                rest.append(time.monotonic() + REST)
            return bool(rest) and time.monotonic() > rest[0]

        until(done, caption, limit=240, sleep=lambda _: self.page.wait_for_timeout(1000 * PAUSE))

    def save(self) -> int:
        """Write the moving picture, without repeated frames, and return its size in bytes."""
        kept = [self.frames[0], *(new for old, new in pairwise(self.frames) if old[1].tobytes() != new[1].tobytes())]
        end = self.frames[-1][0]
        scale = SECONDS / (end - kept[0][0])
        edges = [moment for moment, _ in kept] + [end]
        durations = [round(1000 * scale * (then - now)) for now, then in pairwise(edges)]
        # One picture of all frames, so that they share their colours.
        tall = few_colours(stacked([image for _, image in kept]))
        height = tall.height // len(kept)
        first, *others = [tall.crop((0, y, tall.width, y + height)) for y in range(0, tall.height, height)]
        folder = pictures_folder()
        assert folder is not None
        target = folder / NAME
        first.save(target, save_all=True, append_images=others, duration=durations, loop=0, optimize=True)
        return target.stat().st_size


def stacked(images: list[Image.Image]) -> Image.Image:
    tall = Image.new("RGB", (images[0].width, sum(image.height for image in images)))
    for number, image in enumerate(images):
        tall.paste(image, (0, number * image.height))
    return tall


def captioned(taken: bytes, caption: str) -> Image.Image:
    """Return the picture of the window with the caption below."""
    image = Image.new("RGB", (SIZE[0], SIZE[1] + CAPTION), "#1f2937")
    with Image.open(io.BytesIO(taken)) as seen:
        image.paste(seen.convert("RGB"), (0, 0))
    font = ImageFont.truetype("DejaVuSans.ttf", 20)
    ImageDraw.Draw(image).text((18, SIZE[1] + CAPTION // 2), caption, "white", font, anchor="lm")
    return image


def shown_everywhere(page: Page, job: Job) -> None:
    """Wait until every part of the window shows the job, so that no part of the first picture contradicts another."""
    expect(page.locator(f"[data-edt-job={job.id}]")).to_contain_text("/4 slots")
    expect(page.locator(".jp-edt-machine svg title", has_text=f"{job.name}: ")).to_be_attached()
    slots = page.locator("[data-picture='pictures/slots'] svg title", has_text=f"held by {job.name}")
    expect(slots).not_to_have_count(0)
    expect(page.locator("[data-picture='pictures/shares'] svg")).to_have_attribute(
        "aria-label", re.compile("default holds [1-4]")
    )
    expect(page.locator(".jp-edt-says")).to_contain_text(re.compile("[1-4] of 4 slots in use, 1 job"))


@pytest.mark.timeout(1200)
def test_two_trainings_share_four_slots(page: Page, server, tmp_path):
    project(tmp_path)
    trainings = Trainings(server, tmp_path)
    screen = Screen(page, server)
    page.set_viewport_size({"width": SIZE[0], "height": SIZE[1]})
    screen.open("lab")
    screen.panel()
    screen.run("edt:open-cluster")
    expect(page.get_by_text("No job runs or waits: all slots are free.")).to_be_visible()

    def hold(wanted: dict[Job, int]) -> Callable[[], bool]:
        """Return whether the jobs hold and train on that many slots, and the page shows it."""
        known = {job: updates(job) for job in wanted}

        def reached() -> bool:
            trained = all(
                job.refresh().view.slots == slots and updates(job) > known[job] + 3 for job, slots in wanted.items()
            )
            rows = {job: page.locator(f"[data-edt-job={job.id}]") for job in wanted}
            return trained and all(f"{slots}/4 slots" in rows[job].inner_text() for job, slots in wanted.items())

        return reached

    film = Film(page)
    try:
        first = trainings.begin("digits-a", 2000, 0.0005)
        shown_everywhere(page, first)
        film.record("digits-a starts. Nothing else runs: it grows to all four slots.", hold({first: 4}))
        second = trainings.begin("digits-b", 2000, 0.001)
        film.record("digits-b arrives. The two share, and neither restarts.", hold({first: 2, second: 2}))
        second.update(priority=10000)
        film.record("digits-b gets twice the priority, while both train.", hold({first: 1, second: 3}))
        first.stop()
        film.record("digits-a is stopped. digits-b takes over its slot.", hold({second: 4}))
    finally:
        trainings.stop()
    assert film.save() <= LARGEST
