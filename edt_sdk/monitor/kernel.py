"""Wrap what a monitor needs of its kernel: a widget, an output that can be replaced, the running cell, and interrupts.

IPython, which is untyped, and anywidget are not loaded outside of notebooks. Only this module of the room uses them.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

KERNEL = "edt_kernel"
_LOOK_AGAIN = 0.3
MODULE = Path(__file__).parent / "static" / "monitor.js"
_MISSING = """
export default { render({ el }) {
  el.textContent = "The front end of this monitor is not built: run `make front-end` in the source folder.";
} };
"""


def make_widget(*, job: str, origin: str) -> Any:
    """Make a widget that shows a job of the server at `origin`, or with "" all of that server.

    Its front end is an ES module, built from `jupyter_ext/lab/src/monitor/`.
    """
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


class Output:
    """An output of the running cell: a widget first, later something else in the same place.

    `beside` is a MIME bundle that is shown where there are no widgets. The output's metadata has the id of the kernel,
    so that a front end without that kernel can show this instead of a dead widget.
    """

    def __init__(self, widget: Any, beside: dict[str, Any]) -> None:
        shown, metadata = widget._repr_mimebundle_()
        # The widget's own text is its repr, which shows a reader without widgets nothing about the job.
        bundle = {**beside, **shown, "text/plain": beside["text/plain"]}
        self._handle = display(bundle, metadata={**metadata, KERNEL: kernel_id()}, raw=True, display_id=True)

    def replace(self, bundle: dict[str, Any]) -> None:
        """Show a MIME bundle in its place. Any thread may call this."""
        self._handle.update(bundle, raw=True)


def display(value: Any, **settings: Any) -> Any:
    """Call IPython's `display`."""
    from IPython import display as module

    show: Any = module.display
    return show(value, **settings)


def kernel_id() -> str:
    """Return the id by which a Jupyter Server knows this kernel, "" when it has none."""
    kernel = getattr(_shell(), "kernel", None)
    file = getattr(getattr(kernel, "parent", None), "connection_file", "")
    return Path(file).stem.removeprefix("kernel-") if file else ""


def running_cell() -> tuple[str, int]:
    """Return the id of the cell that is being executed, "" where the front end sends none, and its number."""
    shell = _shell()
    parent = shell.get_parent() if hasattr(shell, "get_parent") else {}
    named = (parent.get("metadata") or {}).get("cellId")
    return str(named or ""), int(getattr(shell, "execution_count", 0))


class Signs:
    """Reports when a cell starts and when the kernel is interrupted.

    A kernel ignores SIGINT while no cell runs, and gives it to the cell while one does. A monitor outlives its cell,
    and the interrupt button has to end it too. So this handles the signal between cells, where the kernel ignores it,
    and nowhere else. `began` is called with the id of each cell that starts, `interrupted` in the kernel's main thread.
    """

    def __init__(self, began: Callable[[str], None], interrupted: Callable[[], None]) -> None:
        self._began = began
        self._interrupted = interrupted
        self._listening = False
        self._began_at: float | None = None

    def busy_for(self) -> float:
        """Return the seconds since the running cell started, 0 between cells. Messages of pages wait for its end."""
        began = self._began_at
        return 0.0 if began is None else time.monotonic() - began

    def listen(self) -> None:
        """Start, once, in the thread that runs cells."""
        # Once per kernel: all monitors share the callbacks.
        if self._listening:
            return
        self._listening = True
        self._began_at = time.monotonic()
        shell = _shell()
        shell.events.register("pre_run_cell", self._before)
        shell.events.register("post_run_cell", self._after)
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return  # the cell runs in a thread of its own: only interrupts of cells can be seen
        loop.call_later(_LOOK_AGAIN, self._between_cells, loop)

    def _before(self, info: Any) -> None:
        self._began_at = time.monotonic()
        if named := getattr(info, "cell_id", None):
            self._began(str(named))

    def _after(self, result: Any) -> None:
        self._began_at = None
        # During a cell the signal belongs to the cell. Its KeyboardInterrupt is the only sign that is left afterwards.
        if isinstance(getattr(result, "error_in_exec", None), KeyboardInterrupt):
            self._interrupted()

    def _between_cells(self, loop: asyncio.AbstractEventLoop) -> None:
        """Take the signal as soon as the kernel ignores it. The kernel restores this handler after each cell."""
        if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
            # Only in place of SIG_IGN: any other handler is a running cell's, and replacing it would take its Ctrl-C
            # away.
            signal.signal(signal.SIGINT, lambda *_: self._interrupted())
        else:
            loop.call_later(_LOOK_AGAIN, self._between_cells, loop)


def _shell() -> Any:
    from IPython.core.getipython import get_ipython

    return get_ipython()
