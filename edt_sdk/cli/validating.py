"""The verbs of validations: start one of a trained job, read what one came to."""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict

from edt_sdk.cli.session import Verbs, add_verb, job, print_json
from edt_sdk.schemas.validation import DEFAULT_METRICS, KNOWN


def add(verbs: Verbs, common: argparse.ArgumentParser) -> None:
    """Add the verbs of this group."""
    validate = add_verb(
        verbs, common, "validate", run_validate, "Run a trained model once over its test data.", job="the job it is of"
    )
    validate.add_argument(
        "--metrics",
        default=",".join(DEFAULT_METRICS),
        metavar="M,…",
        help=f"what is measured (default: {','.join(DEFAULT_METRICS)}): {', '.join(KNOWN)}",
    )
    validate.add_argument(
        "--threshold", type=float, metavar="T", help="from which score on a binary output means class 1 (default: 0.5)"
    )
    validate.add_argument("--dataset", metavar="NAME", help="a registered data set in place of the training's")
    validate.add_argument("--name", help="of the validation's job")
    validate.add_argument("--max-workers", type=int, default=1, metavar="N", help="most slots it may hold (default: 1)")
    validate.add_argument("--instance-group", metavar="G", help="its queue (default: the training's)")
    validate.add_argument("--priority", type=int, metavar="P", help="its weight (default: the training's)")
    validate.add_argument("--wait", action="store_true", help="wait for its end and print what it came to")
    result = add_verb(verbs, common, "validation", run_validation, "Print what a validation came to.", job="its job")
    result.add_argument("-o", "--output", choices=("text", "json"), default="text")


def run_validate(arguments: argparse.Namespace) -> int:
    """`edt validate`."""
    names = ("threshold", "dataset", "name", "max_workers", "instance_group", "priority")
    started = job(arguments).validate(arguments.metrics, **{name: getattr(arguments, name) for name in names})
    if not arguments.wait:
        print(started.id)
        return 0
    print(started.id, file=sys.stderr, flush=True)
    started.wait()  # JobFailed has its own exit code
    print(started.validation())
    return 0


def run_validation(arguments: argparse.Namespace) -> int:
    """`edt validation`."""
    found = job(arguments).validation()
    if arguments.output == "json":
        print_json(asdict(found))
    else:
        print(found)
    return 0
