"""The verbs that list jobs and change them: list, get, update, stop, suspend, resume, delete."""

from __future__ import annotations

import argparse
import math
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from edt_sdk.cli.session import Verbs, add_options, add_verb, client, job, print_json, searches, show
from edt_sdk.display.jobs_text import LISTED, changes_text, jobs_text, sheet
from edt_sdk.schemas.errors import EdtError, InvalidRequest
from edt_sdk.schemas.fields import given
from edt_sdk.schemas.job import SCHEDULED, JobPatch, JobResume, JobSettings, JobState, JobView
from edt_sdk.schemas.search.views import SearchState, SearchView

if TYPE_CHECKING:
    from edt_sdk.client import Client

# Searches in one answer at most.
_MOST_SEARCHES = 1000
_LABELS = ("tag", "project", "experiment")
_WHAT_IF = "Tell who would hold how many slots, and when the job would end, with other settings. Nothing is changed."


def add(verbs: Verbs, common: argparse.ArgumentParser) -> None:
    """Add the verbs of this group."""
    listing = add_verb(verbs, common, "list", _run_list, "List jobs and searches, newest first.", output="table")
    whose = listing.add_mutually_exclusive_group()
    whose.add_argument("--all", action="store_true", help="other users' jobs as well")
    whose.add_argument("--mine", action="store_true", help="only my jobs (the default)")
    listing.add_argument("--state", help="only jobs in this state, such as running or failed")
    listing.add_argument("--tag", help="only jobs with this tag")
    listing.add_argument("--project", metavar="NAME", help="only my jobs in this project")
    listing.add_argument("--experiment", metavar="NAME", help="only my jobs in an experiment of this name")
    listing.add_argument("--trials", action="store_true", help="the trials of searches as jobs, and no searches")
    listing.add_argument("--limit", type=int, metavar="N", help="the newest N jobs only (default: 1000)")
    listing.add_argument("--before", metavar="ID", help="only jobs older than this one")
    add_verb(verbs, common, "get", _run_get, "Show all about a job.", job="the job", output="text")
    update = add_verb(verbs, common, "update", _run_update, "Change the settings of a job.", job="the job")
    what_if = add_verb(verbs, common, "what-if", _run_what_if, _WHAT_IF, job="the job", output="text")
    add_options(update, JobPatch, *JobPatch.__struct_fields__, unset=True)
    add_options(what_if, JobPatch, *SCHEDULED, unset=True)
    stop = add_verb(verbs, common, "stop", _run_stop, "End jobs; logs and checkpoints stay.")
    stop.add_argument("ids", metavar="ID", nargs="*")
    stop.add_argument("--all", action="store_true", help="all of mine")
    add_verb(verbs, common, "suspend", _run_suspend, "Checkpoint a job and give its slots back.", job="the job")
    resume = add_verb(
        verbs, common, "resume", _run_resume, "Let a suspended, stopped or failed job go on.", job="the job"
    )
    add_options(resume, JobResume, *JobResume.__struct_fields__)
    delete = add_verb(verbs, common, "delete", _run_delete, "Remove jobs with their logs and results.")
    delete.add_argument("ids", metavar="ID", nargs="+")


def _run_list(arguments: argparse.Namespace) -> None:
    from edt_sdk.http.discovery import chosen_among

    server = client(arguments)
    found = server.jobs(**given(arguments, ("all", "state", *_LABELS, "trials", "limit", "before")))
    views = [each.view for each in found]
    if arguments.output == "json":
        print_json({"jobs": views})
        return
    rows: list[JobView | SearchView] = [*views]
    if not arguments.trials:
        rows += _searches(server, arguments, since=views[-1].created if found.more else 0)
    rows.sort(key=lambda view: -view.created)
    if said := chosen_among(server.server):
        print(f"edt: {said}", file=sys.stderr)
    if not rows:
        print("No jobs. Submit one: edt submit FOLDER --main train.py --max-workers 4", file=sys.stderr)
        return
    # A pipe gets every column, and the same ones always, for programs that read them.
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    print(jobs_text(rows, LISTED, time.time(), width=width))
    if found.more:
        next_page = f"`edt list --before {views[-1].id}` lists those that come next"
        print(
            f"There are older jobs than these {len(views):,}: {next_page}, --limit 10000 more at once.", file=sys.stderr
        )


def _searches(server: Client, arguments: argparse.Namespace, *, since: float) -> list[SearchView]:
    """Return the searches that the options choose, as far back as the page of jobs goes."""
    word = (arguments.state or "").upper()
    state = JobState[word].shown if word in JobState.__members__ else word
    if state and state not in SearchState.__members__:
        return []
    views = searches(server, state=state or None, limit=_MOST_SEARCHES)
    until = server.job(arguments.before).view.created if arguments.before else math.inf
    wanted = given(arguments, _LABELS)
    return [view for view in views if since <= view.created < until and _is_labelled(view.spec.job, **wanted)]


def _is_labelled(of: JobSettings, *, tag: str = "", project: str = "", experiment: str = "") -> bool:
    return (not tag or tag in of.tags) and project in ("", of.project) and experiment in ("", of.experiment)


def _run_get(arguments: argparse.Namespace) -> None:
    found = job(arguments)
    if arguments.output == "json":
        print_json(found.view)
        return
    width = shutil.get_terminal_size((100, 24)).columns
    workers = [] if found.view.state.final else _known(found.workers)
    print(sheet(found.view, time.time(), workers=workers, checkpoints=_known(found.checkpoints), width=width))


def _known(ask: Callable[[], Sequence[Mapping[str, Any]]]) -> Sequence[Mapping[str, Any]]:
    """Return the answer, and nothing where the server has none: a sheet is useful without it."""
    try:
        return ask()
    except EdtError:
        return []


def _run_update(arguments: argparse.Namespace) -> None:
    found = job(arguments)
    before = found.view
    found.update(**given(arguments, JobPatch.__struct_fields__))
    print(f"Changed: {changes_text(before, found.view)}.", found, sep="\n")


def _run_what_if(arguments: argparse.Namespace) -> None:
    answer = job(arguments).what_if(**given(arguments, SCHEDULED))
    show(arguments, answer, answer)


def _run_stop(arguments: argparse.Namespace) -> None:
    # Exactly one of both: a plain `edt stop` must not end every job.
    if arguments.all == bool(arguments.ids):
        raise InvalidRequest("Name the jobs to stop, or say --all.")
    server = client(arguments)
    # All names first: one that is wrong or not clear must not leave half of the jobs stopped.
    jobs = [server.job(name) for name in arguments.ids]
    for name in server.stop_all() if arguments.all else [each.stop().id for each in jobs]:
        print(name)


def _run_suspend(arguments: argparse.Namespace) -> None:
    print(job(arguments).suspend())


def _run_resume(arguments: argparse.Namespace) -> None:
    print(job(arguments).resume(arguments.checkpoint, instance_group=arguments.instance_group))


def _run_delete(arguments: argparse.Namespace) -> None:
    server = client(arguments)
    for found in [server.job(name) for name in arguments.ids]:
        found.delete()
        print(found.id)
