"""Do one member's part in a validation job: count outputs in the engine's own test steps, and write the result.

A validation job is a training without updates: its schedule holds one pass over the test data (`schedule.py`).
`tally.py` counts the outputs. All members know all counts after each step, so members may join and leave as in any
training, and a checkpoint contains the counts.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import msgspec
import torch

from edt_sdk.schemas.errors import Unprocessable
from edt_sdk.schemas.validation import Validated, Validates
from edt_sdk.schemas.wire.context import JobContext
from edt_sdk.schemas.wire.paths import JobPaths
from edt_sdk.training.checkpoints import durable
from edt_sdk.training.exchange.group import Group
from edt_sdk.training.state import previous_version as former
from edt_sdk.training.state.nested import to_device
from edt_sdk.training.update.totals import Totals
from edt_sdk.training.user.payload import Training
from edt_sdk.training.validation.tally import Tally, Wanted, portable, received, tally


class ValidationPass:
    """Counts outputs during a pass over the test data. `seen` are this member's counts of this step.

    The loss function of the training shows how to read the outputs.
    """

    def __init__(
        self, validates: Validates, training: Training, samples: int, paths: JobPaths, device: torch.device
    ) -> None:
        self._validates = validates
        self._wanted = Wanted(validates.metrics, validates.threshold, training.loss_function)
        self._samples = samples
        self._paths = paths
        self._device = device
        self.seen = Tally()

    def begin(self) -> None:
        """Start a step, and forget the counts of an attempt that failed."""
        self.seen = Tally()

    def observe(self, outputs: Any, labels: Any) -> None:
        """Count a batch of this member. Unprocessable when a metric makes no sense for the batch."""
        if self._wanted.anything:
            self.seen = self.seen + tally(outputs, labels, self._wanted)

    def together(self, group: Group) -> Tally:
        """Exchange the counts of this step, and return the sum over all members."""
        # All members have the same request, so all skip the exchange or none does.
        if group.world == 1 or not self._wanted.anything:
            return self.seen
        own = pickle.dumps(portable(self.seen))
        # Broadcasts and no all-gather: the size of the counts is not known in advance, so each broadcast sends its
        # length.
        parts = [
            received(former.loads(group.broadcast_bytes(own if rank == group.rank else None, rank)))
            for rank in range(group.world)
        ]
        # The counts are whole numbers, so the order of the sum does not matter (decision 031).
        return sum(parts[1:], start=parts[0])

    def over(self, model: Any, batches: Iterable[Any], _arguments: None = None) -> float:
        """Count all batches at once, for a script with its own `fn_test`, and return 0.

        Raises:
            Unprocessable: the batches are no pairs, or a metric makes no sense for them.
        """
        for data in batches if self._wanted.anything else ():
            if not isinstance(data, (tuple, list)) or len(data) != 2:
                raise Unprocessable(
                    f"A batch is a {type(data).__name__}, not (features, labels): only fn_test knows what to do with "
                    "it.",
                    hint="Ask for loss alone.",
                    field="metrics",
                )
            features, labels = to_device(tuple(data), self._device)
            self.observe(model(features), labels)
        return 0.0

    def totals(self, totals: Totals, counts: Tally) -> Totals:
        """Return the totals with the counted accuracy where the engine has none, or where outputs are binary."""
        if counts.accuracy is None or (totals.right is not None and not counts.binary):
            return totals
        return replace(totals, right=counts.accuracy * totals.samples)

    def write(self, totals: Totals, counts: Tally) -> None:
        """Write `validation.json` into RESULT_DIR atomically."""
        durable.write(
            self._paths.validation,
            lambda file: file.write(msgspec.json.format(msgspec.json.encode(self._result(totals, counts)), indent=1)),
        )

    def _result(self, totals: Totals, counts: Tally) -> Validated:
        told, wanted = self._validates, self._wanted
        values = dict(counts.values(wanted))
        values["loss"] = totals.loss if totals.samples else None
        if "accuracy" in values and totals.accuracy is not None:
            values["accuracy"] = totals.accuracy  # equal to the bit to the training's own figure for the same weights
        by_threshold = counts.binary or (counts.classes == 2 and told.threshold is not None)
        each_class = {"precision", "recall", "f1"} & set(told.metrics)
        return Validated(
            training=told.training,
            training_name=told.training_name,
            samples=self._samples,
            metrics={name: values[name] for name in told.metrics if name in values},
            own=totals.metrics,
            classes=counts.classes or None,
            threshold=(told.threshold or 0.5) if by_threshold else None,
            confusion=None if counts.confusion is None else tuple(map(tuple, counts.confusion.tolist())),
            per_class=counts.per_class() if each_class else (),
            time=time.time(),
        )


def validation_pass(job: JobContext, training: Training, samples: int, device: torch.device) -> ValidationPass | None:
    """Return the validation of this job, None for a job that trains. Unprocessable when there are no test data."""
    if job.validates is None:
        return None
    if not samples:
        raise Unprocessable(
            "There is nothing to validate with: datasets_function returned no test data.",
            hint="Let it return (train, test).",
            field="datasets_function",
        )
    return ValidationPass(job.validates, training, samples, job.paths, device)
