"""How long does a change of the number of workers hold an unmodified torchrun script up? Ours beside plain torchrun.

The same script on both sides, `linear_stack/train_torchrun.py`, which knows nothing of us: DDP on gloo, a checkpoint of
8 MB in memory every 10 updates, which every start loads. 1 → 3 → 2 → 1 workers of one thread; four workers, a server
and this program share the machine's cores, which both sides suffer alike. A round is some cycles of ours, then one of
torchrun's with the shortest waits with which joiners were still admitted each time, and once, in the first round, with
its own defaults (1 → 2 → 1, more than half a minute a change).

Ours: a job of framework torchrun on a real server, its `max_workers` changed; the request is the scheduler's grant or
revocation in the event list. torchrun: an agent a worker; growing starts agents, shrinking sends SIGTERM to them. Stall
and delay are from the script's commit log (`changes.py` has the formula): the stall contains the script's own start and
the load of its checkpoint; what of a change is ours, the time until all processes of the new size were started, is told
too. Its first commit at the new size ends the stall although it repeats an update.

Ours must stay within a second in the median, up and down. Takes about
five minutes (`--quick`: one, without the defaults; `--only-ours`). Prints a table, writes
`.bench/torchrun_scaling.json`; exit code 1 when a target is missed.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from benchmarks.changes import Change, Request, changes
from benchmarks.commit_log import CommitLog
from benchmarks.our_jobs import FOLDER, OurJob, server
from benchmarks.report import ROOT, finish, table
from benchmarks.rescale import SMALL, torchrun, walk
from benchmarks.summary import Check, duration, summarize
from benchmarks.torchrun_agents import BEST, DEFAULTS, MEMORY
from edt_sdk.schemas import events
from edt_sdk.testing import LocalServer

PATH = (1, 3, 2, 1)
SHORT_PATH = (1, 2, 1)
TARGET = 1.0
OURS = "ours"
Measured = dict[str, list[Change]]
Started = dict[bool, list[float]]


class OurTorchrunJob(OurJob):
    """The script as a job of framework torchrun, with the part of `OurJob` that `walk` needs."""

    def __init__(self, on: LocalServer, commits: Path, checkpoint: Path, arguments: Sequence[str]) -> None:
        self.job = on.client().submit(
            FOLDER,
            main="train_torchrun.py",
            name="torchrun-scaling",
            framework="torchrun",
            torchrun="--rdzv-backend=c10d",
            max_workers=PATH[0],
            args=[*arguments, "--commits", str(commits), "--checkpoint", str(checkpoint)],
            env={"GLOO_SOCKET_IFNAME": "lo"},
            progress=False,
        )
        self.log = CommitLog(commits)
        self._asked = 0.0
        self._server = None
        self._wanted = PATH[0]


def ours(on: LocalServer, folder: Path, cycles: int, started: Started, moments: random.Random) -> list[Change]:
    """One job of ours, `cycles` times along `PATH`; `started`: from each request until all processes were started."""
    folder.mkdir(parents=True)
    with (
        tempfile.TemporaryDirectory(prefix="edt-benchmark-", dir=MEMORY) as memory,
        OurTorchrunJob(on, folder / "commits.jsonl", Path(memory) / "state.pt", SMALL.arguments) as job,
    ):
        asked = walk(job, PATH, cycles, SMALL.hold, moments)
        granted = job.granted([request.time for request in asked])
        formed = [event.time for event in job.job.story() if event.kind == events.GENERATION]
    for when, one in zip(granted, asked, strict=True):
        started[one.grows].append(min(time for time in formed if time > when) - when)
    requests = [Request(when, one.before, one.after) for when, one in zip(granted, asked, strict=True)]
    return changes(job.log.read(), requests)


def measure(options: argparse.Namespace, started: Started) -> Measured:
    """All rounds."""
    measured: Measured = defaultdict(list)
    folder, moments = ROOT / "torchrun_scaling", random.Random()
    shutil.rmtree(folder, ignore_errors=True)
    with server(folder / "server", warm=True) as on:
        for number in range(options.rounds):
            measured[OURS] += ours(on, folder / f"ours-{number}", options.repeat, started, moments)
            if options.torchrun:
                measured[BEST.name] += torchrun(folder / f"best-{number}", BEST, SMALL, PATH, moments)
            if options.defaults and number == 0:
                measured[DEFAULTS.name] += torchrun(folder / "defaults", DEFAULTS, SMALL, SHORT_PATH, moments)
            print(f"round {number + 1} of {options.rounds} done", file=sys.stderr, flush=True)
    return measured


def rows(measured: Measured) -> list[list[str]]:
    """The table: stall and delay by side and direction."""
    found = [["", "direction", "changes", "stall, median", "worst", "request to first update, median", "worst"]]
    for side, those in measured.items():
        for grows, direction in ((True, "up"), (False, "down")):
            some = [change for change in those if change.request.grows is grows]
            stall, delay = summarize([c.stall for c in some]), summarize([c.delay for c in some])
            if stall is not None and delay is not None:
                figures = (stall.median, stall.worst, delay.median, delay.worst)
                found.append([side, direction, str(stall.n), *map(duration, figures)])
    return found


def checks(measured: Measured) -> list[Check]:
    """Ours against its target."""
    found = []
    for grows, direction in ((True, "up"), (False, "down")):
        stall = summarize([c.stall for c in measured[OURS] if c.request.grows is grows])
        what = f"stall {direction}, unmodified torchrun script, median seconds"
        found.append(Check(what, None if stall is None else stall.median, TARGET, "at most"))
    return found


def main() -> int:
    """Measure, tell, write; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--repeat", type=int, default=3, help="cycles of ours in a round")
    parser.add_argument("--quick", action="store_true", help="one round of one cycle, without torchrun's defaults")
    parser.add_argument("--only-ours", action="store_true")
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.repeat = 1, 1
    options.torchrun = not options.only_ours
    options.defaults = options.torchrun and not options.quick
    started: Started = {True: [], False: []}
    measured = measure(options, started)
    print(table(rows(measured)))
    for grows, direction in ((True, "up"), (False, "down")):
        told = summarize(started[grows])
        if told is not None:
            print(f"  ours, {direction}: from the request until all processes were started {told.text()}")
    results = {side: [asdict(change) for change in those] for side, those in measured.items()}
    shown = {"up": started[True], "down": started[False]}
    return finish("torchrun_scaling", {"changes": results, "started": shown}, checks(measured))


if __name__ == "__main__":
    sys.exit(main())
