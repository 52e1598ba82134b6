"""What the SIGKILL of one of four workers, and of one of two, costs, beside torchrun.

The same model and update on both sides (`linear_stack/`, about 10 ms an update, a good part of it in collectives). A
worker taken by chance, rank 0 like any other, is killed at a random moment of an update. Measured from the kill to the
next committed update: the first one of the members who go on. Then all wait until there are as many workers as before.

Ours: the job goes on with the survivors, and its end is checked: every update in the commit log exactly once, none of
them discarded, and the same bits as those of an undisturbed run with one worker. A job that comes to its end before all
kills are done is followed by another one. torchrun with its best settings: each agent starts its worker again, which
loads the newest checkpoint (in memory, at most 10 updates old); updates between it and the kill are made twice.

Takes about five minutes (`--quick`: one). Prints a table, writes `.bench/failure.json`; exit code 1 when a target is
missed.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

from benchmarks.commit_log import CommitLog, behind
from benchmarks.our_jobs import OurJob, server
from benchmarks.recoveries import Recovery, recovered, recovery, wrong_numbers
from benchmarks.report import ROOT, finish, table
from benchmarks.summary import Check, duration, summarize
from benchmarks.torchrun_agents import BEST, MEMORY, TorchrunJob
from edt_sdk.testing import LocalServer

TARGET = 0.5
WORLDS = (4, 2)
MODEL = ("--width", "256", "--rows", "16", "--samples", "8")
# Updates of a job: enough for its kills, and no kill when so few are left that it might end before the worker is back.
FOR_EACH_KILL = 60
RESERVE = 300
HOLD = 8
# Seconds; a kill comes at a random moment of about two updates.
SPREAD = 0.03


@dataclass(frozen=True, slots=True)
class Ending:
    """How a job of ours ended that was disturbed: its kills, and what must all be zero and equal."""

    recoveries: tuple[Recovery, ...]
    state: str
    wrong_numbers: int
    discarded: int
    final_hash: str


class Killable(Protocol):
    """A running job of either side."""

    log: CommitLog

    def trouble(self) -> str:
        """Why nothing more is to be expected, or ""."""


def kill_and_wait(job: Killable, world: int, pids: Callable[[], Sequence[int]], chance: random.Random) -> float:
    """Kill one of `world` workers at a random moment and wait until it is replaced; when that was."""
    victim = chance.choice(pids())
    time.sleep(chance.uniform(0.0, SPREAD))
    job.log.read()
    when = time.time()
    os.kill(victim, signal.SIGKILL)
    job.log.wait(lambda commits: recovered(commits, world, when, HOLD), f"{world} workers again", job.trouble)
    return when


def full(job: Killable, world: int) -> None:
    """Until `world` workers train."""
    job.log.wait(lambda commits: behind(commits, world, 0.0) >= HOLD, f"{world} workers", job.trouble)


def ours(on: LocalServer, world: int, kills: int, updates: int, chance: random.Random) -> Ending:
    """One job to its end, killed at up to `kills` times."""
    with OurJob(on, f"failure-{world}", (*MODEL, "--updates", str(updates)), max_workers=world) as job:
        full(job, world)
        times: list[float] = []
        while len(times) < kills and job.log.read()[-1].update < updates - RESERVE:
            times.append(kill_and_wait(job, world, lambda: _members(job, world), chance))
        state = job.ended()
        return Ending(
            recoveries=tuple(recovery(job.log.read(), world, when) for when in times),
            state=state,
            wrong_numbers=wrong_numbers(job.log.read(), updates),
            discarded=job.discarded(),
            final_hash=job.final_hash() if state == "FINISHED" else "",
        )


def _members(job: OurJob, world: int) -> list[int]:
    pids = [worker["pid"] for worker in job.workers() if worker["pid"] and worker["rank"] is not None]
    if len(pids) != world:
        raise SystemExit(f"{world} workers train, but the server names {len(pids)}")
    return pids


def undisturbed(on: LocalServer, updates: int) -> str:
    """The hash a job must end with: one worker, nobody killed."""
    with OurJob(on, "failure-reference", (*MODEL, "--updates", str(updates)), max_workers=1) as job:
        state = job.ended()
        if state != "FINISHED":
            raise SystemExit(f"the undisturbed job ended as {state}: {job.job.view.message}")
        return job.final_hash()


def torchrun(folder: Path, world: int, kills: int, chance: random.Random) -> list[Recovery]:
    """One job of torchrun's."""
    with TorchrunJob(folder, BEST, MODEL, MEMORY) as job:
        job.resize(world)
        full(job, world)
        times = [kill_and_wait(job, world, job.pids, chance) for _ in range(kills)]
    return [recovery(job.log.read(), world, when) for when in times]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=20, help="kills of ours at each size (default 20)")
    parser.add_argument("--torchrun", type=int, default=5, metavar="N", help="kills of torchrun's (default 5, 0: none)")
    parser.add_argument("--seed", type=int, default=None, help="of victims and moments; printed")
    parser.add_argument("--quick", action="store_true", help="two kills of ours, one of torchrun's")
    options = parser.parse_args()
    if options.quick:
        options.repeat, options.torchrun = 2, min(1, options.torchrun)
    if options.seed is None:
        options.seed = random.SystemRandom().randrange(10**6)
    return options


def main() -> int:
    options, begun = arguments(), time.monotonic()
    print(f"  seed {options.seed}", flush=True)
    chance = random.Random(options.seed)
    folder = ROOT / "failure"
    shutil.rmtree(folder, ignore_errors=True)
    updates = RESERVE + FOR_EACH_KILL * options.repeat
    endings: list[Ending] = []
    theirs: list[Recovery] = []
    # No spare process for jobs to come: it would be imported while a kill is measured.
    with server(folder / "server", warm=False) as on:
        reference = undisturbed(on, updates)
        for world in WORLDS:
            left = options.repeat
            while left > 0:
                endings.append(ours(on, world, left, updates, chance))
                made = endings[-1].recoveries
                left -= len(made)
                print(f"  ours, {world} workers: " + ", ".join(duration(one.next_update) for one in made), flush=True)
            if options.torchrun:
                made = torchrun(folder / f"torchrun-{world}", world, options.torchrun, chance)
                theirs += made
                print(f"  torchrun, {world}: " + ", ".join(duration(one.next_update) for one in made), flush=True)
    seconds = round(time.monotonic() - begun)
    own = [one for ending in endings for one in ending.recoveries]
    print(table(rows({"ours": own, BEST.name: theirs})))
    print(f"  {seconds} s in all")
    results = {
        "seconds": seconds,
        "seed": options.seed,
        "updates": updates,
        "reference": reference,
        "ours": [asdict(ending) for ending in endings],
        "torchrun": [asdict(one) for one in theirs],
    }
    return finish("failure", results, checks(endings, reference))


def rows(sides: dict[str, list[Recovery]]) -> list[list[str]]:
    """The table."""
    lines = [["side", "workers", "n", "kill → next update", "worst", "→ all workers back", "worst", "updates repeated"]]
    for name, recoveries in sides.items():
        for world in WORLDS:
            some = [one for one in recoveries if one.world == world]
            to_next, to_full = summarize([one.next_update for one in some]), summarize([one.full for one in some])
            if to_next is not None and to_full is not None:
                values = (to_next.median, to_next.worst, to_full.median, to_full.worst)
                repeated = sum(one.repeated for one in some) / len(some)
                lines.append([name, str(world), str(to_next.n), *map(duration, values), f"{repeated:.1f}"])
    return lines


def checks(endings: Sequence[Ending], reference: str) -> list[Check]:
    """The targets."""
    found = []
    for world in WORLDS:
        some = summarize([one.next_update for ending in endings for one in ending.recoveries if one.world == world])
        what = f"SIGKILL of one of {world} → next committed update, s"
        found.append(Check(what, some.median if some else None, TARGET, "at most"))
    lost = sum(ending.wrong_numbers + ending.discarded for ending in endings)
    other = sum(ending.final_hash != reference for ending in endings)
    found.append(Check("committed updates lost, repeated or missing", float(lost), 0.0, "at most"))
    found.append(Check("jobs that ended with other bits than the undisturbed one", float(other), 0.0, "at most"))
    return found


if __name__ == "__main__":
    sys.exit(main())
