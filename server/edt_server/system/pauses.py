"""The collector's pauses: what is there once the server has started stays, and is not looked through again and again.

A full collection stops every thread. In a Jupyter Server with SQLAlchemy it looks at half a million objects, nearly all
of them modules, classes and functions: a tenth of a second on a quiet machine, in which no decision reaches a
supervisor and no request an answer. Kept out of it, they leave the collector what came later, a hundredth of that.
"""

from __future__ import annotations

import gc


def spare_what_is_here() -> None:
    """Exempt all present objects from collection, once in a process; blocks while garbage is collected before."""
    if not gc.get_freeze_count():
        gc.collect()
        gc.freeze()
