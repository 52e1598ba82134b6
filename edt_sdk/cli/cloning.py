"""`edt clone`: another job of the package that one was submitted with; what is not said is as in that job."""

from __future__ import annotations

import argparse

from edt_sdk.cli.session import Verbs, add_verb, job
from edt_sdk.cli.submitting import variable, wait_for

_NAMED = (
    "main", "name", "max_workers", "min_workers", "priority", "instance_group", "mode", "seed", "warm_start", "dataset",
)  # fmt: skip


def add(verbs: Verbs, common: argparse.ArgumentParser) -> None:
    """Add the verb."""
    says = "Submit another job of the package of this one. Prints the new job's id, alone, on stdout."
    clone = add_verb(verbs, common, "clone", run_clone, says, job="the job; what is not said is as in it")
    clone.usage = "edt clone ID [options] [-- ARG …]"
    clone.add_argument("--main", metavar="FILE", help="another main script of the same package")
    clone.add_argument("--name", help="what to call it")
    clone.add_argument("--max-workers", type=int, metavar="N", help="most slots it may hold at once")
    clone.add_argument("--min-workers", type=int, metavar="N", help="slots it cannot run without")
    clone.add_argument("--priority", type=int, metavar="P", help="weight under fair share")
    clone.add_argument("--instance-group", metavar="G", help="the queue")
    clone.add_argument("--mode", choices=("exact", "fast"), help="equal bits for any number of workers, or not")
    clone.add_argument("--seed", type=int, help="seed of the training")
    clone.add_argument("--warm-start", metavar="ID", help="begin with the weights of another job; '' for none")
    clone.add_argument("--dataset", metavar="NAME", help="a registered data set; '' for none")
    clone.add_argument(
        "--env",
        action="append",
        type=variable,
        metavar="K=V",
        help="its environment, in place of the job's; repeatable",
    )
    clone.add_argument("--wait", action="store_true", help="wait for its end; exit code 1 if it fails")


def run_clone(arguments: argparse.Namespace) -> int:
    """`edt clone`."""
    made = job(arguments).clone(
        args=arguments.args if arguments.said_args else None,
        env=None if arguments.env is None else dict(arguments.env),
        **{name: getattr(arguments, name) for name in _NAMED},
    )
    print(made.id, flush=True)
    return wait_for(made, None) if arguments.wait else 0
