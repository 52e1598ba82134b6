"""How long a picture takes over HTTP: of trainings of 10 000 updates, of a very long one, and of a machine's long past.

A job store is written with `benchmarks/long_history.py` (10 000 jobs by default); some of them get a metrics file as
rank 0 writes it, with eight shards a line. A real server is started over it. Each job's loss is asked for once, so that
none is the first one's second time; then again, with its ETag; then the other pictures. Times are from the request to
the last byte of the answer, read by a client of its own.

Target: the first picture of a job of 10 000 updates in 0.3 s, also the slowest of them. Writes `.bench/pictures.json`;
exit code 1 when a target is missed. `--quick` has 500 jobs and a tenth of the updates of the long training.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import requests

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.long_history import BEGUN, NAME, write  # noqa: E402
from benchmarks.report import finish, table  # noqa: E402
from benchmarks.summary import Check, summarize  # noqa: E402
from edt_jupyter.http.identity import account  # noqa: E402
from edt_sdk.schemas.wire.paths import JobPaths  # noqa: E402
from edt_sdk.testing import LocalServer  # noqa: E402

TARGET = 0.3
UPDATES = 10_000
SHARDS = 8
MOST_BYTES = 100_000


def write_metrics(paths: JobPaths, updates: int, first: float) -> int:
    """A training's metrics as rank 0 writes them; bytes."""
    paths.job_dir.mkdir(parents=True, exist_ok=True)
    path = paths.metrics(0)
    with path.open("w") as file:
        for update in range(updates):
            loss = 2.3 * math.exp(-update / 2000) + 0.1 * math.sin(update * 1.7)
            point = {
                "kind": "train", "update": update, "epoch": update // 500, "samples": 64 * SHARDS, "loss": loss,
                "accuracy": 0.9, "world": 1 + update // 700 % 8, "time": first + 0.05 * update,
                "shards": [[loss + shard, 0.9, 64] for shard in range(SHARDS)],
            }  # fmt: skip
            file.write(json.dumps(point) + "\n")
            if update % 500 == 499:
                test = {"kind": "test", "epoch": update // 500, "update": update, "loss": loss, "accuracy": 0.9}
                file.write(json.dumps({**test, "time": point["time"]}) + "\n")
    return path.stat().st_size


class Asker:
    """One connection that asks for pictures and takes the time."""

    def __init__(self, server: LocalServer) -> None:
        self._base = f"{server.url}edt/api/"
        self._session = requests.Session()
        self._session.trust_env = False
        self._session.headers["Authorization"] = f"token {server.token}"
        self._session.get(self._base, timeout=60).raise_for_status()

    def ask(self, path: str, etag: str = "") -> tuple[float, requests.Response]:
        """Seconds, and the answer."""
        begun = time.perf_counter()
        answer = self._session.get(self._base + path, headers={"If-None-Match": etag} if etag else {}, timeout=300)
        seconds = time.perf_counter() - begun
        answer.raise_for_status()
        return seconds, answer


def measure(server: LocalServer, jobs: list[str], long: str) -> dict[str, Any]:
    """Times by what was asked for, and bytes of the largest answer."""
    asker = Asker(server)
    times: dict[str, list[float]] = {}
    largest = 0

    def note(what: str, path: str, etag: str = "") -> str:
        nonlocal largest
        seconds, answer = asker.ask(path, etag)
        times.setdefault(what, []).append(seconds)
        largest = max(largest, len(answer.content))
        return answer.headers.get("ETag", "")

    tags = {job: note("loss, first", f"jobs/{job}/pictures/loss") for job in jobs}
    for job in jobs:
        note("loss, unchanged", f"jobs/{job}/pictures/loss", tags[job])
        note("loss over time, smoothed", f"jobs/{job}/pictures/loss?x=time&smooth=0.3")
        note("allocation", f"jobs/{job}/pictures/allocation")
        note("efficiency", f"jobs/{job}/pictures/efficiency")
        note("spark", f"jobs/{job}/pictures/spark")
        note("slots", "pictures/slots")
        note("shares", "pictures/shares")
        note("timeline", "pictures/timeline")
    note("compare five", f"pictures/compare?jobs={','.join(jobs[:5])}")
    note("very long loss, first", f"jobs/{long}/pictures/loss")
    note("very long loss, again", f"jobs/{long}/pictures/loss")
    return {"times": times, "largest": largest}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--past", type=int, default=10_000, help="jobs in the store")
    parser.add_argument("--jobs", type=int, default=20, help="of these, so many with a training")
    parser.add_argument("--long", type=int, default=1_000_000, help="updates of the very long training")
    parser.add_argument("--quick", action="store_true", help="500 jobs, a tenth of the long training")
    options = parser.parse_args()
    if options.quick:
        options.past, options.long = 500, options.long // 10
    folder = Path(tempfile.mkdtemp(prefix="edt-pictures-"))
    try:
        data_dir, owner = folder / "edt", account()
        events = write(data_dir, owner, options.past)
        ids = [f"{NAME}-{number:06d}" for number in range(options.past - options.jobs - 1, options.past)]
        long, jobs = ids[0], ids[1:]
        for job in jobs:
            size = write_metrics(JobPaths(data_dir, owner, job), UPDATES, BEGUN)
        write_metrics(JobPaths(data_dir, owner, long), options.long, BEGUN)
        print(f"{options.past} jobs, {events} events; {size / 1e6:.1f} MB of metrics for {UPDATES} updates")
        with LocalServer(folder, slots=16) as server:
            found = measure(server, jobs, long)
    finally:
        shutil.rmtree(folder)
    summaries = {what: summarize(times) for what, times in found["times"].items()}
    print(table([("picture", "time"), *((what, each.text()) for what, each in summaries.items() if each)]))
    checks = [
        Check("slowest first picture of 10 000 updates, s", summaries["loss, first"].worst, TARGET, "at most"),
        Check("largest picture, bytes", found["largest"], MOST_BYTES, "at most"),
    ]
    return finish("pictures", {"options": vars(options), **found}, checks)


if __name__ == "__main__":
    sys.exit(main())
