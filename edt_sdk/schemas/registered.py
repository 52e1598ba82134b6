"""Keep what a job uses of the catalogue, what it validates or serves, and what a WMLA client asked, as submitted.

Only the server writes it. What a client sends here is discarded. A data set or model that gets the same name later is
a different one and does not affect the job.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec

from edt_sdk.schemas.validation import Validates

# The file of a package whose class `Predictor` answers in place of the trained model.
PREDICTOR = "predictor.py"
# The description of a package of WMLA's inference, which names the program that answers.
DESCRIPTION = "model.json"
# The description of a folder of MLflow, and the ending of a model's file.
MLMODEL = "MLmodel"
ONNX = ".onnx"


class Runtime(StrEnum):
    """The ways to turn a version into answers.

    Attributes:
        SCRIPT: the training's own script runs up to its `train()`, where the model loads the weights and answers.
        PREDICTOR: the class `Predictor` in the package's `predictor.py` answers.
        KERNEL: the program that the package's `model.json` names answers, as a kernel of WMLA's inference.
        MLFLOW: the model in the package's folder of MLflow answers.
        ONNX: the model in an ONNX file of the package answers.
    """

    SCRIPT = "script"
    PREDICTOR = "predictor"
    KERNEL = "kernel"
    MLFLOW = "mlflow"
    ONNX = "onnx"


class Serves(msgspec.Struct, frozen=True, kw_only=True):
    """What a job of the framework `serve` serves.

    Attributes:
        deployment: the name that it is served under.
        revision: which one of that deployment, from 1.
        version: name and number of the version, such as digits/3.
        sha256: of the file of weights, which is checked before they are loaded, empty for none.
        runtime: how the version becomes answers.
        calls: which of the script's `train()` calls made the weights, from 1.
        max_batch: most rows that a replica computes at once.
        exact: every batch has `max_batch` rows, some of them zeros, so that the bits of an answer do not depend on the
            load.
        deadline: seconds that a request may take.
        least: replicas that it keeps also without requests. 0 lets it give up its last slot.
    """

    deployment: str
    revision: int
    version: str
    sha256: str
    runtime: Runtime = Runtime.SCRIPT
    calls: int = 1
    max_batch: int = 32
    exact: bool = False
    deadline: float = 30.0
    least: int = 1


class Registered(msgspec.Struct, frozen=True, kw_only=True):
    """Ids and settings of catalogue entries.

    Attributes:
        model: id of the model it trains, "" for none. `model_name` is the model's name.
        dataset: id of the data set, "" for none.
        copied: the data set's files are the catalogue's copy, which the job needs until it has ended.
        train, test, val: parts of the data set, relative to its folder, "" for the whole set.
        hyperparameters: what `pth_parameter_mgr` finds. None for a job without.
        console: the script takes `--train_dir` and `--weights`, as models of WMLA's console do.
        weights: it starts with weights in its folder: the model's own, or those to validate.
        validates: the training it validates, None for a training.
        serves: what it serves, None for a training.
    """

    model: str = ""
    model_name: str = ""
    dataset: str = ""
    copied: bool = False
    train: str = ""
    test: str = ""
    val: str = ""
    hyperparameters: dict[str, Any] | None = None
    console: bool = False
    weights: bool = False
    validates: Validates | None = None
    serves: Serves | None = None


class WmlaRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The WMLA part of a job: kept and shown to WMLA's clients, without a meaning for the job itself.

    Attributes:
        args: the `args` of the request, decoded, as they came.
        app_name: `--appName`, "" for the framework's own.
        sig_name: the instance group as the request named it, "" when it named none.
        consumer: the resource plan's path, "" for none.
        remarks: what was requested without a meaning here, one sentence each, for the job's story.
    """

    args: str = ""
    app_name: str = ""
    sig_name: str = ""
    consumer: str = ""
    remarks: tuple[str, ...] = ()
