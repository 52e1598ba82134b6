"""`edt version register|list|show|…`: keep the weights and the code of trainings under a name and a number."""

from __future__ import annotations

import argparse
import json
from functools import partial
from typing import TYPE_CHECKING

from edt_sdk.cli.session import Verbs, add_actions, add_options, add_verb, client, show
from edt_sdk.schemas.errors import NotFound
from edt_sdk.schemas.fields import given
from edt_sdk.schemas.serving.versions import NewVersion, VersionPatch

if TYPE_CHECKING:
    from edt_sdk.client import Version

_NEW = ("epoch", "description", "tags", "alias")
_about = partial(add_verb, about=("version", "digits/3, digits@champion, or digits for the newest"))


def add(verbs: Verbs, common: argparse.ArgumentParser) -> None:
    """Add the verbs of this group."""
    actions = add_actions(verbs, "version", "Keep versions of models: register, list, show, name and train them again.")
    says = "Keep what a job has trained as the next version of a name. Prints the version."
    meant = "the job, or a folder with code that answers requests, such as ./mine"
    register = add_verb(actions, common, "register", _run_register, says, job=meant)
    register.add_argument("name", metavar="NAME")
    add_options(register, NewVersion, *_NEW)
    listing = add_verb(actions, common, "list", _run_list, "List my versions, the newest first.", output="table")
    listing.add_argument("name", metavar="NAME", nargs="?", help="only those of this name")
    _about(actions, common, "show", _run_show, "Show a version and what it came from.", output="text")
    update = _about(actions, common, "update", _run_update, "Change what is said about a version.")
    add_options(update, VersionPatch, *VersionPatch.__struct_fields__)
    alias = _about(actions, common, "alias", _run_alias, "Let an alias mean a version from now on.")
    alias.add_argument("alias", metavar="ALIAS", help="such as champion, for digits@champion")
    alias.add_argument("--remove", action="store_true", help="take the alias away from the version")
    download = _about(actions, common, "download", _run_download, "Fetch the weights and the code of a version.")
    download.add_argument("-d", "--directory", default=".", metavar="DIR", help="where to (default: here)")
    says = "Print the inputs of a request to a deployment of a version, for edt predict."
    _about(actions, common, "example", _run_example, says)
    says = "Train a version again. Prints the job's id; with --wait whether the weights are equal, exit code 1 if not."
    again = _about(actions, common, "reproduce", _run_reproduce, says)
    again.add_argument("--wait", action="store_true", help="wait for its end, and compare the weights")
    says = "Compare what a job has trained with a version, exit code 1 if the weights differ."
    compare = _about(actions, common, "compare", _run_compare, says, output="text")
    compare.add_argument("job", metavar="JOB", help="the job")
    _about(actions, common, "delete", _run_delete, "Remove a version with its files; its number is not used again.")


def _version(arguments: argparse.Namespace) -> Version:
    return client(arguments).version(arguments.version)


def _run_register(arguments: argparse.Namespace) -> None:
    print(client(arguments).register(arguments.id, arguments.name, **given(arguments, _NEW)).view.id)


def _run_list(arguments: argparse.Namespace) -> None:
    found = client(arguments).versions(arguments.name)
    show(arguments, {"versions": [each.view for each in found]}, found)


def _run_show(arguments: argparse.Namespace) -> None:
    found = _version(arguments)
    show(arguments, found.view, found)


def _run_update(arguments: argparse.Namespace) -> None:
    print(_version(arguments).update(**given(arguments, VersionPatch.__struct_fields__)).view.id)


def _run_alias(arguments: argparse.Namespace) -> None:
    found = _version(arguments)
    print((found.remove_alias if arguments.remove else found.alias)(arguments.alias).view.id)


def _run_download(arguments: argparse.Namespace) -> None:
    print(_version(arguments).download(arguments.directory))


def _run_example(arguments: argparse.Namespace) -> None:
    found = _version(arguments)
    if (inputs := found.example()) is None:
        raise NotFound(f"No example of {found.view.id} is known.", hint="Only trainings of edtPyTorch write some.")
    print(json.dumps(inputs))


def _run_reproduce(arguments: argparse.Namespace) -> None:
    again = _version(arguments).reproduce()
    if not arguments.wait:
        print(again.job.id)
        return
    print(again.wait())
    if not again.equal:
        raise SystemExit(1)


def _run_compare(arguments: argparse.Namespace) -> None:
    found = _version(arguments).compare(client(arguments).job(arguments.job))
    differ = f" What differs: {', '.join(found.differences)}." if found.differences else ""
    show(arguments, found, f"The weights are equal.{differ}" if found.equal else f"Other weights.{differ}")
    if not found.equal:
        raise SystemExit(1)


def _run_delete(arguments: argparse.Namespace) -> None:
    found = _version(arguments)
    found.delete()
    print(found.view.id)
