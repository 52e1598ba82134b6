"""The verbs about the machine as a whole: timeline, cluster, interpreters."""

from __future__ import annotations

import argparse
import shutil
import sys

from edt_sdk.cli.session import Verbs, add_verb, client, show, table
from edt_sdk.display.cluster_view import cluster_text


def add(verbs: Verbs, common: argparse.ArgumentParser) -> None:
    """Add the verbs of this group."""
    says = "Show which job held how many slots when, and why."
    timeline = add_verb(verbs, common, "timeline", _run_timeline, says, output="text")
    timeline.add_argument("id", metavar="ID", nargs="?", help="one job and its neighbours (default: everything)")
    timeline.add_argument("--since", metavar="T", help="only since then: 2h (ago), 14:30, 2026-05-01T14:30, or seconds")
    timeline.add_argument("--until", metavar="T", help="only until then")
    timeline.add_argument("--settled", action="store_true", help="leave out slots on their way between jobs")
    says = "Show the slots, who has them, and how the groups share."
    add_verb(verbs, common, "cluster", _run_cluster, says, output="text")
    says = "List the Pythons that a job may run in (`edt submit --python`), the server's own first."
    add_verb(verbs, common, "interpreters", _run_interpreters, says, output="text")


def _run_timeline(arguments: argparse.Namespace) -> None:
    server = client(arguments)
    asked = server.job(arguments.id) if arguments.id else server
    found = asked.timeline(since=arguments.since, until=arguments.until)
    told = {name: getattr(found, name) for name in ("capacity", "rows", "names", "total", "thinned")}
    show(arguments, told, found.table(settled_only=arguments.settled))
    if found.thinned and arguments.output == "text":
        changes = f"{len(found.rows)} of {found.total} changes"
        print(f"({changes}; --since and --until show all of a window)", file=sys.stderr)


def _run_cluster(arguments: argparse.Namespace) -> None:
    found = client(arguments).cluster()
    show(arguments, found, cluster_text(found, width=shutil.get_terminal_size((110, 24)).columns))


def _run_interpreters(arguments: argparse.Namespace) -> None:
    found = client(arguments).interpreters()
    rows = []
    for each in found:
        kernels = ", ".join(kernel["display_name"] for kernel in each["kernels"])
        rows.append((each["python"], each["version"], "yes" if each["ready"] else "no", kernels or "-"))
    text = table(("PYTHON", "VERSION", "JUPYTER-EDT", "KERNELS"), rows)
    show(arguments, {"interpreters": found}, text)
