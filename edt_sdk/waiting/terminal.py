"""Monitor jobs in a terminal: print lines of text in the foreground until no watched job is active."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence

from edt_sdk.display.card import sentence
from edt_sdk.schemas.job import JobView
from edt_sdk.waiting.waiting import ProgressLine, watch
from edt_sdk.waiting.watched import Watched

POLL_EVERY = 2.0


def job_line(job: Watched) -> None:
    """Follow one job until it has ended."""
    line = ProgressLine(after=0.0)
    try:
        for view in watch(job.connection, job.id):
            if view is not None:
                job.saw(view)
                line.show(view)
    except KeyboardInterrupt:
        pass  # Ctrl-C leaves the monitor, and the job goes on
    finally:
        line.close()


def jobs_lines(fetch: Callable[[], Sequence[JobView]]) -> None:
    """Follow all active jobs until none is active."""
    last = ""
    try:
        while active := [view for view in fetch() if not view.state.final]:
            text = "\n".join(map(sentence, active))
            if text != last:
                print(text, file=sys.stderr, flush=True)
            last = text
            time.sleep(POLL_EVERY)
    except KeyboardInterrupt:
        pass  # the jobs go on
    print("No job is active.", file=sys.stderr)
