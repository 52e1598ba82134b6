"""Map paths to handlers. `/edt/api/spec.yaml` describes the same routes, and a test compares the two."""

from __future__ import annotations

import re

from edt_jupyter.api.catalogue import (
    DatasetHandler,
    DatasetsHandler,
    ModelHandler,
    ModelsHandler,
    ModelTrainHandler,
)
from edt_jupyter.api.cluster import ClusterHandler, InterpretersHandler, JobTimelineHandler, TimelineHandler
from edt_jupyter.api.forecasts import ForecastsHandler, WhatIfHandler
from edt_jupyter.api.jobs import (
    JobHandler,
    JobsHandler,
    ResumeHandler,
    StopAllHandler,
    StopHandler,
    SuspendHandler,
    ValidationHandler,
    ValidationsHandler,
    WorkersHandler,
)
from edt_jupyter.api.outputs import CheckpointsHandler, EventsHandler, LogsHandler, MetricsHandler, ResultHandler
from edt_jupyter.api.pictures import CurveHandler, JobPictureHandler, PicturesHandler
from edt_jupyter.api.plan import (
    InstanceGroupHandler,
    InstanceGroupsHandler,
    PlanHandler,
    ResourceGroupHandler,
    ResourceGroupsHandler,
)
from edt_jupyter.api.root import RootHandler, SpecHandler, UnknownHandler
from edt_jupyter.api.submissions import PreviewsHandler, SubmissionsHandler
from edt_jupyter.http.base import EdtHandler

API = "/edt/api"
_PLACE, _ONE = re.compile(r"\{\w+\}"), r"([^/]+)"

# Path templates as OpenAPI writes them, in the order in which they are tried.
ROUTES: tuple[tuple[str, type[EdtHandler]], ...] = (
    ("/", RootHandler),
    ("/spec.yaml", SpecHandler),
    ("/jobs", JobsHandler),
    # Before `{id}`, which would match it.
    ("/jobs/stop", StopAllHandler),
    ("/jobs/{id}", JobHandler),
    ("/jobs/{id}/stop", StopHandler),
    ("/jobs/{id}/suspend", SuspendHandler),
    ("/jobs/{id}/resume", ResumeHandler),
    ("/jobs/{id}/logs", LogsHandler),
    ("/jobs/{id}/metrics", MetricsHandler),
    ("/jobs/{id}/events", EventsHandler),
    ("/jobs/{id}/timeline", JobTimelineHandler),
    ("/jobs/{id}/workers", WorkersHandler),
    ("/jobs/{id}/what-if", WhatIfHandler),
    ("/jobs/{id}/checkpoints", CheckpointsHandler),
    ("/jobs/{id}/validations", ValidationsHandler),
    ("/jobs/{id}/validation", ValidationHandler),
    ("/jobs/{id}/result", ResultHandler),
    ("/jobs/{id}/curve", CurveHandler),
    ("/jobs/{id}/pictures/{picture}", JobPictureHandler),
    ("/forecasts", ForecastsHandler),
    ("/interpreters", InterpretersHandler),
    ("/previews", PreviewsHandler),
    ("/submissions", SubmissionsHandler),
    ("/datasets", DatasetsHandler),
    ("/datasets/{name}", DatasetHandler),
    ("/models", ModelsHandler),
    ("/models/{name}", ModelHandler),
    ("/models/{name}/train", ModelTrainHandler),
    ("/timeline", TimelineHandler),
    ("/pictures/{picture}", PicturesHandler),
    ("/cluster", ClusterHandler),
    ("/plan", PlanHandler),
    ("/instance-groups", InstanceGroupsHandler),
    ("/instance-groups/{name}", InstanceGroupHandler),
    ("/resource-groups", ResourceGroupsHandler),
    ("/resource-groups/{name}", ResourceGroupHandler),
)


def handlers() -> list[tuple[str, type[EdtHandler]]]:
    """Return patterns relative to the base URL, with and without a slash at the end. Unknown paths come last."""
    known = [(f"{API}{_PLACE.sub(_ONE, path.rstrip('/'))}/?", handler) for path, handler in ROUTES]
    return [*known, (rf"{API}/(.*)", UnknownHandler)]
