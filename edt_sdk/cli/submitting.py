"""The verbs that start jobs and wait for them: submit, clone, validate, wait."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from edt_sdk.cli.session import Verbs, add_options, add_verb, client, job
from edt_sdk.schemas.fields import given
from edt_sdk.schemas.job import CLONEABLE, SUBMITTABLE, JobSpec
from edt_sdk.schemas.validation import NewValidation
from edt_sdk.torchrun.command_line.submission import asked

if TYPE_CHECKING:
    from edt_sdk.client import Job


def add(verbs: Verbs, common: argparse.ArgumentParser) -> None:
    """Add the verbs of this group."""
    submit = add_verb(verbs, common, "submit", _run_submit, "Submit a training. Prints the job's id, alone, on stdout.")
    submit.usage = "edt submit SOURCE [options] [-- ARG …]"
    submit.add_argument("source", metavar="SOURCE", nargs="?", help="a folder, a .py file or an .ipynb file")
    submit.add_argument("--main", metavar="FILE", help="main script, relative to the folder")
    submit.add_argument("--tag", metavar="TAG", help="of a notebook only the cells with this tag (default: all)")
    add_options(submit, JobSpec, *SUBMITTABLE, "python")
    submit.add_argument(
        "--dry-run", action="store_true", help="submit nothing: list what would be sent, and say when it would start"
    )
    submit.add_argument("--wait", action="store_true", help="wait for its end; exit code 1 if it fails")
    says = "Submit another job of the package of this one. Prints the new job's id, alone, on stdout."
    clone = add_verb(verbs, common, "clone", _run_clone, says, job="the job; what is not given is as in it")
    clone.usage = "edt clone ID [options] [-- ARG …]"
    add_options(clone, JobSpec, *CLONEABLE, unset=True)
    clone.add_argument("--wait", action="store_true", help="wait for its end; exit code 1 if it fails")
    says = "Run a trained model once over its test data."
    validate = add_verb(verbs, common, "validate", _run_validate, says, job="the job it is of")
    add_options(validate, NewValidation, *NewValidation.__struct_fields__)
    validate.add_argument("--wait", action="store_true", help="wait for its end and print what it came to")
    wait = add_verb(verbs, common, "wait", _run_wait, "Wait until a job has ended.", job="the job")
    wait.add_argument("--timeout", type=float, metavar="S", help="give up after so many seconds (exit code 3)")


def _run_submit(arguments: argparse.Namespace) -> int:
    wishes = {"tag": arguments.tag, **given(arguments, (*SUBMITTABLE, "python")), **asked(arguments)}
    if arguments.dry_run:
        print(client(arguments).preview(**wishes), flush=True)
        return 0
    submitted = client(arguments).submit(**wishes)
    # Flushed before the wait: a script that reads the pipe gets the id while the job still runs.
    print(submitted.id, flush=True)
    return wait_for(submitted, None) if arguments.wait else 0


def _run_clone(arguments: argparse.Namespace) -> int:
    args = arguments.args if arguments.said_args else None
    made = job(arguments).clone(args=args, **given(arguments, CLONEABLE))
    print(made.id, flush=True)
    return wait_for(made, None) if arguments.wait else 0


def _run_validate(arguments: argparse.Namespace) -> None:
    started = job(arguments).validate(**given(arguments, NewValidation.__struct_fields__))
    if not arguments.wait:
        print(started.id)
        return
    # On stderr here: with --wait the result is the answer on stdout.
    print(started.id, file=sys.stderr, flush=True)
    started.wait()  # JobFailed has its own exit code
    print(started.validation())


def _run_wait(arguments: argparse.Namespace) -> int:
    return wait_for(job(arguments), arguments.timeout)


def wait_for(waited: Job, timeout: float | None) -> int:
    """Wait for the job's end, show it, and return the exit code. For an error, `main` returns the code."""
    waited.wait(timeout)  # JobFailed and WaitTimeout have their own exit codes
    print(waited, file=sys.stderr)
    return 0
