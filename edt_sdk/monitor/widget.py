"""Make the widget: an ipywidget with an ES module as its front end, built from `jupyter_ext/lab/src/monitor/`.

anywidget and with it ipywidgets are loaded when the first widget is made, because `import edt_sdk` loads neither.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

MODULE = Path(__file__).parent / "static" / "monitor.js"
_MISSING = """
export default { render({ el }) {
  el.textContent = "The front end of this monitor is not built: run `make front-end` in the source folder.";
} };
"""


def make_widget(*, job: str, origin: str) -> Any:
    """Make a widget that shows a job of the server at `origin`, or with "" all of that server."""
    return _widget_class()(job=job, origin=origin)


@cache
def _widget_class() -> Any:
    import anywidget
    from traitlets import Unicode

    class MonitorWidget(anywidget.AnyWidget):
        _esm = MODULE.read_text(encoding="utf-8") if MODULE.is_file() else _MISSING
        job = Unicode().tag(sync=True)
        origin = Unicode().tag(sync=True)

    return MonitorWidget
