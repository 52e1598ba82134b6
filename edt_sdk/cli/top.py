"""The verb that watches the machine: `edt top`, a page that redraws itself until q or Ctrl-C.

Plain ANSI sequences of every terminal since the VT100, and neither colours nor curses: the page is as legible on a
light terminal as on a dark one. The server is asked in a thread, so that keys and a new size of the window are answered
at once while it is slow or away.
"""

from __future__ import annotations

import argparse
import os
import select
import shutil
import signal
import sys
import termios
import threading
import time
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from edt_sdk.cli.session import Verbs, add_verb, client, searches
from edt_sdk.cli.terminal import command
from edt_sdk.display.top_view import top_lines
from edt_sdk.schemas.errors import EdtError
from edt_sdk.schemas.job import JobState, JobView
from edt_sdk.schemas.search.views import SearchView

if TYPE_CHECKING:
    from edt_sdk.client import Client
    from edt_sdk.display.cluster_view import Cluster

EVERY = 2.0
_NEWEST = 200
# The alternate screen without a cursor, and back.
_ENTER, _LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
_HOME, _TO_END_OF_LINE, _TO_END = "\x1b[H", "\x1b[K", "\x1b[J"
_QUIT = frozenset("qQ\x03\x04")


@dataclass(frozen=True, slots=True)
class _Seen:
    """What the server said at `time`, and why it says nothing newer."""

    cluster: Cluster
    views: list[JobView | SearchView]
    time: float
    trouble: str = ""

    def lines(self, width: int, height: int | None) -> list[str]:
        return top_lines(self.cluster, self.views, self.time, width=width, height=height, trouble=self.trouble)


def add(verbs: Verbs, common: argparse.ArgumentParser) -> None:
    """Add the verb."""
    says = "Watch slots and jobs; every 2 s anew, until q or Ctrl-C."
    top = add_verb(verbs, common, "top", _run_top, says)
    top.add_argument("--mine", action="store_true", help="only my jobs in the table")
    top.add_argument("--once", action="store_true", help="print it once; so does a pipe in place of a terminal")


def _run_top(arguments: argparse.Namespace) -> None:
    server = client(arguments)
    # Before the screen changes, so that a server that is not there is one line as for any other verb.
    seen = _fetch(server, mine=arguments.mine)
    if arguments.once or not (sys.stdin.isatty() and sys.stdout.isatty()):
        print("\n".join(seen.lines(shutil.get_terminal_size((120, 24)).columns, None)))
        return
    _watch(seen, lambda: _fetch(server, mine=arguments.mine))


def _fetch(server: Client, *, mine: bool) -> _Seen:
    cluster = server.cluster()
    views = {job.id: job.view for job in server.jobs(all=not mine, limit=_NEWEST)}
    whose = [job for job in cluster["jobs"] if not mine or job["owner"] == server.info.user]
    wanted = {job["id"] for job in whose if not job.get("search")}
    if wanted - views.keys():
        # Live jobs older than the newest ones, which only a server with very many jobs has.
        for state in (each for each in JobState if not each.final):
            views |= {job.id: job.view for job in server.jobs(all=not mine, state=state)}
    rows: list[JobView | SearchView] = [*views.values(), *searches(server)]
    return _Seen(cluster, sorted(rows, key=lambda view: -view.created), time.time())


def _watch(seen: _Seen, fetch: Callable[[], _Seen]) -> None:
    with _screen() as awake:
        latest, over = [seen], threading.Event()

        def renew() -> None:
            while not over.wait(EVERY):
                try:
                    latest[0] = fetch()
                except EdtError as lost:
                    last = latest[0]
                    latest[0] = _Seen(last.cluster, last.views, last.time, str(lost))
                os.write(awake.write, b".")

        # A daemon: a server that hangs must not keep the terminal after q.
        threading.Thread(target=renew, daemon=True).start()
        try:
            while True:
                _paint(latest[0])
                ready, _, _ = select.select([sys.stdin, awake.read], [], [])
                if awake.read in ready:
                    os.read(awake.read, 1024)
                if sys.stdin in ready:
                    keys = os.read(sys.stdin.fileno(), 64).decode(errors="replace")
                    if not keys or _QUIT & set(keys):
                        return
        except KeyboardInterrupt:
            return
        finally:
            over.set()


def _paint(seen: _Seen) -> None:
    # Not by `shutil`, which asks the environment first: a shell that exports COLUMNS exports the size at the start.
    size = os.get_terminal_size(sys.stdout.fileno())
    # A serial line knows no size and says 0.
    size = size if size.columns and size.lines else shutil.get_terminal_size()
    lines = seen.lines(size.columns, size.lines)
    # Lines are overwritten in place, because a cleared screen would flicker.
    command(_HOME)
    for number, line in enumerate(lines):
        command("\r\n" if number else "")
        sys.stdout.write(line)
        command(_TO_END_OF_LINE)
    command(_TO_END)
    sys.stdout.flush()


@dataclass(frozen=True, slots=True)
class _Awake:
    """A pipe that ends the wait for a key: when there is news, or a new size of the window."""

    read: int
    write: int


@contextmanager
def _screen() -> Iterator[_Awake]:
    """Take the terminal over, and give it back as it was, also after an error or SIGTERM."""
    awake = _Awake(*os.pipe())
    os.set_blocking(awake.write, False)
    before = termios.tcgetattr(sys.stdin)
    signals = {
        signal.SIGWINCH: signal.signal(signal.SIGWINCH, lambda *_: os.write(awake.write, b".")),
        # The default handler would leave the terminal on the alternate screen, without a cursor.
        signal.SIGTERM: signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM)),
    }
    try:
        tty.setcbreak(sys.stdin)
        command(_ENTER)
        yield awake
    finally:
        command(_LEAVE)
        sys.stdout.flush()
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)
        for number, handler in signals.items():
            signal.signal(number, handler)
