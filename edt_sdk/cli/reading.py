"""The verbs that read one job: logs, metrics, story, workers, checkpoints, validation, download."""

from __future__ import annotations

import argparse

from edt_sdk.cli.session import Verbs, add_verb, job, show, table
from edt_sdk.cli.terminal import print_log
from edt_sdk.formatting.number_words import clock, zone
from edt_sdk.schemas.wire.parts import PARTS, STREAMS


def add(verbs: Verbs, common: argparse.ArgumentParser) -> None:
    """Add the verbs of this group."""
    logs = add_verb(verbs, common, "logs", _run_logs, "Print what a job wrote.", job="the job")
    logs.add_argument("--stream", choices=STREAMS, default="all", help="default: all, merged by time")
    logs.add_argument("--worker", type=int, metavar="K", help="one worker only")
    logs.add_argument("-n", "--tail", type=int, metavar="N", help="only the last N lines")
    logs.add_argument(
        "--since", metavar="T", help="only lines since then: 10m (ago), 14:30, 2026-05-01T14:30, or seconds"
    )
    logs.add_argument("-f", "--follow", action="store_true", help="go on until the job has ended")
    for name, run, says in (
        ("metrics", _run_metrics, "Print a job's losses and accuracies."),
        ("story", _run_story, "Tell what happened to a job."),
        ("workers", _run_workers, "List a job's workers."),
        ("checkpoints", _run_checkpoints, "List a job's checkpoints."),
        ("validation", _run_validation, "Print what a validation came to."),
    ):
        add_verb(verbs, common, name, run, says, job="the job", output="text")
    download = add_verb(verbs, common, "download", _run_download, "Fetch a job's results as a zip.", job="the job")
    download.add_argument("-d", "--directory", default=".", metavar="DIR", help="where to (default: here)")
    download.add_argument("--part", choices=PARTS, default="all")
    download.add_argument("--extract", action="store_true", help="also unpack it into DIR/ID")


def _run_logs(arguments: argparse.Namespace) -> None:
    chosen = {name: getattr(arguments, name) for name in ("worker", "tail", "since", "follow")}
    for line in job(arguments).log_lines(arguments.stream, **chosen):
        # Show each line at once, also through a pipe.
        print_log(line, flush=arguments.follow)


def _run_metrics(arguments: argparse.Namespace) -> None:
    found = job(arguments).metrics()
    show(arguments, {"train": found.train, "test": found.test}, found)


def _run_story(arguments: argparse.Namespace) -> None:
    story = job(arguments).story()
    show(arguments, {"events": list(story)}, story)


def _run_workers(arguments: argparse.Namespace) -> None:
    workers = job(arguments).workers()
    names = ("worker", "slot", "host", "pid", "rank", "generation")
    rows = [["-" if worker.get(name) is None else worker[name] for name in names] for worker in workers]
    show(arguments, {"workers": workers}, table([name.upper() for name in names], rows))


def _run_checkpoints(arguments: argparse.Namespace) -> None:
    checkpoints = job(arguments).checkpoints()
    names = ("name", "kind", "training", "epoch", "update", "bytes")
    rows = [[*("-" if c.get(name) is None else c[name] for name in names), clock(c["time"])] for c in checkpoints]
    head = [*(name.upper() for name in names), f"TIME ({zone()})"]
    show(arguments, {"checkpoints": checkpoints}, table(head, rows))


def _run_validation(arguments: argparse.Namespace) -> None:
    found = job(arguments).validation()
    show(arguments, found, found)


def _run_download(arguments: argparse.Namespace) -> None:
    print(job(arguments).download(arguments.directory, arguments.part, extract=arguments.extract))
