"""Memory of each worker of a sharded training, against a training in which each worker has the whole model.

A model of 200 MB with AdamW, one thread a worker, on a server of its own: whole with four workers, and sharded with
one, then four, then two. Memory is what a worker has after an update above what it had before it made the model.
Prints a table and writes `.bench/sharded.json`.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.report import finish, table
from benchmarks.summary import Check
from edt_sdk.client import Job
from edt_sdk.testing import LocalServer

CODE = Path(__file__).with_name("sharded_net")
SIZES = {"whole": (4,), "sharded": (1, 4, 2)}


def commits(server: LocalServer, job: Job) -> list[dict[str, Any]]:
    """Return the lines of a job's commit log."""
    path = server.data_dir / "jobs" / job.id / "training-0.commits.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def train(server: LocalServer, kind: str, folder: Path, updates: int) -> tuple[dict[int, list[Any]], list[float]]:
    """Return the notes of all workers by the number of workers, and the losses."""
    folder.mkdir()
    sizes = SIZES[kind]
    job = server.client().submit(
        CODE, main="main.py", args=[kind, str(folder), str(len(sizes) * updates + 8)], max_workers=sizes[0],
        mode="fast", progress=False,
    )  # fmt: skip
    for size in sizes:
        job.update(max_workers=size)
        while sum(commit["world"] == size for commit in commits(server, job)) < updates:
            if job.refresh().state in ("FINISHED", "FAILED", "ERROR", "KILLED"):
                raise SystemExit(job.logs())
            time.sleep(0.1)
    job.wait()
    worlds = {commit["update"]: commit["world"] for commit in commits(server, job)}
    found: dict[int, list[Any]] = defaultdict(list)
    losses = {}
    for path in folder.glob("*.jsonl"):
        for number, line in enumerate(path.read_text().splitlines()):
            note = json.loads(line) | {"first": number == 0}
            found[worlds[note["update"]]].append(note)
            losses[note["update"]] = note["loss"]
    return found, [losses[number] for number in sorted(losses)]


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--updates", type=int, default=6)
    options = parser.parse_args()
    rows, report, losses = [], {}, {}
    with tempfile.TemporaryDirectory() as root:
        traits = {"EdtApp.threads_per_slot": 1}
        with LocalServer(Path(root) / "server", slots=4, traits=traits) as server:
            for kind in SIZES:
                found, losses[kind] = train(server, kind, Path(root) / kind, options.updates)
                for size, notes in found.items():
                    settled = [note for note in notes if not note["first"]] or notes
                    figures = {key: median(note[key] for note in settled) / 1e6 for key in ("trainable", "pss")}
                    figures["joins"] = max((note["peak"] for note in notes if note["first"]), default=0) / 1e6
                    report[f"{kind}, {size}"] = figures
                    rows.append([f"{kind}, {size}", *(f"{value:.0f}" for value in figures.values())])
    print(table([["MB a worker", "trainable", "PSS", "peak of a worker that joins"], *rows]))
    whole, four = report["whole, 4"], report["sharded, 4"]
    apart = max(abs(a / b - 1) for a, b in zip(losses["sharded"], losses["whole"], strict=False))
    checks = [
        Check("trainable, sharded ÷ whole at four workers", four["trainable"] / whole["trainable"], 0.4, "at most"),
        Check("PSS, sharded ÷ whole at four workers", four["pss"] / whole["pss"], 0.4, "at most"),
        Check("largest relative difference of a loss", apart, 1e-3, "at most"),
    ]
    return finish("sharded", {"megabytes": report, "losses": losses}, checks)


if __name__ == "__main__":
    raise SystemExit(main())
