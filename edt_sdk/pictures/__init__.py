"""Pictures as SVG text: pure functions from frozen data to a document, one file a picture.

The same functions draw for the card, the monitor, the Lab panel, the simulator and the README. Nothing here reads a
clock, a file or a server; nothing but the standard library is imported, so that the server may use it too. A picture
says what it shows in one sentence (`aria-label` and `<title>`), and shows nothing that the sentence's reader cannot
also get as text. `Look` chooses theme, width and time zone.
"""

from edt_sdk.pictures.allocation import Allocation, Band, draw_allocation
from edt_sdk.pictures.boxes import progress_bar
from edt_sdk.pictures.comparison import Compared, Comparison, draw_comparison
from edt_sdk.pictures.curves import Loss
from edt_sdk.pictures.efficiency import Efficiency, Speed, draw_efficiency
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
from edt_sdk.pictures.losses import Losses, draw_losses
from edt_sdk.pictures.marks import Mark
from edt_sdk.pictures.panel import Line, panels
from edt_sdk.pictures.scales import ticks
from edt_sdk.pictures.shares import GroupShare, Shares, draw_shares
from edt_sdk.pictures.slots_map import SlotCell, SlotsMap, draw_slots
from edt_sdk.pictures.spark import Spark, draw_spark
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
    "Compared",
    "Comparison",
    "Efficiency",
    "GroupShare",
    "Line",
    "Look",
    "Loss",
    "Losses",
    "Mark",
    "Shares",
    "SlotCell",
    "SlotsMap",
    "Spark",
    "Speed",
    "curve",
    "draw_allocation",
    "draw_comparison",
    "draw_efficiency",
    "draw_losses",
    "draw_shares",
    "draw_slots",
    "draw_spark",
    "image",
    "job_colour",
    "panels",
    "progress_bar",
    "ticks",
]
