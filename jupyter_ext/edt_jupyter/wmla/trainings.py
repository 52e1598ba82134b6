"""The console's trainings of a model, which are jobs: list, start, show, stop, delete, and their weights."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from edt_jupyter.wmla.console import ConsoleHandler
from edt_jupyter.wmla.execs import RemovingHandler
from edt_sdk.schemas.errors import Conflict, NotFound
from edt_sdk.schemas.job import JobView
from edt_sdk.schemas.wire.regular import regular_files
from edt_server.wmla.console import new_training, training_object


def named(found: Sequence[JobView], name: str, missing: str) -> JobView:
    """Return the job with this name (the newest of several) or id. NotFound with the sentence `missing`."""
    for view in found:
        if name in (view.name, view.id):
            return view
    names = ", ".join(dict.fromkeys(view.name for view in found)) or "none yet"
    raise NotFound(missing, hint=f"There is {names}.")


class ModelTrainingsHandler(ConsoleHandler):
    """Base of the handlers that name a model and one of its trainings."""

    async def trainings(self, model: str) -> tuple[JobView, ...]:
        """Return the model's trainings, newest first."""
        return (await self.service.catalogue.models.get(self.user, model)).trainings

    async def training(self, model: str, name: str) -> JobView:
        """Return the training with this name or id. NotFound."""
        return named(await self.trainings(model), name, f"The model {model} has no training {name!r}.")


class _TrainingNamesHandler(ModelTrainingsHandler, path="/models/{name}/trainingnames", resource="edt:jobs"):
    async def get(self, model: str) -> None:
        """Return the names of the trainings."""
        self.reply(list(dict.fromkeys(view.name for view in await self.trainings(model))))


class _TrainingsHandler(ModelTrainingsHandler, path="/models/{name}/trainings", resource="edt:jobs"):
    async def get(self, model: str) -> None:
        """Return the trainings."""
        self.reply([training_object(view, server=self.base_address) for view in await self.trainings(model)])

    async def post(self, model: str) -> None:
        """Start a training."""
        body, catalogue = self.body, self.service.catalogue
        wanted, begins_with, remarks = new_training(body, group=self.group(body.get("sigId") or body.get("sig")))
        before = await self.trainings(model)
        # The routes of a training contain its name, so two with the same name would be one route.
        if any(view.name == wanted.name for view in before):
            raise Conflict(
                f"The model {model} has a training {wanted.name} already.",
                hint="Choose another trainName.",
                field="trainName",
            )
        weights: Path | None = None
        if begins_with:
            # The oldest first, so that the newest of several trainings with a name stays in the table.
            named = {name: view.id for view in reversed(before) for name in (view.name, view.id)}
            weights = await catalogue.weights.meant(self.user, begins_with, named)
        view = await catalogue.models.train(self.user, model, wanted, weights=weights, remarks=remarks)
        self.reply(training_object(view, server=self.base_address))


class _TrainingHandler(
    ModelTrainingsHandler, RemovingHandler, path="/models/{name}/trainings/{training}", resource="edt:jobs"
):
    async def get(self, model: str, training: str) -> None:
        """Return the training."""
        self.reply(training_object(await self.training(model, training), server=self.base_address))

    async def delete(self, model: str, training: str) -> None:
        """Remove the training with its results. A running one is stopped first."""
        view = await self.training(model, training)
        await self.stopped_and_removed(view, f"Training {training}")
        self.done(f"Training {training} is deleted.")


class _TrainingStopHandler(ModelTrainingsHandler, path="/models/{name}/trainings/{training}/stop", resource="edt:jobs"):
    async def put(self, model: str, training: str) -> None:
        """Stop the training: accepted now, done when its processes have ended."""
        view = await self.training(model, training)
        await self.service.stop_job(self.user, view.id)
        self.done(f"Training {training} is being stopped.")


class _TrainingWeightsHandler(
    ModelTrainingsHandler, path="/models/{name}/trainings/{training}/weightfile", resource="edt:artifacts"
):
    async def get(self, model: str, training: str) -> None:
        """Return the paths of its weight files. `GET /execs/{id}/result` downloads them."""
        view = await self.training(model, training)
        self.reply(await asyncio.to_thread(_weights_in, Path(view.result_dir)))


def _weights_in(result: Path) -> list[str]:
    return sorted(str(path) for path, _ in regular_files(result / "model", "**/*.pth", within=result))
