"""Make a job from a model and the settings of a training. Pure.

Settings of the training override those of the model. A job has its own copy of everything, so later changes of the
model do not affect it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edt_sdk.schemas.catalogue import ModelTraining
from edt_sdk.schemas.frameworks import Framework
from edt_sdk.schemas.job import JobSpec
from edt_sdk.schemas.registered import Registered
from edt_sdk.schemas.wire.paths import JobPaths
from edt_server.catalogue.records import model_record
from edt_server.store import CatalogueRow

PARAMETERS = "pth_parameters.json"
WEIGHTS_DIR = "weights"
# Of torch, where a model that gets an argument of one names none.
_CLASSES = {"optimizer": "SGD", "learning_rate": "StepLR"}
TRAIN_DIR, WEIGHTS = "--train_dir", "--weights"


def job_of(row: CatalogueRow, wanted: ModelTraining) -> tuple[JobSpec, Registered]:
    """Return the job, not checked against the server, and what it uses of the catalogue apart from a data set."""
    model = model_record(row)
    framework = Framework(wanted.framework or model.framework)
    spec = JobSpec(
        name=wanted.name or row.name,
        main=model.main,
        framework=framework.value,
        max_workers=wanted.max_workers or model.max_workers,
        args=model.args if wanted.args is None else wanted.args,
        env=wanted.env,
        priority=wanted.priority,
        instance_group=wanted.instance_group,
        mode=wanted.mode,
        seed=wanted.seed,
        log=wanted.log,
        dataset=model.dataset if wanted.dataset is None else wanted.dataset,
        warm_start=wanted.warm_start,
        project=wanted.project,
        experiment=wanted.experiment,
    )
    hyperparameters = {**model.hyperparameters, **(wanted.hyperparameters or {})}
    registered = Registered(
        model=row.id,
        model_name=row.name,
        hyperparameters=hyperparameters,
        console=model.console,
        # The weights of one training win over those of its model.
        weights=model.weights and not wanted.warm_start,
    )
    return spec, registered


def parameters(used: Registered | None, folder: str) -> dict[str, Any] | None:
    """Return the content of RESULT_DIR's pth_parameters.json, None for no such file. `folder` is its DATA_DIR."""
    if used is None:
        return None
    base = folder.rstrip("/")
    parts = {"train_data": used.train, "test_data": used.test, "val_data": used.val}
    data = {key: f"{base}/{part}" for key, part in parts.items() if part and folder}
    if used.hyperparameters is None and not data:
        return None
    return {**data, **(used.hyperparameters or {})}


def with_values(hyperparameters: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return hyper-parameters with the values of a trial, of which `optimizer.lr` is the `lr` in the `optimizer`."""
    found = dict(hyperparameters)
    for name, value in values.items():
        group, dot, key = name.partition(".")
        if dot and group in _CLASSES:
            found[group] = {"name": _CLASSES[group], **(found.get(group) or {}), key: value}
        elif name in ("epochs", "train_batch_size"):
            found[name] = value
    return found


def console_arguments(spec: JobSpec, paths: JobPaths, warm_start: str) -> tuple[str, ...]:
    """Return the script's arguments, with those that a script of WMLA's console gets in addition.

    Its parameters lie in the parent of `--train_dir`, and `--weights` is a folder with a state dict.
    """
    used = spec.registered
    if used is None or not used.console:
        return spec.args
    said = {word.partition("=")[0] for word in spec.args}
    # At launch and not in the job's own arguments: a clone has other folders (docs/decisions/026).
    more = () if TRAIN_DIR in said else (TRAIN_DIR, str(paths.model_dir))
    # In a validation the engine itself loads them.
    if warm_start and WEIGHTS not in said and used.validates is None:
        more = (*more, WEIGHTS, str(paths.result_dir / WEIGHTS_DIR))
    return (*spec.args, *more)
