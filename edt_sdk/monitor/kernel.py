"""What a monitor needs of the kernel it lives in: an output that can be replaced, which cell runs, and interrupts.

Everything here is IPython's, which is untyped and not loaded outside of notebooks; nothing else in this room knows it.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

KERNEL = "edt_kernel"
_LOOK_AGAIN = 0.3


def toolkit() -> Any:
    """ipywidgets: untyped, and loaded only where a widget is made."""
    import ipywidgets  # type: ignore[import-untyped]

    return ipywidgets


class Output:
    """One output of the cell that runs: a widget first, and later something else in the same place.

    Args:
        widget: what is shown where there are widgets.
        beside: what is shown where there are none, as a MIME bundle. A front end that finds widgets of another kernel
            than the one it has, or has none, can show this too: whose they are is in the output's metadata.
    """

    def __init__(self, widget: Any, beside: dict[str, Any]) -> None:
        shown = widget._repr_mimebundle_()
        bundle = {**beside, **shown, "text/plain": beside["text/plain"]}
        self._handle = display(bundle, metadata={KERNEL: kernel_id()}, raw=True, display_id=True)

    def replace(self, bundle: dict[str, Any]) -> None:
        """Show a MIME bundle in its place, from any thread."""
        self._handle.update(bundle, raw=True)


def display(value: Any, **settings: Any) -> Any:
    """IPython's `display`."""
    from IPython import display as module

    show: Any = module.display
    return show(value, **settings)


def kernel_id() -> str:
    """The id by which a Jupyter Server knows this kernel; "" when it has none."""
    kernel = getattr(_shell(), "kernel", None)
    file = getattr(getattr(kernel, "parent", None), "connection_file", "")
    return Path(file).stem.removeprefix("kernel-") if file else ""


def running_cell() -> tuple[str, int]:
    """The cell that is being executed: its id, "" where the front end tells none, and its number."""
    shell = _shell()
    parent = shell.get_parent() if hasattr(shell, "get_parent") else {}
    named = (parent.get("metadata") or {}).get("cellId")
    return str(named or ""), int(getattr(shell, "execution_count", 0))


class Signs:
    """Tells when a cell begins, and when the kernel is interrupted.

    A kernel ignores SIGINT while no cell runs, and gives it to the cell while one does. So that the button works on a
    monitor too, which outlives its cell, that signal is listened for between cells: where it was ignored, and nowhere
    else.

    Args:
        began: called with the id of each cell that begins.
        interrupted: called after each interrupt, in the kernel's main thread.
    """

    def __init__(self, began: Callable[[str], None], interrupted: Callable[[], None]) -> None:
        self._began = began
        self._interrupted = interrupted
        self._listening = False
        self._began_at: float | None = None

    def busy_for(self) -> float:
        """Seconds for which the cell that runs has run; 0 while none does. What a person clicks waits for its end."""
        began = self._began_at
        return 0.0 if began is None else time.monotonic() - began

    def listen(self) -> None:
        """Begin, once; in the thread that runs cells."""
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
            return  # a cell that runs in a thread of its own: only interrupts of cells are seen
        loop.call_later(_LOOK_AGAIN, self._between_cells, loop)

    def _before(self, info: Any) -> None:
        self._began_at = time.monotonic()
        if named := getattr(info, "cell_id", None):
            self._began(str(named))

    def _after(self, result: Any) -> None:
        self._began_at = None
        if isinstance(getattr(result, "error_in_exec", None), KeyboardInterrupt):
            self._interrupted()

    def _between_cells(self, loop: asyncio.AbstractEventLoop) -> None:
        """Take the signal as soon as it is the kernel's to ignore; it puts back what it found after each cell."""
        if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
            signal.signal(signal.SIGINT, lambda *_: self._interrupted())
        else:
            loop.call_later(_LOOK_AGAIN, self._between_cells, loop)


def _shell() -> Any:
    from IPython.core.getipython import get_ipython

    return get_ipython()
