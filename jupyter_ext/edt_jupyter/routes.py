"""Which handler answers where. `/edt/api/spec.yaml` describes the same routes; a test compares the two."""

from __future__ import annotations

import re

from edt_jupyter.artifacts import CheckpointsHandler, ResultHandler
from edt_jupyter.base import EdtHandler
from edt_jupyter.catalogue import (
    DatasetHandler,
    DatasetsHandler,
    ModelHandler,
    ModelsHandler,
    ModelTrainHandler,
)
from edt_jupyter.cluster import ClusterHandler
from edt_jupyter.events import EventsHandler
from edt_jupyter.forecasts import ForecastsHandler
from edt_jupyter.groups import (
    InstanceGroupHandler,
    InstanceGroupsHandler,
    ResourceGroupHandler,
    ResourceGroupsHandler,
)
from edt_jupyter.interpreters import InterpretersHandler
from edt_jupyter.jobs import (
    JobHandler,
    JobsHandler,
    ResumeHandler,
    StopAllHandler,
    StopHandler,
    SuspendHandler,
)
from edt_jupyter.logs import LogsHandler
from edt_jupyter.metrics import MetricsHandler
from edt_jupyter.pictures import JobPictureHandler, PicturesHandler
from edt_jupyter.plan import PlanHandler
from edt_jupyter.previews import PreviewsHandler
from edt_jupyter.root import RootHandler, SpecHandler, UnknownHandler
from edt_jupyter.submissions import SubmissionsHandler
from edt_jupyter.timeline import JobTimelineHandler, TimelineHandler
from edt_jupyter.validations import ValidationHandler, ValidationsHandler
from edt_jupyter.what_if import WhatIfHandler
from edt_jupyter.workers import WorkersHandler

API = "/edt/api"
_PLACE, _ONE = re.compile(r"\{\w+\}"), r"([^/]+)"

# Path templates as OpenAPI writes them, in the order in which they are tried.
ROUTES: tuple[tuple[str, type[EdtHandler]], ...] = (
    ("/", RootHandler),
    ("/spec.yaml", SpecHandler),
    ("/jobs", JobsHandler),
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
    """Patterns relative to the base URL, each with and without a slash at its end; the unknown rest comes last."""
    known = [(f"{API}{_PLACE.sub(_ONE, path.rstrip('/'))}/?", handler) for path, handler in ROUTES]
    return [*known, (rf"{API}/(.*)", UnknownHandler)]
