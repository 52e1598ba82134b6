"""The verbs about the machine as a whole: timeline, cluster, interpreters."""

from __future__ import annotations

import argparse
import shutil
import sys
from typing import Any

from edt_sdk.cli.session import Verbs, add_verb, client, print_json, table
from edt_sdk.display.cluster_view import cluster_text


def add(verbs: Verbs, common: argparse.ArgumentParser) -> None:
    """Add the verbs of this group."""
    timeline = add_verb(verbs, common, "timeline", run_timeline, "Show which job held how many slots when, and why.")
    timeline.add_argument("id", metavar="ID", nargs="?", help="one job and its neighbours (default: everything)")
    timeline.add_argument("--since", metavar="T", help="only since then: 2h (ago), 14:30, 2026-05-01T14:30, or seconds")
    timeline.add_argument("--until", metavar="T", help="only until then")
    timeline.add_argument("--settled", action="store_true", help="leave out slots on their way between jobs")
    cluster = add_verb(verbs, common, "cluster", run_cluster, "Show the slots, who has them, and how the groups share.")
    says = "List the Pythons that a job may run in (`edt submit --python`), the server's own first."
    interpreters = add_verb(verbs, common, "interpreters", run_interpreters, says)
    for verb in (timeline, cluster, interpreters):
        verb.add_argument("-o", "--output", choices=("text", "json"), default="text")


def run_timeline(arguments: argparse.Namespace) -> int:
    """`edt timeline`."""
    server = client(arguments)
    asked = server.job(arguments.id) if arguments.id else server
    found = asked.timeline(since=arguments.since, until=arguments.until)
    if arguments.output == "json":
        told = {"capacity": found.capacity, "rows": found.rows, "names": found.names}
        print_json({**told, "total": found.total, "thinned": found.thinned})
    else:
        print(found.table(settled_only=arguments.settled))
        if found.thinned:
            print(
                f"({len(found.rows)} of {found.total} changes; --since and --until show all of a window)",
                file=sys.stderr,
            )
    return 0


def run_cluster(arguments: argparse.Namespace) -> int:
    """`edt cluster`."""
    found = client(arguments).cluster()
    if arguments.output == "json":
        print_json(found)
        return 0
    print(cluster_text(found, width=shutil.get_terminal_size((110, 24)).columns))
    return 0


def run_interpreters(arguments: argparse.Namespace) -> int:
    """`edt interpreters`."""
    found = client(arguments).interpreters()
    if arguments.output == "json":
        print_json({"interpreters": found})
        return 0
    rows = [
        (each["python"], each["version"], "yes" if each["ready"] else "no", ", ".join(_names(each)) or "-")
        for each in found
    ]
    print(table(("PYTHON", "VERSION", "JUPYTER-EDT", "KERNELS"), rows))
    return 0


def _names(interpreter: dict[str, Any]) -> list[str]:
    return [str(kernel["display_name"]) for kernel in interpreter["kernels"]]
