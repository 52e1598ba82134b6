"""Hold the parts of a training: its data, its engine, and the files and connections around it."""

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
class TrainingParts:
    """Holds everything that one worker needs for one training.

    Attributes:
        training: from the payload. The engine uses its model and its optimizer.
        number: of the training within the job.
        payload: the file of the training, in case its initial state is needed again.
        warm_start: `.pth` file with the weights to start from, or `.ckpt` file with the state to go on from, None for
            those of the payload.
        export: folder for an ONNX file of the trained model, None for none.
        signature: file for what the trained model takes and returns, None for none.
        validation_pass: None unless the job is a validation.
    """

    training: Training
    number: int
    seed: int
    data: Data
    engine: UpdateEngine
    endpoint: Endpoint
    link: Link
    heartbeat: Heartbeat
    recorder: Recorder
    keeper: Keeper
    loggers: WorkerLoggers
    payload: Path
    warm_start: Path | None
    export: Path | None
    signature: Path | None
    validation_pass: ValidationPass | None
