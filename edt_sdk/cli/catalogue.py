"""`edt dataset add|list|show|delete` and `edt model add|list|show|update|train|delete`: what is kept under a name."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from typing import Any

from edt_sdk.cli.session import Run, Verbs, add_actions, add_options, add_verb, client, print_json, show, table
from edt_sdk.schemas.catalogue import ModelChange, ModelTraining, NewDataset, NewModel
from edt_sdk.schemas.errors import InvalidRequest
from edt_sdk.schemas.fields import given
from edt_sdk.schemas.job import JobSpec

_DATASET = ("path", "copy", "type", "description", "train", "test", "val")
_MODEL = ("main", "framework", "dataset", "max_workers", "description")
# What a training takes from its model, and from the settings of any job.
_OF_MODEL = ("framework", "dataset", "max_workers")
_OF_JOB = ("priority", "instance_group", "seed", "log", "warm_start", "project", "experiment")


def add(verbs: Verbs, common: argparse.ArgumentParser) -> None:
    """Add the verbs of this group."""
    actions = add_actions(verbs, "dataset", "Register, list and delete data sets.")
    adding = _named(actions, common, "add", _run_dataset_add, "Register a data set; prints its name.")
    adding.add_argument("source", metavar="SOURCE", nargs="?", help="a folder or file of this machine, which is sent")
    add_options(adding, NewDataset, *_DATASET)
    add_verb(actions, common, "list", _run_dataset_list, "List my data sets.", output="table")
    _named(actions, common, "show", _run_dataset_show, "Show a data set with its jobs and files.")
    _named(actions, common, "delete", _run_dataset_delete, "Remove a data set; a folder of the data folder stays.")

    actions = add_actions(verbs, "model", "Add, list, change, train and delete models.")
    adding = _named(actions, common, "add", _run_model_add, "Add a model; prints its name.")
    adding.usage = "edt model add NAME (SOURCE | --path P | --template T) [options] [-- ARG …]"
    says = "a folder, a .py file or an .ipynb file, which is sent"
    adding.add_argument("source", metavar="SOURCE", nargs="?", help=says)
    add_options(adding, NewModel, "path", "template", *_MODEL)
    adding.add_argument("--as-template", action="store_true", help="it is only the beginning of models")
    add_verb(actions, common, "list", _run_model_list, "List my models and templates.", output="table")
    _named(actions, common, "show", _run_model_show, "Show a model with its trainings and files.")
    changing = _named(actions, common, "update", _run_model_update, "Change a model, for trainings to come.")
    changing.usage = "edt model update NAME [options] [-- ARG …]"
    add_options(changing, ModelChange, *_MODEL)
    says = "Train a model. Prints the job's id, alone, on stdout."
    training = _named(actions, common, "train", _run_model_train, says)
    training.usage = "edt model train NAME [options] [-- ARG …]"
    add_options(training, ModelTraining, *_OF_MODEL)
    add_options(training, JobSpec, *_OF_JOB)
    training.add_argument("--job-name", metavar="NAME", help="what to call the job (default: the model's name)")
    for parser in (adding, changing, training):
        parser.add_argument(
            "--hyperparameter", action="append", default=[], metavar="K=V", dest="hyperparameters",
            help='such as epochs=3 or optimizer={"name": "SGD", "lr": 0.1}; repeatable',
        )  # fmt: skip
    deleting = _named(actions, common, "delete", _run_model_delete, "Remove a model; its trainings stay.")
    deleting.add_argument("--template", action="store_true", help="the template of that name")


def _named(actions: Verbs, common: argparse.ArgumentParser, name: str, run: Run, says: str) -> argparse.ArgumentParser:
    parser = add_verb(actions, common, name, run, says)
    parser.add_argument("name", metavar="NAME")
    return parser


def _run_dataset_add(arguments: argparse.Namespace) -> None:
    print(client(arguments).add_dataset(arguments.name, arguments.source, **given(arguments, _DATASET)).name)


def _run_dataset_list(arguments: argparse.Namespace) -> None:
    from edt_sdk.display.catalogue_view import DATASET_HEAD, dataset_cells

    found = client(arguments).datasets()
    show(arguments, {"datasets": list(found)}, table(DATASET_HEAD, [dataset_cells(item) for item in found]))


def _run_dataset_show(arguments: argparse.Namespace) -> None:
    print_json(client(arguments).dataset(arguments.name))


def _run_dataset_delete(arguments: argparse.Namespace) -> None:
    client(arguments).delete_dataset(arguments.name)
    print(arguments.name)


def _run_model_add(arguments: argparse.Namespace) -> None:
    made = client(arguments).add_model(
        arguments.name,
        arguments.source,
        path=arguments.path,
        template=arguments.template,
        kind="template" if arguments.as_template else "model",
        **_settings(arguments, _MODEL),
    )
    print(made.name)


def _run_model_list(arguments: argparse.Namespace) -> None:
    from edt_sdk.display.catalogue_view import MODEL_HEAD, model_cells

    found = client(arguments).models()
    show(arguments, {"models": list(found)}, table(MODEL_HEAD, [model_cells(item) for item in found]))


def _run_model_show(arguments: argparse.Namespace) -> None:
    print_json(client(arguments).model(arguments.name))


def _run_model_update(arguments: argparse.Namespace) -> None:
    print(client(arguments).update_model(arguments.name, **_settings(arguments, _MODEL)).name)


def _run_model_train(arguments: argparse.Namespace) -> None:
    settings = _settings(arguments, (*_OF_MODEL, *_OF_JOB, "job_name"))
    print(client(arguments).train_model(arguments.name, **settings).id)


def _run_model_delete(arguments: argparse.Namespace) -> None:
    client(arguments).delete_model(arguments.name, kind="template" if arguments.template else "model")
    print(arguments.name)


def _settings(arguments: argparse.Namespace, names: Sequence[str]) -> dict[str, Any]:
    """Return what was given of these settings, of the script's arguments and of the hyper-parameters."""
    found = given(arguments, names)
    if arguments.said_args:
        found["args"] = arguments.args
    # None keeps what there is, where {} would remove it.
    if arguments.hyperparameters:
        found["hyperparameters"] = _values(arguments.hyperparameters)
    return found


def _values(words: list[str]) -> dict[str, Any]:
    """K=V with V as JSON, a word that is none as itself."""
    values: dict[str, Any] = {}
    for word in words:
        key, equals, text = word.partition("=")
        if not equals:
            raise InvalidRequest(f"{word!r} is no K=V.", hint="Such as --hyperparameter epochs=3.")
        try:
            values[key] = json.loads(text)
        except ValueError:
            # Plain text needs no quotes, which a shell would remove anyway.
            values[key] = text
    return values
