"""One member's part in a validation: it looks at outputs in the engine's own test steps; rank 0 writes what came out.

A validation is a training without epochs of updates: its schedule holds one pass over the test data (`schedule.py`).
What outputs are counted as is `validation_tally.py`'s. All members know all counts after each step, so members come and
go as in any training, and a checkpoint holds them.
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
from edt_sdk.training.state import former
from edt_sdk.training.state.nested import to_device
from edt_sdk.training.update.totals import Totals
from edt_sdk.training.user.payload import Training
from edt_sdk.training.validation.tally import Tally, Wanted, portable, received, tally


class ValidationPass:
    """What is looked at while the test data are gone over.

    Args:
        validates: what is asked for.
        training: whose loss function says what outputs are.
        samples: of the test data.
        paths: of the validation's job.
        device: where the model is.
    """

    def __init__(
        self, validates: Validates, training: Training, samples: int, paths: JobPaths, device: torch.device
    ) -> None:
        self._validates = validates
        self._wanted = Wanted(validates.metrics, validates.threshold, training.loss_function)
        self._samples = samples
        self._paths = paths
        self._device = device
        self._seen = Tally()

    def begin(self) -> None:
        """A step begins, or begins anew: forget what was seen in one that was broken off."""
        self._seen = Tally()

    def observe(self, outputs: Any, labels: Any) -> None:
        """A batch of this member's. Unprocessable when a metric makes no sense for it."""
        if self._wanted.anything:
            self._seen = self._seen + tally(outputs, labels, self._wanted)

    def together(self, group: Group) -> Tally:
        """What all members saw in this step, told to all of them. RuntimeError when one is gone."""
        if group.world == 1 or not self._wanted.anything:
            return self._seen
        own = pickle.dumps(portable(self._seen))
        parts = [
            received(former.loads(group.broadcast_bytes(own if rank == group.rank else None, rank)))
            for rank in range(group.world)
        ]
        return sum(parts[1:], start=parts[0])

    def over(self, model: Any, batches: Iterable[Any], _arguments: None = None) -> float:
        """All batches at once, for a script with an `fn_test`, which has gone over them in its own way; 0.

        Raises:
            Unprocessable: they are no pairs, or a metric makes no sense for them.
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

    @property
    def seen(self) -> Tally:
        """What this member saw in this step."""
        return self._seen

    def totals(self, totals: Totals, counts: Tally) -> Totals:
        """The complete totals, with an accuracy where the engine itself knows none, or takes one score for a class."""
        if counts.accuracy is None or (totals.right is not None and not counts.binary):
            return totals
        return replace(totals, right=counts.accuracy * totals.samples)

    def write(self, totals: Totals, counts: Tally) -> None:
        """RESULT_DIR's `validation.json`. OSError when that is impossible."""
        durable.write(
            self._paths.validation,
            lambda file: file.write(msgspec.json.format(msgspec.json.encode(self._result(totals, counts)), indent=1)),
        )

    def _result(self, totals: Totals, counts: Tally) -> Validated:
        told, wanted = self._validates, self._wanted
        values = dict(counts.values(wanted))
        values["loss"] = totals.loss if totals.samples else None
        if "accuracy" in values and totals.accuracy is not None:
            values["accuracy"] = totals.accuracy  # to the bit what the training itself says of the same weights
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
    """This job's, None where it trains.

    Raises:
        Unprocessable: there are no test data.
    """
    if job.validates is None:
        return None
    if not samples:
        raise Unprocessable(
            "There is nothing to validate with: datasets_function returned no test data.",
            hint="Let it return (train, test).",
            field="datasets_function",
        )
    return ValidationPass(job.validates, training, samples, job.paths, device)
