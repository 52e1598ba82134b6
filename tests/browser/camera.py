"""Pictures of pages for the guides: a window, or a part of it, once it stands still, in few bytes."""

from __future__ import annotations

import io

import numpy as np
from PIL import Image
from playwright.sync_api import Locator, Page

from tests.browser.screen import STILL, pictures_folder

SIZE = (1200, 760)
_COLOURS = 256


def shoot(page: Page, name: str, part: Locator | None = None, width: int = SIZE[0]) -> None:
    """Keep the window, or a part of it, or the left of that, under a name, in the folder that EDT_SCREENSHOTS names."""
    folder = pictures_folder()
    assert folder is not None
    page.evaluate(STILL)
    page.mouse.move(SIZE[0] - 5, SIZE[1] // 2)
    taken = (part or page).screenshot()
    with Image.open(io.BytesIO(taken)) as image:
        seen = image.convert("RGB").crop((0, 0, min(width, image.width), image.height))
        few_colours(seen).save(folder / f"{name}.png", optimize=True)


def few_colours(seen: Image.Image) -> Image.Image:
    """In 256 colours, enough for a page and a third of the bytes: grounds stay as they are, and so do small marks."""
    chosen: list[tuple[int, ...]] = []
    for _, colour in sorted(seen.getcolors(1 << 24), reverse=True):
        if all(max(abs(a - b) for a, b in zip(colour, one, strict=True)) > 6 for one in chosen):
            chosen.append(colour)
        if len(chosen) == _COLOURS:
            break
    pixels, palette = np.asarray(seen).reshape(-1, 3), np.array(chosen, dtype=np.int32)
    # Not Pillow's own way: it takes colours together first, so that white becomes the next best.
    found, which = np.unique(pixels @ np.array([1 << 16, 1 << 8, 1]), return_inverse=True)
    colours = np.stack([found >> 16, found >> 8 & 255, found & 255], axis=1)
    nearest = np.array([np.abs(palette - colour).sum(axis=1).argmin() for colour in colours], dtype=np.uint8)
    few = Image.fromarray(nearest[which].reshape(seen.height, seen.width), mode="P")
    few.putpalette([part for colour in chosen for part in colour])
    return few
