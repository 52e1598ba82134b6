"""What keeping jobs apart costs: start and speed of a job with `"sandbox"` and `"account"` against `"same"`.

Start: from `Client.submit` to the first committed update, warm, of a tiny model, in turns. Speed: the updates of a
larger one against those of the same job under `"same"` in the same seconds, each with a core of its own, so that both
see what else the machine does. The bits of the final weights are compared.
Takes about ten minutes on two cores; `--quick` does one of each. Writes `.bench/isolation.json`; exit code 1 when a
target is missed. `"account"` takes root: its jobs run as the account daemon.
"""

from __future__ import annotations

import argparse
import os
import pwd
import shutil
import sys
import time
from contextlib import ExitStack
from statistics import median

from benchmarks.first_step import ours
from benchmarks.our_jobs import OurJob, server
from benchmarks.report import ROOT, finish, table
from benchmarks.server_processes import Spares
from benchmarks.summary import Check, duration, summarize
from edt_sdk.testing import LocalServer

KINDS = ("same", "sandbox", *(["account"] if os.geteuid() == 0 else []))
LONGER, SPEED = 0.3, 0.99
LARGER = ("--width", "256", "--rows", "64", "--samples", "16", "--updates", "600")


def together(apart: LocalServer, same: LocalServer, *, first: bool) -> tuple[float, set[str]]:
    """Updates of a job on `apart` for each of one on `same` while both run, and the hashes of the final weights.

    `first`: the former is submitted first.
    """
    with ExitStack() as running:
        order = (apart, same) if first else (same, apart)
        jobs = {on: running.enter_context(OurJob(on, "speed", LARGER, max_workers=1)) for on in order}
        for job in jobs.values():
            if (state := job.ended()) != "FINISHED":
                raise SystemExit(f"job {job.job.id} ended as {state}: {job.job.view.message}")
    times = {on: [commit.time for commit in job.log.read()] for on, job in jobs.items()}
    begin, end = max(each[0] for each in times.values()), min(each[-1] for each in times.values())
    made = {on: sum(begin <= time <= end for time in each) for on, each in times.items()}
    return made[apart] / made[same], {job.final_hash() for job in jobs.values()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=10, help="of each (default 10)")
    parser.add_argument("--quick", action="store_true", help="one of each")
    options = parser.parse_args()
    repeat = 1 if options.quick else options.repeat
    folder, begun = ROOT / "isolation", time.monotonic()
    shutil.rmtree(folder, ignore_errors=True)
    starts: dict[str, list[float]] = {kind: [] for kind in KINDS}
    speeds: dict[str, list[float]] = {kind: [] for kind in KINDS[1:]}
    hashes: set[str] = set()
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
            for kind in KINDS[1:]:
                speed, digests = together(servers[kind], servers["same"], first=number % 2 == 0)
                speeds[kind].append(speed)
                hashes |= digests
            last = [f"{kind} {duration(starts[kind][-1])}" for kind in KINDS]
            last += [f"{kind} ÷ same {speeds[kind][-1]:.3f}" for kind in KINDS[1:]]
            print(f"  {number + 1}/{repeat}: {', '.join(last)}", flush=True)
    lines = [["what", "n", "median", "worst"]]
    for kind in KINDS:
        summary = summarize(starts[kind])
        assert summary is not None
        name = f"submit → first update, warm, {kind}"
        lines.append([name, str(summary.n), duration(summary.median), duration(summary.worst)])
    print(table(lines))
    checks = [Check("different final weights", len(hashes) - 1, 0, "at most")]
    for kind in KINDS[1:]:
        longer = median(starts[kind]) - median(starts["same"])
        checks.append(Check(f"start, {kind}, longer by s", longer, LONGER, "at most"))
        checks.append(Check(f"updates, {kind} ÷ same at the same time", median(speeds[kind]), SPEED, "at least"))
    results = {"seconds": round(time.monotonic() - begun), "starts": starts, "speeds": speeds}
    return finish("isolation", results, checks)


if __name__ == "__main__":
    sys.exit(main())
