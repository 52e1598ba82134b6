"""What a training is given: its data, and the files and connections that lie outside it. Decides nothing."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from edt_sdk.training.link import Link
from edt_sdk.training.loader import ShardLoader
from edt_sdk.training.logging_hooks import WorkerLoggers
from edt_sdk.training.order import Order, TestOrder
from edt_sdk.training.recorder import Recorder
from edt_sdk.training.rolling import Keeper


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
