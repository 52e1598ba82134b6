"""A Jupyter Server with fifty jobs: how long its own `/api/status` takes, and how much memory it grows by.

One server, one probe that asks for `/api/status` fifty times a second, in four stretches: without jobs; with 50 jobs
that write 1 000 lines a second in total; with those and their readers (10 log followers and 10 metric followers by
server-sent events, 2 timelines a second); and with the jobs gone again. Then the same server over a store of 10 000
ended jobs: its start, a list, one job, timelines.

What is real: server, store, control channel, 50 supervisors, their drivers and workers as processes of their own, log
files, journals. Ten of the jobs train, as light a model as there is, at most twenty samples a second each; forty have a
main script that prints and calls no `train()`: fifty that really compute do not fit a few cores, and what they compute
does not pass the server. Everything shares the machine's cores, so the figures hold that too.

Takes about five minutes and 10 GB; `--quick` is 8 jobs and short stretches. Writes `.bench/server_load.json`; exit code
1 when a target is missed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import requests

from benchmarks.long_history import BEGUN, NAME, SLOTS, write
from benchmarks.report import ROOT, finish, table
from benchmarks.server_processes import wait_for
from benchmarks.spread import Spread
from benchmarks.summary import Check
from edt_jupyter.http.identity import account
from edt_sdk import Client, Job
from edt_sdk.testing import LocalServer

TARGET = 0.050
FOLDER = Path(__file__).parent / "talkative"
CLIENTS = Path(__file__).parent / "load_clients.py"
FOLLOWERS = 10
START_LIMIT = 400.0


class Measured(LocalServer):
    """A server with as many slots as jobs, profiled on demand.

    Args:
        root: its folder.
        slots: it offers.
        profile: where cProfile writes what its event loop did, None for not.
    """

    def __init__(self, root: Path, *, slots: int, profile: Path | None = None) -> None:
        hidden = {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
        super().__init__(root, slots=slots, traits={"EdtApp.threads_per_slot": 1}, environ=hidden)
        self._profile = profile

    def _command(self, port: int) -> list[str]:
        python, _, _, _, *rest = super()._command(port)
        profiler = [] if self._profile is None else ["-m", "cProfile", "-o", str(self._profile)]
        return [python, *profiler, "-m", "jupyter_server", *rest]

    def memory(self) -> int:
        """Resident bytes of the server alone."""
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:")) << 10

    def processor_seconds(self) -> float:
        """Of the server alone, so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / 100


@contextlib.contextmanager
def clients(server: LocalServer, orders: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Clients that do as ordered during the block; filled with what they counted behind it."""
    process = subprocess.Popen([sys.executable, str(CLIENTS)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    result: dict[str, Any] = {}
    try:
        process.stdin.write(json.dumps({"url": server.url, "token": server.token, **orders}) + "\n")
        process.stdin.flush()
        if process.stdout.readline() != "ready\n":
            raise SystemExit("the clients failed, see above")
        yield result
        result.update(json.loads(process.communicate()[0]))
    finally:
        process.kill()
        process.wait()


def stretch(server: Measured, seconds: float, jobs: Sequence[Job] = ()) -> dict[str, Any]:
    """Time `/api/status` for a while; with `jobs`, while these have readers."""
    probe = {"poll": [("api/status", "status", 0.02)]}
    logs = [f"edt/api/jobs/{job.id}/logs?follow=1" for job in jobs[-FOLLOWERS:]]
    metrics = [f"edt/api/jobs/{job.id}/metrics?follow=1" for job in jobs[:FOLLOWERS]]
    readers = {
        "follow": {"lines": logs, "points": metrics},
        "poll": [("edt/api/timeline", "timeline", 1.0), (f"edt/api/jobs/{jobs[0].id}/timeline", "timeline", 1.0)]
        if jobs
        else [],
    }
    with contextlib.ExitStack() as stack:
        read = stack.enter_context(clients(server, readers)) if jobs else {}
        asked = stack.enter_context(clients(server, probe))
        used, begun = server.processor_seconds(), time.monotonic()
        time.sleep(seconds)
        used = (server.processor_seconds() - used) / (time.monotonic() - begun)
    found: dict[str, Any] = {
        "status": asdict(Spread.of(asked["times"]["status"])),
        "cores": used,
        "rss": server.memory(),
    }
    if jobs:
        counts = read["counts"]
        found |= {f"{what}_per_s": counts[what] / read["seconds"] for what in ("lines", "points")}
        found["timeline"] = asdict(Spread.of(read["times"]["timeline"]))
        found["timeline_bytes"] = counts["timeline bytes"] / len(read["times"]["timeline"])
    return found


def begin(client: Client, number: int, training: int, lines: float) -> list[Job]:
    """That many jobs, the first `training` of them with a training; returns when all run and talk."""
    jobs = [
        client.submit(
            FOLDER,
            main="main.py",
            name=f"{'trains' if each < training else 'talks'}-{each}",
            max_workers=1,
            args=[str(lines / number), *(["train"] if each < training else [])],
            progress=False,
        )
        for each in range(number)
    ]

    def talking(job: Job) -> bool:
        view = job.refresh().view
        if view.state.final:
            raise SystemExit(f"job {view.id} ended as {view.state}: {view.message}")
        return bool(job.logs(stream="worker" if job.view.name.startswith("trains") else "stdout"))

    left = list(jobs)

    def all_talk() -> bool:
        while left and talking(left[0]):
            left.pop(0)
        return not left

    wait_for(all_talk, "all jobs to run", START_LIMIT, poll=0.5)
    return jobs


def written(server: LocalServer) -> int:
    """Bytes in all log files of all jobs."""
    return sum(path.stat().st_size for path in server.data_dir.glob("jobs/*/streams/*.std*"))


def busy_server(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """All stretches on one server."""
    results: dict[str, Any] = {}
    with Measured(folder, slots=options.jobs, profile=options.profile) as server:
        client = server.client()
        client.jobs()
        stretch(server, 2.0)
        results["idle"] = stretch(server, options.seconds)
        begun = time.monotonic()
        jobs = begin(client, options.jobs, options.training, options.lines)
        results["all_run_after"] = time.monotonic() - begun
        time.sleep(options.settle)
        size, begun = written(server), time.monotonic()
        results["jobs"] = stretch(server, options.seconds)
        per_line = 90.0
        results["lines_written_per_s"] = (written(server) - size) / per_line / (time.monotonic() - begun)
        results["readers"] = stretch(server, options.seconds, jobs)
        client.stop_all()
        wait_for(lambda: all(job.view.state.final for job in client.jobs()), "the end of all jobs", START_LIMIT, 0.5)
        results["after"] = stretch(server, options.seconds)
    return results


def long_past(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """A server over a store of ended jobs: how long it takes to start, and to answer."""
    results: dict[str, Any] = {"start_empty": _started(folder / "empty")[0]}
    written_events = write(folder / "long" / "edt", account(), options.past)
    newest = f"{NAME}-{options.past - 1:06d}"
    middle = BEGUN + written_events / 4
    asked = {
        "list": "edt/api/jobs",
        "list of 100": "edt/api/jobs?limit=100",
        "job": f"edt/api/jobs/{newest}",
        "story": f"edt/api/jobs/{newest}/events",
        "timeline": "edt/api/timeline",
        "timeline, 200 points": "edt/api/timeline?points=200",
        "timeline, an hour": f"edt/api/timeline?start={middle}&end={middle + 3600}",
        "job's timeline": f"edt/api/jobs/{newest}/timeline",
    }
    results["start_replay"] = _started(folder / "long")[0]
    results["start_long"], server = _started(folder / "long", keep=True)
    assert server is not None
    try:
        results["events"] = written_events
        results["rss_started"] = server.memory()
        for what, path in asked.items():
            first = once(server, path)
            with clients(server, {"poll": [(path, what, 0.05)]}) as answers:
                time.sleep(max(1.0, options.seconds / 10))
            bytes_each = answers["counts"][f"{what} bytes"] / len(answers["times"][what])
            results[what] = {**asdict(Spread.of(answers["times"][what])), "bytes": bytes_each, "first": first}
        results["rss"] = server.memory()
        results["status"] = stretch(server, options.seconds / 3)
    finally:
        server.stop()
    return results


def once(server: LocalServer, path: str) -> float:
    """Seconds of one request: the first of its kind reads what the others find read."""
    begun = time.perf_counter()
    answer = requests.get(f"{server.url}{path}", headers={"Authorization": f"token {server.token}"}, timeout=60)
    answer.raise_for_status()
    return time.perf_counter() - begun


def _started(root: Path, *, keep: bool = False) -> tuple[float, Measured | None]:
    """Seconds until a server answers, and the server where it is to be kept."""
    server = Measured(root, slots=SLOTS)
    begun = time.monotonic()
    server.start()
    took = time.monotonic() - begun
    if not keep:
        server.stop()
    return took, server if keep else None


def report_long_past(found: Mapping[str, Any], jobs: int) -> None:
    """Print the table of the long past."""
    lines = [[f"{jobs} ended jobs, {found['events']} events", "n", "median", "p99", "worst", "first", "KiB"]]
    for what, spread in found.items():
        if isinstance(spread, dict) and "median" in spread:
            figures = {key: value for key, value in spread.items() if key not in ("bytes", "first")}
            first, size = f"{spread['first'] * 1000:.0f} ms", f"{spread['bytes'] / 1024:.0f}"
            lines.append([*Spread(**figures).row(f"GET {what}"), first, size])
    print(table(lines))
    print(
        f"  the server starts in {found['start_long']:.2f} s (with an empty store: {found['start_empty']:.2f} s; the "
        f"first time, without a snapshot of its core: {found['start_replay']:.2f} s); "
        f"RSS {found['rss_started'] / 2**20:.0f} MiB then, {found['rss'] / 2**20:.0f} MiB behind all that"
    )


def report(results: Mapping[str, Any]) -> list[Check]:
    """Print the table of the busy server; its checks."""
    stretches = {
        "idle": "no jobs",
        "jobs": "jobs",
        "readers": "jobs and readers",
        "after": "jobs gone",
    }
    lines = [["/api/status", "n", "median", "p99", "worst", "server, cores", "RSS"]]
    for key, name in stretches.items():
        found = results[key]
        row = Spread(**found["status"]).row(name)
        lines.append([*row, f"{found['cores']:.2f}", f"{found['rss'] / 2**20:.0f} MiB"])
    lines.append([*Spread(**results["readers"]["timeline"]).row("GET timeline, with readers"), "", ""])
    print(table(lines))
    readers = results["readers"]
    grown = max(results[key]["rss"] for key in stretches) - results["idle"]["rss"]
    print(
        f"  {results['lines_written_per_s']:.0f} lines/s written; {readers['lines_per_s']:.0f} lines/s and "
        f"{readers['points_per_s']:.0f} points/s read; a timeline has {readers['timeline_bytes'] / 1024:.0f} KiB; "
        f"all jobs ran after {results['all_run_after']:.0f} s; the server grew by {grown / 2**20:.0f} MiB"
    )
    return [Check("p99 of /api/status with jobs and readers, s", readers["status"]["p99"], TARGET, "at most")]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=50, help="that run at once (default 50)")
    parser.add_argument("--training", type=int, default=10, help="of these with a training (default 10)")
    parser.add_argument("--lines", type=float, default=1000, help="a second, of all jobs together (default 1000)")
    parser.add_argument("--seconds", type=float, default=30, help="of each stretch (default 30)")
    parser.add_argument("--settle", type=float, default=10, help="seconds from the last start to the first stretch")
    parser.add_argument("--past", type=int, default=10_000, help="ended jobs of the second part (default 10 000)")
    parser.add_argument("--profile", type=Path, help="write what the event loop did, for pstats")
    parser.add_argument("--quick", action="store_true", help="8 jobs, 2 of them with a training, short stretches")
    options = parser.parse_args()
    if options.quick:
        options.jobs, options.training, options.lines, options.seconds, options.settle = 8, 2, 160, 4, 1
        options.past = 500
    folder = ROOT / "server_load"
    shutil.rmtree(folder, ignore_errors=True)
    past = long_past(options, folder / "past") if options.past else {}
    busy = busy_server(options, folder / "busy") if options.jobs else {}
    chosen = {key: value for key, value in vars(options).items() if key != "profile"}
    checks = report(busy) if busy else []
    if past:
        print()
        report_long_past(past, options.past)
    return finish("server_load", {"options": chosen, "busy": busy, "past": past}, checks)


if __name__ == "__main__":
    sys.exit(main())
