"""The verbs of validations: start one for a trained job, and read its result."""

from __future__ import annotations

import argparse
import sys

from edt_sdk.cli.session import Verbs, add_options, add_verb, job, print_json
from edt_sdk.schemas.fields import given
from edt_sdk.schemas.validation import NewValidation


def add(verbs: Verbs, common: argparse.ArgumentParser) -> None:
    """Add the verbs of this group."""
    validate = add_verb(
        verbs, common, "validate", run_validate, "Run a trained model once over its test data.", job="the job it is of"
    )
    add_options(validate, NewValidation, *NewValidation.__struct_fields__)
    validate.add_argument("--wait", action="store_true", help="wait for its end and print what it came to")
    result = add_verb(verbs, common, "validation", run_validation, "Print what a validation came to.", job="its job")
    result.add_argument("-o", "--output", choices=("text", "json"), default="text")


def run_validate(arguments: argparse.Namespace) -> int:
    """`edt validate`."""
    started = job(arguments).validate(**given(arguments, NewValidation.__struct_fields__))
    if not arguments.wait:
        print(started.id)
        return 0
    # On stderr here: with --wait the result is the answer on stdout.
    print(started.id, file=sys.stderr, flush=True)
    started.wait()  # JobFailed has its own exit code
    print(started.validation())
    return 0


def run_validation(arguments: argparse.Namespace) -> int:
    """`edt validation`."""
    found = job(arguments).validation()
    if arguments.output == "json":
        print_json(found)
    else:
        print(found)
    return 0
