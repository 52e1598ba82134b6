"""How long does a change of the number of workers hold a training up? 1 → 2 → 4 → 3 → 1, beside torchrun.

Both sides train the same model with the same update (`linear_stack/`): four micro-batches shared out among one to four
workers of one thread, 25 to 50 ms at 8 MB of model and optimizer, 0.14 to 0.17 s at 150 MB. Four workers, a server and
this program share the machine's cores, which both sides suffer alike. The sides alternate: a round is some cycles of
ours, warm, cold and from nothing, then one of torchrun's.

Ours: a job on a real server that asks for four slots; how many there are is changed; the request is the scheduler's
grant (or revocation) in the event list, which comes at any moment of an update; stall and delay are from the commit log
(`changes.py` has the formula). Warm: on a server as it is by default, which keeps a spare supervisor for the next job
(`EdtApp.warm_workers=1`) and workers ready for the next slots (`EdtApp.standby_workers=2`), once they are. Cold: on a
server without (`=0`). In both nothing is killed. From nothing, growing only and without a target: what joiners are
forked from, zygote and heir, is killed just before the request, so that a joiner costs a start of Python and the import
of torch; beside it stands what `python -c "import torch"` takes in the same round. torchrun: an agent a worker; growing
starts agents, shrinking sends SIGTERM to them; its script loads the newest checkpoint (in memory, at most 10 updates
old) and writes the same log. Its first commit at the new size ends the stall although it repeats an update. Its
defaults need more than half a minute a change: one in each direction, 1 → 2 → 1.

Takes about 15 minutes (`--quick`: two to three, without the defaults; `--only-ours`: half). Prints a table, writes
`.bench/rescale.json`; exit code 1 when a target is missed.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Protocol

from benchmarks.changes import Change, Request, changes
from benchmarks.commit_log import CommitLog, behind, lasted
from benchmarks.our_jobs import import_torch, server
from benchmarks.plan_job import PlanJob
from benchmarks.report import ROOT, finish, table
from benchmarks.rescale_figures import NAMES, PATH, WAYS, Measured, checks, rows
from benchmarks.server_processes import Spares
from benchmarks.summary import duration, summarize
from benchmarks.torchrun_agents import BEST, DEFAULTS, MEMORY, Setting, TorchrunJob
from edt_sdk.testing import LocalServer

SHORT_PATH = (1, 2, 1)
STANDBYS = 2


@dataclass(frozen=True, slots=True)
class Size:
    """A model: its megabytes with the optimizer's, what the script is told, updates to hold a number of workers for."""

    megabytes: int
    arguments: tuple[str, ...]
    hold: int


SMALL = Size(8, ("--width", "512", "--rows", "12", "--samples", "8"), hold=8)
# As many numbers as four layers of 2160, in pieces that a cache holds, and one sample a micro-batch: an update of four
# such layers with four samples, for whose products the library has no good kernel, takes twice as long.
_LARGE = ("--width", "1080", "--layers", "16", "--rows", "1", "--samples", "1")
LARGE = Size(150, _LARGE, hold=6)


@dataclass(frozen=True, slots=True)
class Part:
    """What one side (a key of `NAMES`) does in a round."""

    key: str
    size: Size
    run: Callable[[], list[Change]]


class Resizable(Protocol):
    """A running job of either side."""

    log: CommitLog

    def resize(self, workers: int) -> float:
        """Ask for that many workers; when that was begun."""

    def trouble(self) -> str:
        """Why nothing more is to be expected, or ""."""


def walk(job: Resizable, path: Sequence[int], cycles: int, hold: int, moments: random.Random) -> list[Request]:
    """Take a job along `path`, `cycles` times; when each change was asked for."""
    hold_size(job, path[0], hold, 0.0)
    requests = []
    for before, after in [*pairwise(path)] * cycles:
        # Just after a commit would be the worst moment of all, and nobody who asks knows of updates.
        time.sleep(moments.random() * lasted(job.log.read()))
        requests.append(Request(job.resize(after), before, after))
        hold_size(job, after, hold, requests[-1].time)
    return requests


def hold_size(job: Resizable, workers: int, hold: int, since: float) -> None:
    """Until that many workers have committed `hold` updates in a row."""
    job.log.wait(lambda commits: behind(commits, workers, since) >= hold, f"{workers} workers", job.trouble)


def ours(
    on: LocalServer,
    size: Size,
    moments: random.Random,
    cycles: int,
    *,
    spares: Spares | None = None,
    from_nothing: bool = False,
    main: str = "train.py",
) -> list[Change]:
    """One job of ours.

    Args:
        on: the server; it has no other job.
        size: of the model.
        moments: of an update, at which changes are asked for.
        cycles: along `PATH`.
        spares: of that server; the job uses one up, whose successor must not be imported while a change is measured.
        from_nothing: kill what joiners are forked from, and measure growing alone.
        main: the script, `FabricModel`'s or one of `WAYS`.
    """
    name = f"rescale-{size.megabytes}"
    standbys = 0 if spares is None else STANDBYS
    with PlanJob(on, name, size.arguments, PATH[0], standbys=standbys, from_nothing=from_nothing, main=main) as job:
        if spares is not None:
            spares.wait()
        asked = walk(job, PATH, cycles, size.hold, moments)
        granted = job.granted([request.time for request in asked])
    requests = [Request(when, one.before, one.after) for when, one in zip(granted, asked, strict=True)]
    return [one for one in changes(job.log.read(), requests) if one.request.grows or not from_nothing]


def torchrun(folder: Path, setting: Setting, size: Size, path: Sequence[int], moments: random.Random) -> list[Change]:
    """One job of torchrun's, once along `path`."""
    with TorchrunJob(folder, setting, size.arguments, MEMORY) as job:
        job.resize(path[0])
        requests = walk(job, path, 1, size.hold, moments)
    return changes(job.log.read(), requests)


def parts(
    options: argparse.Namespace,
    number: int,
    warm: LocalServer,
    spares: Spares,
    cold: LocalServer,
    moments: random.Random,
) -> Iterator[Part]:
    """What is measured in round `number`.

    Joiners from nothing and torchrun need longer, and longer still with the large state: they get fewer cycles.
    """
    for size, part in ((SMALL, 2), (LARGE, 4)):
        sides = {
            "warm": (options.repeat, partial(ours, warm, size, moments, spares=spares)),
            **{
                way: (max(1, options.repeat // part), partial(ours, warm, size, moments, spares=spares, main=way))
                for way in WAYS
            },
            "cold": (max(1, options.repeat // part), partial(ours, cold, size, moments)),
            "nothing": (max(1, options.repeat // (2 * part)), partial(ours, cold, size, moments, from_nothing=True)),
        }
        for key, (total, run) in sides.items():
            if cycles := share(total, options.rounds, number):
                yield Part(key, size, partial(run, cycles))
        folder = ROOT / "rescale" / f"torchrun-{size.megabytes}-{number}"
        if options.torchrun and (size is SMALL or share((options.rounds + 1) // 2, options.rounds, number)):
            yield Part("best", size, partial(torchrun, folder / "best", BEST, size, PATH, moments))
        if options.defaults and size is SMALL and number == 0:
            yield Part("defaults", size, partial(torchrun, folder / "defaults", DEFAULTS, size, SHORT_PATH, moments))


def share(total: int, rounds: int, number: int) -> int:
    """How many of `total` repetitions fall into round `number` (from 0) of `rounds`."""
    return total // rounds + (number < total % rounds)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--repeat", type=int, default=20, help="cycles of ours, warm (default 20); cold half of them or fewer"
    )
    parser.add_argument("--rounds", type=int, default=5, help="in which the sides alternate (default 5)")
    parser.add_argument("--only-ours", "--no-torchrun", dest="torchrun", action="store_false", help="no torchrun")
    parser.add_argument("--no-defaults", dest="defaults", action="store_false", help="torchrun not with its defaults")
    parser.add_argument("--quick", action="store_true", help="one cycle of everything but torchrun's defaults")
    options = parser.parse_args()
    if options.quick:
        options.repeat, options.rounds, options.defaults = 1, 1, False
    options.defaults &= options.torchrun
    return options


def main() -> int:
    options, begun = arguments(), time.monotonic()
    measured: list[Measured] = []
    folder = ROOT / "rescale"
    shutil.rmtree(folder, ignore_errors=True)
    floor: list[float] = []
    moments = random.Random(1)
    with server(folder / "warm", warm=True) as warm, server(folder / "cold", warm=False) as cold:
        spares = Spares(warm.pid)
        spares.wait()
        for number in range(options.rounds):
            floor.append(import_torch())
            for part in parts(options, number, warm, spares, cold, moments):
                found = part.run()
                measured.append(Measured(part.key, part.size.megabytes, tuple(found)))
                stalls = ", ".join(f"{c.request.before}→{c.request.after} {duration(c.stall)}" for c in found[:4])
                name = f"{NAMES[part.key]}, {part.size.megabytes} MB"
                print(f"  round {number + 1}/{options.rounds}: {name}: {stalls}", flush=True)
    seconds = round(time.monotonic() - begun)
    print(table(rows(measured)))
    some = summarize(floor)
    assert some is not None, "each round measures it"
    print(f'  python -c "import torch", below which nothing from nothing comes: {some.text()}')
    print("  Updates of a delay: the rest of the one under way at the request, and the first one at the new size.")
    print(f"  {seconds} s in all. A stall is without the updates' own time; a negative one is noise.")
    sides = ["warm", *WAYS, "cold", *["best"] * options.torchrun, *["defaults"] * options.defaults]
    results = {"seconds": seconds, "import_torch": floor, "measured": [asdict(some) for some in measured]}
    return finish("rescale", results, checks(measured, sides))


if __name__ == "__main__":
    sys.exit(main())
