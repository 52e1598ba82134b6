"""What keeping jobs apart costs: start and speed of a job with `"sandbox"` and `"account"` against `"same"`, in turns.

Start: from `Client.submit` to the first committed update, warm, of a tiny model. Speed: the seconds of an update of a
larger one with two workers, from the commit log. All of them alternate. The bits of the final weights are compared.
Takes about seven minutes; `--quick` does one of each. Writes `.bench/isolation.json`; exit code 1 when a target is
missed. `"account"` takes root: its jobs run as the account daemon.
"""

from __future__ import annotations

import argparse
import os
import pwd
import shutil
import sys
import time
from contextlib import ExitStack
from itertools import pairwise
from statistics import median

from benchmarks.first_step import ours
from benchmarks.our_jobs import OurJob, server
from benchmarks.report import ROOT, finish, table
from benchmarks.server_processes import Spares
from benchmarks.summary import Check, duration, summarize
from edt_sdk.testing import LocalServer

KINDS = ("same", "sandbox", *(["account"] if os.geteuid() == 0 else []))
LONGER, SPEED = 0.3, 0.99
LARGER = ("--width", "256", "--rows", "64", "--samples", "16", "--updates", "300")
WORKERS = 2


def update(on: LocalServer) -> tuple[float, str]:
    """The median seconds of an update with all workers, and the hash of the final weights."""
    with OurJob(on, "speed", LARGER, max_workers=WORKERS) as job:
        state = job.ended()
    if state != "FINISHED":
        raise SystemExit(f"job {job.job.id} ended as {state}: {job.job.view.message}")
    commits = job.log.read()
    steady = [b.time - a.time for a, b in pairwise(commits) if a.world == b.world == WORKERS]
    return median(steady), job.final_hash()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=10, help="of each (default 10)")
    parser.add_argument("--quick", action="store_true", help="one of each")
    options = parser.parse_args()
    repeat = 1 if options.quick else options.repeat
    folder, begun = ROOT / "isolation", time.monotonic()
    shutil.rmtree(folder, ignore_errors=True)
    starts: dict[str, list[float]] = {kind: [] for kind in KINDS}
    updates: dict[str, list[float]] = {kind: [] for kind in KINDS}
    hashes = set()
    servers = {kind: server(folder / kind, warm=True) for kind in KINDS}
    with ExitStack() as running:
        for kind, each in servers.items():
            each.traits["EdtApp.isolation"] = kind
            config = folder / kind / "config" / "jupyter_server_config.py"
            config.parent.mkdir(parents=True)
            config.write_text(f"c.EdtApp.account_of = lambda _: {pwd.getpwnam('daemon').pw_uid}\n")
            running.enter_context(each)
        for number in range(repeat):
            # Whoever goes first has no advantage in the end.
            for kind in KINDS if number % 2 else reversed(KINDS):
                Spares(servers[kind].pid).wait()
                starts[kind].append(ours(servers[kind]))
                seconds, digest = update(servers[kind])
                updates[kind].append(seconds)
                hashes.add(digest)
            last = ", ".join(f"{kind} {duration(starts[kind][-1])} {duration(updates[kind][-1])}" for kind in KINDS)
            print(f"  {number + 1}/{repeat}: {last}", flush=True)
    lines = [["what", "n", "median", "worst"]]
    for what, times in (("submit → first update, warm", starts), ("an update of two workers", updates)):
        for kind in KINDS:
            summary = summarize(times[kind])
            assert summary is not None
            lines.append([f"{what}, {kind}", str(summary.n), duration(summary.median), duration(summary.worst)])
    print(table(lines))
    checks = [Check("different final weights", len(hashes) - 1, 0, "at most")]
    for kind in KINDS[1:]:
        longer = median(starts[kind]) - median(starts["same"])
        speed = median(same / apart for same, apart in zip(updates["same"], updates[kind], strict=True))
        checks.append(Check(f"start, {kind}, longer by s", longer, LONGER, "at most"))
        checks.append(Check(f"speed, {kind} ÷ same, median of pairs", speed, SPEED, "at least"))
    results = {"seconds": round(time.monotonic() - begun), "starts": starts, "updates": updates}
    return finish("isolation", results, checks)


if __name__ == "__main__":
    sys.exit(main())
