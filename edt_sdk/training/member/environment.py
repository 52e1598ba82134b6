"""Hold the parts of a training: its data, and the files and connections around it. Nothing is decided here."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from edt_sdk.training.checkpoints.rolling import Keeper
from edt_sdk.training.member.heartbeat import Heartbeat
from edt_sdk.training.member.link import Link
from edt_sdk.training.member.membership import Endpoint
from edt_sdk.training.records.recorder import Recorder
from edt_sdk.training.sampling.order import Order, TestOrder
from edt_sdk.training.update.loader import ShardLoader
from edt_sdk.training.update.update import UpdateEngine
from edt_sdk.training.user.logging_hooks import WorkerLoggers
from edt_sdk.training.user.payload import Training
from edt_sdk.training.validation.step import ValidationPass


@dataclass(frozen=True, slots=True)
class Data:
    """Holds the samples and their order. The test order has no steps when there are no test data."""

    order: Order
    test_order: TestOrder
    loader: ShardLoader


@dataclass(frozen=True, slots=True)
class Environment:
    """Holds what a training reads from and writes to.

    Attributes:
        number: of the training within the job.
        payload: the file of the training, in case its initial state is needed again.
        warm_start: `.pth` file with the weights to start from, None for the payload's.
        export: folder for an ONNX file of the trained model, None for none.
    """

    number: int
    link: Link
    recorder: Recorder
    keeper: Keeper
    loggers: WorkerLoggers
    payload: Path
    warm_start: Path | None
    export: Path | None = None


@dataclass(frozen=True, slots=True)
class TrainingParts:
    """Holds everything that one worker needs for one training.

    The engine uses the model and the optimizer of `training`. `validation_pass` is None unless the job is a validation.
    """

    training: Training
    seed: int
    data: Data
    engine: UpdateEngine
    endpoint: Endpoint
    environment: Environment
    heartbeat: Heartbeat
    validation_pass: ValidationPass | None = None
