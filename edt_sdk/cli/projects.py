"""`edt project list|runs`: the projects that jobs are in, and the table of their runs."""

from __future__ import annotations

import argparse
import sys

from edt_sdk.cli.session import Verbs, add_actions, add_verb, client, show


def add(verbs: Verbs, common: argparse.ArgumentParser) -> None:
    """Add the verbs of this group."""
    actions = add_actions(verbs, "project", "Compare the runs of a project or of one of its experiments in a table.")
    says = "List the projects that my jobs are in, with their experiments."
    add_verb(actions, common, "list", _run_list, says, output="table")
    says = "Show the runs with their arguments and metrics, the newest first."
    runs = add_verb(actions, common, "runs", _run_runs, says, output="table")
    runs.add_argument("project", metavar="PROJECT")
    runs.add_argument(
        "experiment", metavar="EXPERIMENT", nargs="?", default="", help="only the runs of this experiment"
    )
    runs.add_argument("--sort", metavar="COLUMN", default="", help="by a column, such as test_accuracy or lr")
    runs.add_argument("--desc", action="store_true", help="the largest first")
    runs.add_argument("--limit", type=int, metavar="N", help="the first N runs only (default: 1000)")
    runs.add_argument("--csv", action="store_true", help="comma-separated values, with all columns")


def _run_list(arguments: argparse.Namespace) -> None:
    found = client(arguments).projects()
    show(arguments, {"projects": [each.view for each in found]}, found)


def _run_runs(arguments: argparse.Namespace) -> None:
    project = client(arguments).project(arguments.project)
    group = project.experiment(arguments.experiment) if arguments.experiment else project
    found = group.runs(sort=arguments.sort, desc=arguments.desc, limit=arguments.limit)
    if arguments.csv:
        sys.stdout.write(found.table.csv())
    else:
        show(arguments, found.table, found)
