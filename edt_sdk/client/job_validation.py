"""The part of `Job` that tests what was trained: start a validation, and read what one came to."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from edt_sdk.display.validation import Validation
from edt_sdk.http.connection import Connection
from edt_sdk.schemas.job import JobView
from edt_sdk.schemas.validation import DEFAULT_METRICS, NewValidation

if TYPE_CHECKING:
    from edt_sdk.client.job import Job


class JobValidation(ABC):
    """A training is validated by a job of its own, which has the result."""

    _connection: Connection
    _view: JobView

    @abstractmethod
    def _another(self, view: JobView) -> Job:
        """A job of the same server."""

    def validate(
        self,
        metrics: Sequence[str] | str = DEFAULT_METRICS,
        *,
        threshold: float | None = None,
        dataset: str | None = None,
        name: str | None = None,
        max_workers: int = 1,
        instance_group: str | None = None,
        priority: int | None = None,
    ) -> Job:
        """Run the model that it trained once over the test data; the job that does it, whose `validation()` tells.

        The same package runs again; where its script calls `train()`, the weights that the training ended with are
        tested and nothing is trained.

        Args:
            metrics: "loss" (the script's), "accuracy", "top5" or another top<K>, "precision", "recall", "f1", "iou",
                "confusion"; a sequence, or one text with commas. Upper and lower case make no difference.
            threshold: the probability from which on a binary output means class 1, between 0 and 1; 0.5 by default.
            dataset: name of a registered data set whose folder is then DATA_DIR; the training's by default.
            name: of the job.
            max_workers: most slots it may hold. The result is the same for any number.
            instance_group: its queue; the training's by default.
            priority: its weight under fair share; the training's by default.

        Raises:
            Conflict: it has written no weights yet.
            InvalidRequest: there is no metric of a name.
            Unprocessable: it is no training by the elastic engine, or a value is out of bounds.
            NotFound: there is no such data set.
        """
        new = NewValidation(
            metrics=metrics if isinstance(metrics, str) else tuple(metrics),
            threshold=threshold,
            dataset=dataset,
            name=name,
            max_workers=max_workers,
            instance_group=instance_group,
            priority=priority,
        ).check()
        answer = self._connection.json("POST", f"jobs/{self._view.id}/validations", body=msgspec.to_builtins(new))
        return self._another(msgspec.convert(answer, JobView))

    def validation(self) -> Validation:
        """What it came to, if it is a validation (see `Job.validate`); a value that shows itself as a table.

        Raises:
            NotFound: nothing came out, or not yet.
            Unprocessable: it is no validation.
        """
        return Validation.of(self._view.id, self._connection.json("GET", f"jobs/{self._view.id}/validation"))
