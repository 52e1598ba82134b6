"""The console's validations of a model's trainings, which are jobs: list, start, stop, delete."""

from __future__ import annotations

from typing import Any

from edt_jupyter.wmla.execs import RemovingHandler
from edt_jupyter.wmla.trainings import ModelTrainingsHandler, named
from edt_sdk.schemas.errors import Conflict, NotFound
from edt_sdk.schemas.job import JobState, JobView
from edt_server.wmla.console import new_validation, validation_object


class _ValidationHandler(ModelTrainingsHandler):
    async def validations(self, model: str) -> tuple[JobView, ...]:
        """Return the model's validations, newest first. NotFound."""
        return await self.service.catalogue.models.validations(self.user, model)

    async def validation(self, model: str, name: str) -> JobView:
        """Return the validation with this name or id. NotFound."""
        return named(await self.validations(model), name, f"The model {model} has no validation {name!r}.")

    async def shown(self, view: JobView) -> dict[str, Any]:
        """Return the validation with its result."""
        row = await self.service.mine(self.user, view.id)
        if row.spec.registered is None or row.spec.registered.validates is None:
            raise AssertionError(f"{view.id} was found among validations")
        try:
            result = await self.service.validations.result(self.user, view.id)
        except NotFound:
            result = None
        return validation_object(view, row.spec.registered.validates, result, server=self.base_address)


class _WmlaValidationsHandler(_ValidationHandler, path="/models/{name}/validations", resource="edt:jobs"):
    async def get(self, model: str) -> None:
        """Return all validations with their results."""
        found = []
        for view in await self.validations(model):
            try:
                found.append(await self.shown(view))
            except NotFound:
                continue  # deleted meanwhile
        self.reply(found)

    async def post(self, model: str) -> None:
        """Start a validation."""
        name, new = new_validation(self.body)
        training = await self.training(model, name)
        if training.state is not JobState.FINISHED:
            raise Conflict(
                f"Training {name} is {training.state.value}: only one that has finished is validated.",
                hint="Wait for it." if not training.state.final else "Train again.",
                field="trainName",
            )
        # The routes of a validation contain its name, as those of a training do.
        if any(view.name == new.name for view in await self.validations(model)):
            raise Conflict(
                f"The model {model} has a validation {new.name} already.",
                hint="Choose another valName.",
                field="valName",
            )
        view = await self.service.validations.start(self.user, training.id, new)
        self.reply(await self.shown(view))


class _WmlaValidationHandler(
    _ValidationHandler, RemovingHandler, path="/models/{name}/validations/{validation}", resource="edt:jobs"
):
    async def delete(self, model: str, validation: str) -> None:
        """Remove the validation with its results. A running one is stopped first."""
        view = await self.validation(model, validation)
        await self.stopped_and_removed(view, f"Validation {validation}")
        self.done(f"Validation {validation} is deleted.")


class _ValidationStopHandler(
    _ValidationHandler, path="/models/{name}/validations/{validation}/stop", resource="edt:jobs"
):
    async def put(self, model: str, validation: str) -> None:
        """Stop the validation: accepted now, done when its processes have ended."""
        view = await self.validation(model, validation)
        await self.service.stop_job(self.user, view.id)
        self.done(f"Validation {validation} is being stopped.")
