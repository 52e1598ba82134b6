"""Pictures as SVG text: pure functions from frozen data to a document, one file a picture.

The same functions draw for the card, the monitor, the Lab panel, the simulator and the README. Nothing here reads a
clock, a file or a server; nothing but the standard library is imported, so that the server may use it too. A picture
says what it shows in one sentence (`aria-label` and `<title>`), and shows nothing that the sentence's reader cannot
also get as text. `Look` chooses theme, width and time zone.
"""

from edt_sdk.pictures.allocation import Allocation, Band, draw_allocation
from edt_sdk.pictures.boxes import progress_bar
from edt_sdk.pictures.embedded import image
from edt_sdk.pictures.look import (
    ACCENT,
    AUTO,
    DARK,
    GREEN,
    LIGHT,
    ORANGE,
    QUIET,
    TEXT,
    THEMES,
    Look,
    job_colour,
)
from edt_sdk.pictures.losses import Loss, Losses, draw_losses
from edt_sdk.pictures.marks import Mark
from edt_sdk.pictures.panel import Line, panels
from edt_sdk.pictures.scales import ticks
from edt_sdk.pictures.sparkline import curve

__all__ = [
    "ACCENT",
    "AUTO",
    "DARK",
    "GREEN",
    "LIGHT",
    "ORANGE",
    "QUIET",
    "TEXT",
    "THEMES",
    "Allocation",
    "Band",
    "Line",
    "Look",
    "Loss",
    "Losses",
    "Mark",
    "curve",
    "draw_allocation",
    "draw_losses",
    "image",
    "job_colour",
    "panels",
    "progress_bar",
    "ticks",
]
