"""What a training is given: its parts, its data, and the files and connections that lie outside it. Decides nothing."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from edt_sdk.training.checkpoints.rolling import Keeper
from edt_sdk.training.member.heartbeat import Heartbeat
from edt_sdk.training.member.link import Link
from edt_sdk.training.member.membership import Place
from edt_sdk.training.records.recorder import Recorder
from edt_sdk.training.sampling.order import Order, TestOrder
from edt_sdk.training.update.loader import ShardLoader
from edt_sdk.training.update.update import UpdateEngine
from edt_sdk.training.user.logging_hooks import WorkerLoggers
from edt_sdk.training.user.payload import Training
from edt_sdk.training.validation.step import Examination


@dataclass(frozen=True, slots=True)
class Data:
    """Samples and their order; the test order has no steps when there is nothing to validate with."""

    order: Order
    test_order: TestOrder
    loader: ShardLoader


@dataclass(frozen=True, slots=True)
class Outside:
    """What a training reads from and writes to.

    Attributes:
        number: of the training within the job.
        payload: the file of the training, should its initial state be needed once more.
        warm_start: `.pth` file with the weights to begin with, None for the payload's.
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
class Given:
    """All that one worker's part in one training is made of.

    Attributes:
        training: from the payload; its model and optimizer are those of the engine.
        seed: the job's.
        data: what is trained on.
        engine: computes and commits.
        place: of this worker.
        outside: what it reads from and writes to.
        heartbeat: around the loader of `data`.
        examination: what is looked at in a validation, None for a training.
    """

    training: Training
    seed: int
    data: Data
    engine: UpdateEngine
    place: Place
    outside: Outside
    heartbeat: Heartbeat
    examination: Examination | None = None
