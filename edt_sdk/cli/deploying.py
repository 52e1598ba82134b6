"""`edt deploy`, `edt deployment …`, `edt predict`: let versions of models answer requests."""

from __future__ import annotations

import argparse
import json
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edt_sdk.cli.session import Verbs, add_actions, add_options, add_verb, client, show
from edt_sdk.schemas.errors import InvalidRequest
from edt_sdk.schemas.fields import given
from edt_sdk.schemas.serving.deployments import DeploymentPatch, NewDeployment, NewKey, NewRevision

if TYPE_CHECKING:
    from edt_sdk.client import Deployment

_NEW = tuple(name for name in NewDeployment.__struct_fields__ if name != "version")
_PREVIEWED = ("replicas", "priority", "instance_group")
_REVISION = tuple(name for name in NewRevision.__struct_fields__ if name != "version")
_PATCH = DeploymentPatch.__struct_fields__
_VERSION = "digits/3, digits@champion, or digits for the newest"
_about = partial(add_verb, about=("name", "the deployment"))


def add(verbs: Verbs, common: argparse.ArgumentParser) -> None:
    """Add the verbs of this group."""
    says = "Let a version answer requests on slots like those of trainings. Prints the deployment's name."
    deploy = add_verb(verbs, common, "deploy", _run_deploy, says)
    deploy.add_argument("version", metavar="VERSION", help=_VERSION)
    add_options(deploy, NewDeployment, *_NEW)
    deploy.add_argument("--wait", action="store_true", help="wait until it answers")
    deploy.add_argument(
        "--dry-run", action="store_true", help="start nothing: say when it would answer, and on whose slots"
    )
    says = "Ask a deployment. Prints the answer as JSON."
    predict = add_verb(verbs, common, "predict", _run_predict, says)
    predict.add_argument("name", metavar="NAME", help="the deployment")
    predict.add_argument("file", metavar="FILE", help="inputs: a .npy file, or JSON, - for standard input")
    actions = add_actions(verbs, "deployment", "Look after deployments: list, show, update, keys, roll back and stop.")
    listing = add_verb(actions, common, "list", _run_list, "List my deployments.", output="table")
    listing.add_argument("--space", metavar="SPACE", help="only those of this space")
    _about(actions, common, "show", _run_show, "Show a deployment.", output="text")
    _about(actions, common, "revisions", _run_revisions, "Show what a deployment has served.")
    update = _about(actions, common, "update", _run_update, "Let another version take over, without a failed request.")
    update.add_argument("version", metavar="VERSION", help=_VERSION)
    add_options(update, NewRevision, *_REVISION)
    change = _about(actions, common, "change", _run_change, "Change settings of a deployment.")
    add_options(change, DeploymentPatch, *_PATCH)
    for verb, says in (
        ("promote", "Let the coming revision answer all callers."),
        ("abort", "Give the coming revision up."),
        ("rollback", "Give the coming revision up, or serve again what answered before."),
        ("stop", "Refuse requests from now on, and give up its slots."),
        ("start", "Serve again what it served last."),
    ):
        _about(actions, common, verb, _run_verb, says)
    _about(actions, common, "delete", _run_delete, "Remove a deployment; its replicas end.")
    key = _about(actions, common, "key", _run_key, "Make a key for callers. It is printed this once.")
    key.add_argument("key_name", metavar="WHO", help="who it is for, such as shop")
    add_options(key, NewKey, "days")
    revoke = _about(actions, common, "revoke", _run_revoke, "Refuse a key from now on.")
    revoke.add_argument("key", metavar="KEY", help="its id")


def _deployment(arguments: argparse.Namespace) -> Deployment:
    return client(arguments).deployment(arguments.name)


def _run_deploy(arguments: argparse.Namespace) -> None:
    if arguments.dry_run:
        print(client(arguments).preview_deployment(arguments.version, **given(arguments, _PREVIEWED)).text)
        return
    made = client(arguments).deploy(arguments.version, **given(arguments, _NEW))
    if arguments.wait:
        made.wait_ready()
    print(made.name)


def _run_predict(arguments: argparse.Namespace) -> None:
    answer = _deployment(arguments).predict(_read(arguments.file))
    print(json.dumps(answer.tolist() if hasattr(answer, "tolist") else answer))


def _read(file: str) -> Any:
    try:
        if file.endswith(".npy"):
            import numpy as np

            return np.load(file, allow_pickle=False)
        said = json.loads(sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8"))
    except OSError as wrong:
        raise InvalidRequest(f"{file} cannot be read: {wrong.strerror}.", field="file") from None
    except ValueError as wrong:
        raise InvalidRequest(
            f"{file} is no JSON and no array: {wrong}.", hint="Such as [[1.0, 2.0]], or a .npy file.", field="file"
        ) from None
    return said["inputs"] if isinstance(said, dict) and set(said) == {"inputs"} else said


def _run_list(arguments: argparse.Namespace) -> None:
    found = client(arguments).deployments(arguments.space)
    show(arguments, {"deployments": [each.view for each in found]}, found)


def _run_show(arguments: argparse.Namespace) -> None:
    found = _deployment(arguments)
    show(arguments, found.view, found)


def _run_revisions(arguments: argparse.Namespace) -> None:
    print(_deployment(arguments).revisions())


def _run_update(arguments: argparse.Namespace) -> None:
    print(_deployment(arguments).update(arguments.version, **given(arguments, _REVISION)).name)


def _run_change(arguments: argparse.Namespace) -> None:
    print(_deployment(arguments).change(**given(arguments, _PATCH)).name)


def _run_verb(arguments: argparse.Namespace) -> None:
    print(getattr(_deployment(arguments), arguments.action)().state.value)


def _run_delete(arguments: argparse.Namespace) -> None:
    found = _deployment(arguments)
    found.delete()
    print(found.name)


def _run_key(arguments: argparse.Namespace) -> None:
    print(_deployment(arguments).create_key(arguments.key_name, **given(arguments, ("days",))))


def _run_revoke(arguments: argparse.Namespace) -> None:
    _deployment(arguments).revoke_key(arguments.key)
