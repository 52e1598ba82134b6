"""A column of widgets that knows whether any front end shows it.

A front end adds one to the widget's count for each view that it opens, and takes one away for each that it closes. A
page that is reloaded, or closed, takes nothing away: afterwards the count would never come down to 0. But the page that
comes next asks for the widget's whole state before it shows any view, and begins with the count that it is told. So
whoever asks for the whole state is told 0.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from edt_sdk.monitor.kernel import toolkit


def counted(children: list[Any], shown: Callable[[Any], None]) -> Any:
    """The column.

    Args:
        children: widgets, one below the other.
        shown: called with the change (`change["new"]` is the count) whenever a front end opens or closes a view.
    """
    box = _column()(children)
    box._view_count = 0  # from here on front ends count
    box.observe(lambda change: None if box.forgetting else shown(change), "_view_count")
    return box


@cache
def _column() -> Any:
    """The class; made when the first one is needed, since `import edt_sdk` loads no widgets."""
    widgets = toolkit()

    class Column(widgets.VBox):  # type: ignore[misc, name-defined]  # untyped
        forgetting = False

        def get_state(self, key: Any = None, drop_defaults: bool = False) -> Any:
            """As ipywidgets': without a key it is the whole state, for a page that has none yet."""
            if key is None and super().get_state("_view_count")["_view_count"]:
                self.forgetting = True
                try:
                    self.set_trait("_view_count", 0)
                finally:
                    self.forgetting = False
            return super().get_state(key, drop_defaults)

    return Column
