"""From `submit` to the first committed update, cold and warm: how long that takes.

A tiny model, so that nothing but getting there is measured: packing and sending the source, the scheduler's decision,
supervisor, driver, worker, the payload, the first update. Warm: a process with torch imported waits for the job
(`EdtApp.warm_workers=1`; each job uses it up, and nothing else is measured until its successor has finished importing).
Cold: none (`=0`), and no template. Forked: no such process, but the template that an earlier job needed. From the call
of `Client.submit` to the time in the commit log's first line. On the warm server also from `Client.search` to the first
line of its first trial, whose values are suggested. The first search of a server starts the process that suggests.

Beside it, as information: `python -c "import torch"`, which is in whatever starts cold; the same training as a plain
Python program, and under `torchrun --standalone` with one worker, from the start of the process; neither has a
scheduler, and their source is where they need it. All of them alternate. Takes about five minutes; `--quick` does one
of each, `--only-ours` leaves the last two out. Writes `.bench/first_step.json`; exit code 1 when the target is missed.

`--hosts` measures a machine that has joined as a host instead, from the grant of its slot to the first update: of jobs
that its agent forks from its template, and of jobs with a variable that Python reads at its start, whose zygotes import
torch themselves. They alternate. The machine is a network namespace, which needs root.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.commit_log import CommitLog
from benchmarks.our_jobs import FOLDER, OurJob, import_torch, server
from benchmarks.report import ROOT, finish, table
from benchmarks.server_processes import Spares, templates
from benchmarks.summary import Check, duration, ratio, summarize
from benchmarks.torchrun_agents import SCRIPT, environment
from edt_sdk import choice
from edt_sdk.schemas.errors import JobFailed
from edt_sdk.testing import LocalServer
from tests.e2e.fleet import HEAD, Machines
from tests.network import Network

TARGET = 1.5
ON_A_HOST, AT_START = 2.0, {"LC_ALL": "C.UTF-8"}
WITH_SUGGESTER, AS_SEARCH = 0.7, 0.1  # seconds more than a submission
TINY = ("--width", "16", "--rows", "2", "--samples", "2", "--updates", "3")
STANDALONE = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=1")


def ours(on: LocalServer, env: Mapping[str, str] | None = None, *, granted: bool = False) -> float:
    """One job on a server that has nothing else to do; seconds to its first commit, with `granted` since its slot."""
    with OurJob(on, "first-step", TINY, max_workers=1, env=env) as job:
        job.log.wait(lambda commits: bool(commits), "the first update", job.trouble)
        state = job.ended()
    if state != "FINISHED":
        raise SystemExit(f"job {job.job.id} ended as {state}: {job.job.view.message}")
    return job.log.commits[0].time - (job.granted([job.submitted])[0] if granted else job.submitted)


def on_a_host(repeat: int) -> int:
    """Measure a machine that has joined."""
    times: dict[str, list[float]] = {"from the template": [], "own import": []}
    with tempfile.TemporaryDirectory(prefix="edt-bench-") as folder, Network("one", HEAD) as network:
        machines = Machines(network, Path(folder))
        with machines.serving() as jobs:
            machines.join(jobs, "one")
            print(f"  the first job of the host: {duration(ours(machines.server, granted=True))}", flush=True)
            for _ in range(repeat):
                times["from the template"].append(ours(machines.server, granted=True))
                times["own import"].append(ours(machines.server, AT_START, granted=True))
                print("  " + ", ".join(f"{key} {duration(some[-1])}" for key, some in times.items()), flush=True)
    found = [summarize(some) for some in times.values()]
    lines = [["slot granted → first update, on a host", "n", "median", "worst"]]
    lines += [[key, str(s.n), duration(s.median), duration(s.worst)] for key, s in zip(times, found, strict=True) if s]
    print(table(lines))
    check = Check("own import ÷ from the template", ratio(found[1], found[0]), ON_A_HOST, "at least")
    return finish("first_step_hosts", {"times": times}, [check])


def searched(on: LocalServer) -> float:
    """A search of one trial on a server that has nothing else to do; seconds to the trial's first commit."""
    client, begun = on.client(), time.time()
    search = client.search(
        FOLDER, main="train.py", args=["--width", "{width}", *TINY[2:]], space={"width": choice(16, 17)}, metric="loss",
        algorithm="tpe", trials=1, max_workers=1, name=f"s{time.time_ns()}", progress=False,
    )  # fmt: skip
    # The script validates nothing, so that there is nothing to compare.
    with contextlib.suppress(JobFailed):
        search.wait()
    (trial,) = search.trials
    assert trial.job is not None, "a trial that has finished has a job"
    log = CommitLog(on.data_dir / "jobs" / trial.job.id / "training-0.commits.jsonl")
    return log.read()[0].time - begun


def alone(folder: Path, launcher: Sequence[str]) -> float:
    """The script in a process of its own; seconds to its first update."""
    folder.mkdir(parents=True)
    commits = folder / "commits.jsonl"
    own = ["--commits", str(commits), "--checkpoint", str(folder / "state.pt")]
    begun = time.time()
    done = subprocess.run(
        [sys.executable, *launcher, str(SCRIPT), *TINY, *own], env=environment(), capture_output=True, check=False
    )
    if done.returncode:
        raise SystemExit(
            f"{' '.join(launcher) or 'the script'} failed:\n{done.stderr.decode(errors='replace')[-2000:]}"
        )
    return CommitLog(commits).read()[0].time - begun


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=20, help="of each (default 20)")
    parser.add_argument("--only-ours", action="store_true", help="neither the plain program nor torchrun")
    parser.add_argument("--quick", action="store_true", help="one of each")
    parser.add_argument("--hosts", action="store_true", help="a machine that has joined, and nothing else")
    options = parser.parse_args()
    repeat = 1 if options.quick else options.repeat
    if options.hosts:
        return on_a_host(repeat)
    folder, begun = ROOT / "first_step", time.monotonic()
    shutil.rmtree(folder, ignore_errors=True)
    names = {
        "warm": "submit → first update, warm",
        "cold": "submit → first update, cold",
        "forked": "submit → first update, from the template",
        "first search": "the first search of a server → first update, warm",
        "search": "search → first update, warm",
        "import": 'information: python -c "import torch"',
        "plain": "information: python train.py → first update",
        "torchrun": "information: torchrun --standalone → first update",
    }
    times: dict[str, list[float]] = {key: [] for key in names}
    with server(folder / "warm", warm=True) as warm, server(folder / "cold", warm=False) as cold:
        spares = Spares(warm.pid)
        spares.wait()
        for number in range(repeat):
            times["warm"].append(ours(warm))
            # The successor of the process just used starts now: it must not disturb the others, and is there next time.
            spares.wait()
            times["search" if number else "first search"].append(searched(warm))
            spares.wait()
            times["cold"].append(ours(cold))
            times["forked"].append(ours(cold))
            for template in templates(cold.pid):
                os.kill(template, signal.SIGKILL)
            times["import"].append(import_torch())
            if not options.only_ours:
                times["plain"].append(alone(folder / f"plain-{number}", ()))
                times["torchrun"].append(alone(folder / f"torchrun-{number}", STANDALONE))
            last = ", ".join(f"{key} {duration(some[-1])}" for key, some in times.items() if some)
            print(f"  {number + 1}/{repeat}: {last}", flush=True)
    summaries = {key: summarize(some) for key, some in times.items()}
    lines = [["what", "n", "median", "worst"]]
    lines += [[names[k], str(s.n), duration(s.median), duration(s.worst)] for k, s in summaries.items() if s]
    seconds = round(time.monotonic() - begun)
    print(table(lines))
    print(f"  {seconds} s in all")
    median = summaries["warm"].median if summaries["warm"] else None
    checks = [Check("submit → first update, warm, s", median, TARGET, "at most")]
    for key, more in (("first search", WITH_SUGGESTER), ("search", AS_SEARCH)):
        found = summaries[key]
        if found is not None and median is not None:
            checks.append(Check(f"{names[key]}, s more than submit", found.median - median, more, "at most"))
    return finish("first_step", {"seconds": seconds, "times": times}, checks)


if __name__ == "__main__":
    sys.exit(main())
