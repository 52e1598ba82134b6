"""Validations: a job with the package of a training and the weights that the training ended with.

It does not depend on the training's job afterwards, which may be deleted: weights and package are copies, as in every
job. See docs/decisions/031-validations.md.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from edt_sdk.schemas.errors import Conflict, NotFound, Unprocessable
from edt_sdk.schemas.frameworks import Framework
from edt_sdk.schemas.job import JobSpec, JobView
from edt_sdk.schemas.registered import Registered, WmlaRequest
from edt_sdk.schemas.validation import NewValidation, Validated, Validates, named_metrics
from edt_sdk.schemas.wire.paths import JobPaths
from edt_sdk.schemas.wire.regular import open_regular
from edt_server.files import job_files, weights_of
from edt_server.jobs import Stored
from edt_server.service.views import validated
from edt_server.store import JobRow

if TYPE_CHECKING:
    from edt_server.service.service import Service

_LARGEST_RESULT = 1 << 28


class Validations:
    """The verbs of a service for validations."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def start(self, user: str, job: str, new: NewValidation, *, remarks: tuple[str, ...] = ()) -> JobView:
        """Start a job that validates the result of a training, and return it. `remarks` are for the job's story.

        Raises Conflict when the training has no weights yet, Unprocessable for no training by the elastic engine.
        """
        new = new.check()
        row = await self._service.mine(user, job)
        _check_trained_here(row)
        # The training may be resumed or deleted while its validation runs, so the job gets a copy (docs/decisions/031).
        weights, calls = await asyncio.to_thread(_weights, self._service.paths(row), row)
        stored = await self._service.stored(user, job)
        spec, pinned = job_of(stored, row, new, calls)
        if remarks:
            spec = msgspec.structs.replace(spec, wmla=WmlaRequest(remarks=remarks))
        return await self._service.submit(
            user, spec, stored.package, training=pinned, weights=weights, config=stored.config
        )

    async def result(self, user: str, job: str) -> Validated:
        """Return the result of a validation. NotFound when it has none yet, Unprocessable for a training."""
        row = await self._service.mine(user, job)
        if not validated(row.spec):
            raise Unprocessable(
                f"Job {job} is a training, no validation.",
                hint="Validate what it trained: job.validate(), or at a shell: edt validate " + job,
                job=job,
            )
        found = await asyncio.to_thread(read_result, self._service.paths(row))
        if found is None:
            ended = row.state.final
            raise NotFound(
                f"The validation {job} {'ended as' if ended else 'is'} {row.state.value} and has no result"
                f"{'.' if ended else ' yet.'}",
                hint="Its log says why: job.logs()." if ended else "Wait for its end: job.wait().",
                job=job,
            )
        return found


def job_of(stored: Stored, row: JobRow, new: NewValidation, calls: int) -> tuple[JobSpec, Registered]:
    """Return the job, not checked against the server, and the training that it validates. Pure."""
    spec = stored.spec
    name = new.name if new.name is not None else f"{row.spec.name[:180]}-validation"
    changes = {
        "name": name,
        "max_workers": new.max_workers,
        "min_workers": 1,
        "slots_per_unit": 1,
        "pending_timeout": None,
        # The training's resolved number, because the bits of a sum may depend on the number of threads.
        "threads_per_slot": row.threads_per_slot,
        "priority": spec.priority if new.priority is None else new.priority,
        "instance_group": spec.instance_group if new.instance_group is None else new.instance_group,
        "warm_start": "",
        "wmla": None,
        "registered": None,
        # It is no run of the experiment: its metrics are those of its training.
        "project": "",
        "experiment": "",
    }
    if new.dataset:
        changes |= {"dataset": new.dataset, "data_path": ""}
    validates = Validates(
        training=row.id,
        training_name=row.spec.name,
        metrics=named_metrics(new.metrics),
        threshold=new.threshold,
        calls=calls,
    )
    pinned = msgspec.structs.replace(stored.training or Registered(), weights=True, validates=validates)
    return msgspec.structs.replace(spec, **changes), pinned


def read_result(paths: JobPaths) -> Validated | None:
    """Return what a validation wrote, None when there is nothing. Blocks."""
    try:
        with open_regular(paths.validation) as file:
            data = file.read(_LARGEST_RESULT + 1)
        # User code can write here, also a file that would fill the server's memory.
        return msgspec.json.decode(data, type=Validated) if len(data) <= _LARGEST_RESULT else None
    except (OSError, msgspec.DecodeError):
        return None  # not there yet, or overwritten by the user's script, which may write there


def _check_trained_here(row: JobRow) -> None:
    if training := validated(row.spec):
        raise Unprocessable(
            f"Job {row.id} is a validation itself.", hint=f"Validate the training, {training}.", job=row.id
        )
    if row.spec.framework != Framework.EDT:
        raise Unprocessable(
            f"Job {row.id} runs its script as it is ({row.spec.framework}), so that only the script knows its "
            "model and its test data.",
            hint="Only trainings by the elastic engine (framework edtPyTorch, FabricModel.train()) can be validated; "
            "test the model in the script.",
            job=row.id,
        )


def _weights(paths: JobPaths, row: JobRow) -> tuple[Path, int]:
    """Return the final weights of the job's last finished training and its number from 1, else the newest epoch's."""
    if finals := job_files.final_weights(paths):
        return finals[-1], len(finals)
    try:
        return weights_of(paths), 1
    except Unprocessable:
        living = not row.state.final
        raise Conflict(
            f"Job {row.id} is {row.state.value} and has written no weights{' yet' if living else ''}.",
            hint="Validate it when it has finished, or has written an epoch's checkpoint (checkpoint_freq=1)."
            if living
            else "Train again, then validate that; job.logs() says what went wrong here.",
            job=row.id,
        ) from None
