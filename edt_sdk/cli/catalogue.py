"""`edt dataset add|list|show|delete` and `edt model add|list|show|update|train|delete`: what is kept under a name."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from edt_sdk.cli.session import Verbs, add_verb, client, print_json, table
from edt_sdk.schemas.errors import InvalidRequest

_MODEL = ("main", "framework", "dataset", "max_workers", "description")


def add(verbs: Verbs, common: argparse.ArgumentParser) -> None:
    """Add the verbs of this group."""
    actions = _actions(verbs, "dataset", "Register, list and delete data sets.")
    _dataset_options(_named(actions, common, "add", run_dataset_add, "Register a data set; prints its name."))
    _listed(actions, common, run_dataset_list, "List my data sets.")
    _shown(actions, common, run_dataset_show, "Show a data set with its jobs and files.")
    _named(actions, common, "delete", run_dataset_delete, "Remove a data set; a folder of the data folder stays.")

    actions = _actions(verbs, "model", "Add, list, change, train and delete models.")
    adding = _named(actions, common, "add", run_model_add, "Add a model; prints its name.")
    adding.usage = "edt model add NAME (SOURCE | --path P | --template T) [options] [-- ARG …]"
    _model_options(adding)
    _listed(actions, common, run_model_list, "List my models and templates.")
    _shown(actions, common, run_model_show, "Show a model with its trainings and files.")
    changing = _named(actions, common, "update", run_model_update, "Change a model, for trainings to come.")
    changing.usage = "edt model update NAME [options] [-- ARG …]"
    _settings_of_a_model(changing)
    training = _named(
        actions, common, "train", run_model_train, "Train a model. Prints the job's id, alone, on stdout."
    )
    training.usage = "edt model train NAME [options] [-- ARG …]"
    _training_options(training)
    deleting = _named(actions, common, "delete", run_model_delete, "Remove a model; its trainings stay.")
    deleting.add_argument("--template", action="store_true", help="the template of that name")


def _actions(verbs: Verbs, noun: str, says: str) -> Verbs:
    return verbs.add_parser(noun, help=says, description=says).add_subparsers(
        dest="action", metavar="ACTION", required=True
    )


def _named(
    actions: Verbs,
    common: argparse.ArgumentParser,
    name: str,
    run: Callable[[argparse.Namespace], int],
    says: str,
) -> argparse.ArgumentParser:
    parser = add_verb(actions, common, name, run, says)
    parser.add_argument("name", metavar="NAME")
    return parser


def _listed(actions: Verbs, common: argparse.ArgumentParser, run: Callable[..., int], says: str) -> None:
    parser = add_verb(actions, common, "list", run, says)
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")


def _shown(actions: Verbs, common: argparse.ArgumentParser, run: Callable[..., int], says: str) -> None:
    _named(actions, common, "show", run, says)


def _dataset_options(parser: argparse.ArgumentParser) -> None:
    say: Callable[..., Any] = parser.add_argument
    say("source", metavar="SOURCE", nargs="?", help="a folder or file of this machine, which is sent")
    say("--path", metavar="P", help="in place of it a folder of the server's data folder")
    say("--copy", action="store_true", help="with --path: the server keeps a copy (default: used where it lies)")
    say("--type", default="Any", metavar="T", help="what it holds (default Any)")
    say("--description", default="", metavar="TEXT")
    for part in ("train", "test", "val"):
        say(f"--{part}", default="", metavar="DIR", help=f"its part for {part}, relative to its folder")


def _model_options(parser: argparse.ArgumentParser) -> None:
    say: Callable[..., Any] = parser.add_argument
    say("source", metavar="SOURCE", nargs="?", help="a folder, a .py file or an .ipynb file, which is sent")
    say("--path", metavar="P", help="in place of it a folder, script or archive of the server's data folder")
    say("--template", metavar="T", help="in place of it a template or model to begin with")
    say("--as-template", action="store_true", help="it is only the beginning of models")
    _settings_of_a_model(parser)


def _settings_of_a_model(parser: argparse.ArgumentParser) -> None:
    say: Callable[..., Any] = parser.add_argument
    say("--main", metavar="FILE", help="main script, relative to the folder")
    say("--framework", metavar="F", help="what runs it (of a new model edtPyTorch)")
    say("--dataset", metavar="NAME", help="the data set of trainings that name none; '' for none")
    say("--max-workers", type=int, metavar="N", help="most slots of trainings that do not say (of a new model 1)")
    say("--description", metavar="TEXT")
    _hyperparameters(parser)


def _training_options(parser: argparse.ArgumentParser) -> None:
    say: Callable[..., Any] = parser.add_argument
    say("--framework", metavar="F", help="the training engine (default: the model's)")
    say("--dataset", metavar="NAME", help="its data set (default: the model's); '' for none")
    say("--max-workers", type=int, metavar="N", help="most slots it may hold at once (default: the model's)")
    say("--job-name", metavar="NAME", help="what to call the job (default: the model's name)")
    say("--priority", type=int, default=5000, metavar="P", help="weight under fair share (default 5000)")
    say("--instance-group", default="", metavar="G", help="the queue (default: the server's first)")
    say("--seed", type=int, default=0, help="seed of the training (default 0)")
    say("--warm-start", metavar="ID", help="begin with the weights of another job")
    _hyperparameters(parser)


def _hyperparameters(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--hyperparameter", action="append", default=[], metavar="K=V", dest="hyperparameters",
        help='such as epochs=3 or optimizer={"name": "SGD", "lr": 0.1}; repeatable',
    )  # fmt: skip


def run_dataset_add(arguments: argparse.Namespace) -> int:
    """`edt dataset add`."""
    given = ("path", "copy", "type", "description", "train", "test", "val")
    made = client(arguments).add_dataset(
        arguments.name, arguments.source, **{name: getattr(arguments, name) for name in given}
    )
    print(made.name)
    return 0


def run_dataset_list(arguments: argparse.Namespace) -> int:
    """`edt dataset list`."""
    from edt_sdk.display.catalogue_view import DATASET_HEAD, dataset_cells

    found = client(arguments).datasets()
    if arguments.output == "json":
        print_json({"datasets": list(found)})
    else:
        print(table(DATASET_HEAD, [dataset_cells(item) for item in found]))
    return 0


def run_dataset_show(arguments: argparse.Namespace) -> int:
    """`edt dataset show`."""
    print_json(client(arguments).dataset(arguments.name))
    return 0


def run_dataset_delete(arguments: argparse.Namespace) -> int:
    """`edt dataset delete`."""
    client(arguments).delete_dataset(arguments.name)
    print(arguments.name)
    return 0


def run_model_add(arguments: argparse.Namespace) -> int:
    """`edt model add`."""
    made = client(arguments).add_model(
        arguments.name,
        arguments.source,
        path=arguments.path,
        template=arguments.template,
        args=arguments.args if arguments.said_args else None,
        # None takes the template's, where {} would remove them.
        hyperparameters=_values(arguments.hyperparameters) or None,
        kind="template" if arguments.as_template else "model",
        **{name: getattr(arguments, name) for name in _MODEL},
    )
    print(made.name)
    return 0


def run_model_list(arguments: argparse.Namespace) -> int:
    """`edt model list`."""
    from edt_sdk.display.catalogue_view import MODEL_HEAD, model_cells

    found = client(arguments).models()
    if arguments.output == "json":
        print_json({"models": list(found)})
    else:
        print(table(MODEL_HEAD, [model_cells(item) for item in found]))
    return 0


def run_model_show(arguments: argparse.Namespace) -> int:
    """`edt model show`."""
    print_json(client(arguments).model(arguments.name))
    return 0


def run_model_update(arguments: argparse.Namespace) -> int:
    """`edt model update`."""
    said = {
        "args": arguments.args if arguments.said_args else None,
        "hyperparameters": _values(arguments.hyperparameters) or None,
        **{name: getattr(arguments, name) for name in _MODEL},
    }
    changed = client(arguments).update_model(
        arguments.name, **{name: value for name, value in said.items() if value is not None}
    )
    print(changed.name)
    return 0


def run_model_train(arguments: argparse.Namespace) -> int:
    """`edt model train`."""
    given = ("framework", "dataset", "max_workers", "job_name", "priority", "instance_group", "seed", "warm_start")
    job = client(arguments).train_model(
        arguments.name,
        args=arguments.args if arguments.said_args else None,
        hyperparameters=_values(arguments.hyperparameters),
        **{name: getattr(arguments, name) for name in given},
    )
    print(job.id)
    return 0


def run_model_delete(arguments: argparse.Namespace) -> int:
    """`edt model delete`."""
    client(arguments).delete_model(arguments.name, kind="template" if arguments.template else "model")
    print(arguments.name)
    return 0


def _values(words: list[str]) -> dict[str, Any]:
    """K=V with V as JSON, a word that is none as itself."""
    import json

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
