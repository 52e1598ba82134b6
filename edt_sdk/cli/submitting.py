"""`edt submit` and `edt wait`."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from edt_sdk.cli import frameworks
from edt_sdk.cli.session import Verbs, add_verb, client, job
from edt_sdk.torchrun.command_line import command

if TYPE_CHECKING:
    from edt_sdk.client import Job


def add(verbs: Verbs, common: argparse.ArgumentParser) -> None:
    """Add the verbs of this group."""
    submit = add_verb(verbs, common, "submit", run_submit, "Submit a training. Prints the job's id, alone, on stdout.")
    submit.usage = "edt submit SOURCE [options] [-- ARG …]"
    submit.add_argument("source", metavar="SOURCE", nargs="?", help="a folder, a .py file or an .ipynb file")
    submit.add_argument("--main", metavar="FILE", help="main script, relative to the folder")
    submit.add_argument("--tag", metavar="TAG", help="of a notebook only the cells with this tag (default: all)")
    submit.add_argument(
        "--max-workers", type=int, default=1, metavar="N", help="most slots it may hold at once (default 1)"
    )
    submit.add_argument(
        "--min-workers", type=int, default=1, metavar="N", help="slots it cannot run without (default 1)"
    )
    submit.add_argument(
        "--slots-per-unit", type=int, default=1, metavar="N", help="its slots come N at a time (default 1)"
    )
    submit.add_argument(
        "--pending-timeout",
        type=float,
        metavar="S",
        help="give up after S seconds without a slot (default: its group's)",
    )
    submit.add_argument("--name", help="what to call it (default: from the source)")
    submit.add_argument(
        "--priority", type=int, default=5000, metavar="P", help="weight under fair share (default 5000)"
    )
    submit.add_argument("--instance-group", default="", metavar="G", help="the queue (default: the server's first)")
    submit.add_argument(
        "--mode",
        choices=("exact", "fast"),
        default="exact",
        help="exact (default): equal bits for any number of workers; fast: the same batches, not the same bits",
    )
    submit.add_argument("--seed", type=int, default=0, help="seed of the training (default 0)")
    submit.add_argument("--python", metavar="PATH", help="what it runs in (default: this Python, or the server's own)")
    submit.add_argument("--threads-per-slot", type=int, metavar="N", help="threads of a worker (default: the server's)")
    submit.add_argument("--warm-start", metavar="ID", help="begin with the weights of another job")
    submit.add_argument(
        "--env", action="append", default=[], type=variable, metavar="K=V", help="an environment variable; repeatable"
    )
    frameworks.add(submit)
    submit.add_argument(
        "--dry-run", action="store_true", help="submit nothing: list what would be sent, and say when it would start"
    )
    submit.add_argument("--wait", action="store_true", help="wait for its end; exit code 1 if it fails")
    wait = add_verb(verbs, common, "wait", run_wait, "Wait until a job has ended.", job="the job")
    wait.add_argument("--timeout", type=float, metavar="S", help="give up after so many seconds (exit code 3)")


def run_submit(arguments: argparse.Namespace) -> int:
    """`edt submit`."""
    wishes: dict[str, Any] = {
        "tag": arguments.tag,
        "name": arguments.name,
        "max_workers": arguments.max_workers,
        "min_workers": arguments.min_workers,
        "slots_per_unit": arguments.slots_per_unit,
        "pending_timeout": arguments.pending_timeout,
        "priority": arguments.priority,
        "instance_group": arguments.instance_group,
        "mode": arguments.mode,
        "python": arguments.python,
        "seed": arguments.seed,
        "threads_per_slot": arguments.threads_per_slot,
        "warm_start": arguments.warm_start,
        "env": dict(arguments.env),
        **command.asked(arguments),
        **frameworks.chosen(arguments),
    }
    if arguments.dry_run:
        print(client(arguments).preview(**wishes), flush=True)
        return 0
    submitted = client(arguments).submit(**wishes)
    print(submitted.id, flush=True)
    return wait_for(submitted, None) if arguments.wait else 0


def run_wait(arguments: argparse.Namespace) -> int:
    """`edt wait`."""
    return wait_for(job(arguments), arguments.timeout)


def wait_for(waited: Job, timeout: float | None) -> int:
    """Wait until it has ended, and show how it did; the exit code, which `main` gives where it failed or timed out."""
    waited.wait(timeout)  # JobFailed and WaitTimeout have their own exit codes
    print(waited, file=sys.stderr)
    return 0


def variable(text: str) -> tuple[str, str]:
    """K=V, for argparse."""
    key, sign, value = text.partition("=")
    if not key or not sign:
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    return key, value
