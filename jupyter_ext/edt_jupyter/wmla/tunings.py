"""The console's tunings, which are searches over a model: list, start, show, stop, restart, delete, use the best."""

from __future__ import annotations

import secrets
from functools import partial
from typing import Any

from edt_jupyter.wmla.hypersearch import TaskHandler
from edt_sdk.schemas.catalogue import ModelChange, NewModel
from edt_sdk.schemas.errors import Conflict, NotFound
from edt_sdk.schemas.search.spec import MOST_TRIALS
from edt_sdk.schemas.search.views import SearchView
from edt_server.catalogue.records import MODEL
from edt_server.catalogue.training import with_values
from edt_server.wmla.hypersearch import as_tuning, part, task_object, tuning, tuning_spec


class _TuningHandler(TaskHandler):
    """Base of the handlers that name a model, and perhaps one of its tunings."""

    async def tunings(self, model: str) -> list[SearchView]:
        """Return the searches over a model, newest first. NotFound."""
        found = (await self.service.catalogue.models.get(self.user, model)).model
        views = await self.service.searches.searches(self.user)
        return [view for view in views if view.spec.job.registered and view.spec.job.registered.model == found.id]

    async def tuning(self, model: str, name: str) -> SearchView:
        """Return the search over a model with this name or id. NotFound."""
        found = await self.tunings(model)
        for view in found:
            if name in (view.spec.job.name, view.id):
                return view
        names = ", ".join(view.spec.job.name for view in found) or "none yet"
        raise NotFound(f"The model {model} has no tuning {name!r}.", hint=f"There is {names}.")

    async def shown(self, view: SearchView) -> dict[str, Any]:
        """Return a search as its state object, with the console's names of hyper-parameters."""
        searches, user = self.service.searches, self.user
        named = as_tuning(view, await searches.trials(user, view.id, limit=MOST_TRIALS))
        reports, submitted = await searches.reports(user, view.id), await searches.submitted(user, view.id)
        return task_object(*named, reports, submitted, self.service.now())

    async def best(self, model: str, name: str) -> dict[str, Any]:
        """Return the hyper-parameters of a model with the best values of a tuning. Conflict where there are none."""
        view = await self.tuning(model, name)
        if view.best is None:
            raise Conflict(f"Model tuning {name} has no best values yet.", hint="Wait for its first report.")
        now = (await self.service.catalogue.models.get(self.user, model)).model.hyperparameters
        return with_values(now, view.best.params)


class _TuningsHandler(_TuningHandler, path="/models/{name}/hypersearch", resource="edt:searches"):
    async def get(self, model: str) -> None:
        """List the tunings of the model, newest first."""
        self.reply([await self.shown(view) for view in await self.tunings(model)])

    async def post(self, model: str) -> None:
        """Start a tuning of the model."""
        body, catalogue = self.body, self.service.catalogue
        wanted, begins_with = tuning(body, group=self.group(part(body, "resDef").get("resourceInstanceId")))
        weights = await catalogue.weights.meant(self.user, begins_with, {}) if begins_with else None
        job, package, using = await catalogue.models.job(self.user, model, wanted, weights=weights)
        spec = partial(tuning_spec, body, name=self.new_name(), seed=secrets.randbelow(1 << 31))(job)
        self.reply(await self.shown(await self.service.searches.start(self.user, spec, package, **using)))


class _OneTuningHandler(_TuningHandler, path="/models/{name}/hypersearch/{tuning}", resource="edt:searches"):
    async def get(self, model: str, name: str) -> None:
        """Return the tuning as it is now."""
        self.reply(await self.shown(await self.tuning(model, name)))

    async def delete(self, model: str, name: str) -> None:
        """Remove the tuning, a running one after it was stopped. Its trainings stay."""
        await self.remove(await self.tuning(model, name))
        self.done(f"Model tuning {name} is deleted.")


class _TuningStopHandler(_TuningHandler, path="/models/{name}/hypersearch/{tuning}/stop", resource="edt:searches"):
    async def put(self, model: str, name: str) -> None:
        """Stop the tuning."""
        await self.stop(await self.tuning(model, name))


class _TuningForceHandler(_TuningStopHandler, path="/models/{name}/hypersearch/{tuning}/force"):
    pass


class _TuningRestartHandler(
    _TuningHandler, path="/models/{name}/hypersearch/{tuning}/restart", resource="edt:searches"
):
    async def put(self, model: str, name: str) -> None:
        """Go on with the tuning."""
        await self.restart(await self.tuning(model, name))


class _TuningUpdateHandler(_TuningHandler, path="/models/{name}/hypersearch/{tuning}/update", resource="edt:catalogue"):
    async def put(self, model: str, name: str) -> None:
        """Give the model the best values, for future trainings."""
        change = ModelChange(hyperparameters=await self.best(model, name))
        await self.service.catalogue.models.change(self.user, model, change)
        self.done(f"{model} has the best values of {name}.", name=model)


class _TuningCreateHandler(
    _TuningHandler, path="/models/{name}/hypersearch/{tuning}/create/{new}", resource="edt:catalogue"
):
    async def put(self, model: str, name: str, new: str) -> None:
        """Make another model of this one, with the best values."""
        made = NewModel(name=new, template=model, hyperparameters=await self.best(model, name))
        await self.service.catalogue.models.add(self.user, made, of_kind=MODEL)
        self.done(f"Model {new} is created.", name=new)
