"""`edt search start|list|show|…`: start, watch, change, repeat and end searches for hyper-parameters."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from edt_sdk.cli.session import Run, Verbs, add_actions, add_options, add_verb, client, show, writing
from edt_sdk.formatting.tables import text_table
from edt_sdk.pictures.parts.look import THEMES
from edt_sdk.schemas.fields import given
from edt_sdk.schemas.job import SCHEDULED, JobPatch, JobSpec
from edt_sdk.schemas.search.space import parse_space
from edt_sdk.schemas.search.spec import ASKED_OF_SEARCH, ASKED_OF_TRIALS, SearchPatch, SearchSpec
from edt_sdk.torchrun.command_line.submission import asked

if TYPE_CHECKING:
    from edt_sdk.client import Search
_about = partial(add_verb, job="the search, by its name or id")


def add(verbs: Verbs, common: argparse.ArgumentParser) -> None:
    """Add the verbs of this group."""
    actions = add_actions(verbs, "search", "Search for hyper-parameters: start, list, show, change and end searches.")
    says = "Start a search. Prints its id, alone, on stdout. In the script's arguments {lr} is the trial's value of lr."
    start = add_verb(actions, common, "start", _run_start, says)
    start.usage = "edt search start SOURCE --metric NAME --space TEXT [options] [-- ARG …]"
    start.add_argument("source", metavar="SOURCE", nargs="?", help="a folder, a .py file or an .ipynb file")
    start.add_argument("--main", metavar="FILE", help="main script, relative to the folder")
    start.add_argument("--tag", metavar="TAG", help="of a notebook only the cells with this tag (default: all)")
    start.add_argument("--metric", metavar="NAME", required=True, help="the metric that is compared")
    start.add_argument(
        "--space", metavar="TEXT", default="", help='such as "lr=log(1e-4,1e-1) width=32|64|128 depth=integer(1,6)"'
    )
    add_options(start, SearchSpec, *ASKED_OF_SEARCH)
    add_options(start, JobSpec, *ASKED_OF_TRIALS)
    start.add_argument(
        "--dry-run", action="store_true", help="start nothing: say how much it would train, and when it would begin"
    )
    start.add_argument("--wait", action="store_true", help="wait for its end; exit code 1 if it fails")
    listing = add_verb(actions, common, "list", _run_list, "List my searches, newest first.", output="table")
    listing.add_argument("--state", help="only searches in this state, such as running")
    listing.add_argument("--limit", type=int, metavar="N", help="the newest N only (default: 100)")
    _about(actions, common, "show", _run_show, "Show how far a search is.", output="text")
    _about(actions, common, "trials", _run_trials, "List the trials of a search.", output="table")
    _about(actions, common, "best", _run_best, "Show the best trial of a search.", output="text")
    _about(actions, common, "decisions", _run_decisions, "Show what a search decided, and why.", output="text")
    says = "Show how much of the metric each hyper-parameter decides."
    _about(actions, common, "importance", _run_importance, says, output="text")
    picture = _about(actions, common, "picture", _run_picture, "Say what a picture of a search shows, or write it.")
    picture.add_argument(
        "picture", nargs="?", default="history", help="history (the default), parallel, rungs or slots"
    )
    picture.add_argument("--output", "-o", metavar="FILE", help="write the SVG there")
    picture.add_argument("--theme", choices=THEMES, help="default: auto, legible on white and on black")
    export = _about(actions, common, "export", _run_export, "Write a search as a study for optuna-dashboard.")
    export.add_argument("file", metavar="FILE", help="a journal file of Optuna, to which the study is added")
    points = _about(actions, common, "add", _run_add, "Let a search try these values next.")
    points.add_argument("values", metavar="NAME=VALUE", nargs="+", help="a value of each parameter, such as lr=0.01")
    update = _about(actions, common, "update", _run_update, "Change the settings of a search.")
    add_options(update, SearchPatch, *SearchPatch.__struct_fields__, unset=True)
    says = "Show who would hold how many slots if the settings of a search were others. Changes nothing."
    what_if = _about(actions, common, "what-if", _run_what_if, says, output="text")
    add_options(what_if, JobPatch, *SCHEDULED, unset=True)
    _about(actions, common, "pause", _run(lambda found: found.pause()), "Let a search start nothing new.")
    _about(actions, common, "resume", _run(lambda found: found.resume()), "Let a paused or stopped search go on.")
    _about(actions, common, "stop", _run(lambda found: found.stop()), "Stop a search and what it trains.")
    again = _about(actions, common, "again", _run_again, "Start a search once more. Prints the new id.")
    again.add_argument("--name", default="", help="of the new search (default: the old name with the next number)")
    again.add_argument("--seed", type=int, metavar="N", help="another seed draws other values (default: the same)")
    _about(actions, common, "replay", _run_replay, "Decide a search again from its reports; exit code 1 if it differs.")
    delete = _about(actions, common, "delete", _run_delete, "Remove an ended search; its jobs stay.")
    delete.add_argument("--jobs", action="store_true", help="remove the jobs of its trials too")


def _search(arguments: argparse.Namespace) -> Search:
    return client(arguments).search_named(arguments.id)


def _run_start(arguments: argparse.Namespace) -> None:
    settings = {"tag": arguments.tag, **given(arguments, (*ASKED_OF_SEARCH, *ASKED_OF_TRIALS)), **asked(arguments)}
    settings |= {"metric": arguments.metric, "space": arguments.space}
    if arguments.dry_run:
        print(client(arguments).preview_search(**settings))
        return
    started = client(arguments).search(**settings)
    print(started.id, flush=True)
    if arguments.wait:
        started.wait()  # JobFailed has its own exit code


def _run_list(arguments: argparse.Namespace) -> None:
    found = client(arguments).searches(state=arguments.state, limit=arguments.limit)
    show(arguments, {"searches": [each.view for each in found]}, found)


def _run_show(arguments: argparse.Namespace) -> None:
    found = _search(arguments)
    show(arguments, found.view, found)


def _run_trials(arguments: argparse.Namespace) -> None:
    found = _search(arguments).trials
    show(arguments, {"trials": [each.view for each in found]}, found)


def _run_best(arguments: argparse.Namespace) -> None:
    best = _search(arguments).best
    show(arguments, best and best.view, best or "No trial has a value yet.")


def _run_decisions(arguments: argparse.Namespace) -> None:
    found = _search(arguments).decisions()
    show(arguments, {"decisions": found}, found)


def _run_importance(arguments: argparse.Namespace) -> None:
    found = _search(arguments).importance()
    rows = [(name, f"{100 * part:.1f} %") for name, part in found.items()]
    show(arguments, found, text_table(("PARAMETER", "IMPORTANCE"), rows))


def _run_picture(arguments: argparse.Namespace) -> None:
    found = _search(arguments).picture(arguments.picture, **given(arguments, ("theme",)))
    if arguments.output:
        with writing(arguments.output):
            found.save(arguments.output)
    print(found.says)


def _run_export(arguments: argparse.Namespace) -> None:
    found = _search(arguments)
    with writing(arguments.file):
        found.export(arguments.file)
    print(arguments.file)


def _run_add(arguments: argparse.Namespace) -> None:
    # A value alone is a choice of one.
    point = {name: each.at(0) for name, each in parse_space(" ".join(arguments.values)).items()}
    print(_search(arguments).add(point))


def _run_update(arguments: argparse.Namespace) -> None:
    print(_search(arguments).update(**given(arguments, SearchPatch.__struct_fields__)))


def _run_what_if(arguments: argparse.Namespace) -> None:
    answer = _search(arguments).what_if(**given(arguments, SCHEDULED))
    show(arguments, answer, answer)


def _run(change: Callable[[Search], Search]) -> Run:
    return lambda arguments: print(change(_search(arguments)))


def _run_again(arguments: argparse.Namespace) -> None:
    print(_search(arguments).again(name=arguments.name, seed=arguments.seed).id)


def _run_replay(arguments: argparse.Namespace) -> None:
    difference = _search(arguments).replay()
    print(difference or "Every decision follows from the reports.")
    if difference:
        raise SystemExit(1)


def _run_delete(arguments: argparse.Namespace) -> None:
    found = _search(arguments)
    found.delete(jobs=arguments.jobs)
    print(found.id)
