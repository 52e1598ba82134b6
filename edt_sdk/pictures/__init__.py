"""Own pictures as SVG text: pure functions from frozen data to a document, one file a picture (decision 028).

The same functions draw for the card, the Lab panel, the simulator and the README. A picture describes itself in one
sentence (`aria-label` and `<title>`).

Never: a clock, a file, a server, or an import from outside the standard library.

Read first: `losses.py`, then `parts/look.py` (theme, width, time zone).
"""

__all__ = [
    "allocation",
    "comparison",
    "curves",
    "efficiency",
    "history",
    "losses",
    "parallel",
    "rungs",
    "shares",
    "slots_map",
    "spark",
]
