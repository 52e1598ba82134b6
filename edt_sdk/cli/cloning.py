"""`edt clone`: submit the package of an earlier job again. Settings that are not given are that job's."""

from __future__ import annotations

import argparse

from edt_sdk.cli.session import Verbs, add_options, add_verb, job
from edt_sdk.cli.submitting import wait_for
from edt_sdk.schemas.fields import given
from edt_sdk.schemas.job import CLONEABLE, JobSpec


def add(verbs: Verbs, common: argparse.ArgumentParser) -> None:
    """Add the verb."""
    says = "Submit another job of the package of this one. Prints the new job's id, alone, on stdout."
    clone = add_verb(verbs, common, "clone", run_clone, says, job="the job; what is not given is as in it")
    clone.usage = "edt clone ID [options] [-- ARG …]"
    add_options(clone, JobSpec, *CLONEABLE, unset=True)
    clone.add_argument("--wait", action="store_true", help="wait for its end; exit code 1 if it fails")


def run_clone(arguments: argparse.Namespace) -> int:
    """`edt clone`."""
    made = job(arguments).clone(
        args=arguments.args if arguments.said_args else None,
        **given(arguments, CLONEABLE),
    )
    print(made.id, flush=True)
    return wait_for(made, None) if arguments.wait else 0
