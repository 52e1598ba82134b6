"""Map WMLA's routes to handlers. The test suite makes `docs/wmla-routes.md` of this table."""

from __future__ import annotations

import re

from edt_jupyter.wmla.about import ConfHandler, StatusHandler
from edt_jupyter.wmla.base import WmlaHandler
from edt_jupyter.wmla.conductor import DriverLogHandler, ExecutorLogHandler, InstanceApplicationsHandler
from edt_jupyter.wmla.datasets import (
    DatasetPicturesHandler,
    DatasetRowsHandler,
    DatasetStopHandler,
    WmlaDatasetHandler,
    WmlaDatasetsHandler,
)
from edt_jupyter.wmla.exec_files import ExecLogHandler, ExecResultHandler
from edt_jupyter.wmla.execs import (
    ExecHandler,
    ExecsHandler,
    ExecStopHandler,
    FrameworkDetailsHandler,
    FrameworkNamesHandler,
    FrameworksHandler,
)
from edt_jupyter.wmla.logon import LogoffHandler, LogonHandler
from edt_jupyter.wmla.models import (
    ModelFileHandler,
    ModelFilesHandler,
    TemplateFileHandler,
    TemplateFilesHandler,
    TemplateHandler,
    TemplatesHandler,
    WeightFileHandler,
    WmlaModelHandler,
    WmlaModelsHandler,
)
from edt_jupyter.wmla.resource_plans import PlanTreeHandler, ResourcePlanHandler
from edt_jupyter.wmla.scheduler import (
    ApplicationDriverLogHandler,
    ApplicationExecutorLogHandler,
    ApplicationsHandler,
    ApplicationStopHandler,
    EngineApplicationHandler,
    EngineApplicationsHandler,
    InstancesHandler,
    KubernetesObjectsHandler,
)
from edt_jupyter.wmla.trainings import (
    TrainingHandler,
    TrainingNamesHandler,
    TrainingsHandler,
    TrainingStopHandler,
    TrainingWeightsHandler,
)
from edt_jupyter.wmla.unavailable import (
    HypersearchHandler,
    InferenceHandler,
    WmlaUnknownHandler,
)
from edt_jupyter.wmla.validations import ValidationStopHandler, WmlaValidationHandler, WmlaValidationsHandler

AUTH = "/auth/v1"
CONDUCTOR = "/platform/rest/conductor/v1"
DEEP_LEARNING = "/platform/rest/deeplearning/v1"
INFERENCE = "/dlim/v1"

# In the order in which they are tried. `{n}` is a number, `{kind}` a log's name.
ROUTES: tuple[tuple[str, type[WmlaHandler]], ...] = (
    (f"{AUTH}/logon", LogonHandler),
    (f"{AUTH}/logoff", LogoffHandler),
    (f"{CONDUCTOR}/auth/logon", LogonHandler),
    (f"{CONDUCTOR}/instances/{{sigId}}/applications", InstanceApplicationsHandler),
    (f"{CONDUCTOR}/instances/{{sigId}}/applications/{{driverId}}/logs/{{kind}}/download", DriverLogHandler),
    (
        f"{CONDUCTOR}/instances/{{sigId}}/applications/{{driverId}}/{{executorId}}/logs/{{kind}}/download",
        ExecutorLogHandler,
    ),
    (f"{DEEP_LEARNING}/conf", ConfHandler),
    (f"{DEEP_LEARNING}/status", StatusHandler),
    (f"{DEEP_LEARNING}/execs", ExecsHandler),
    # Before `{id}`, which would match it. The same holds for `models/weightfile` and the two `files/{file}` below.
    (f"{DEEP_LEARNING}/execs/frameworks", FrameworksHandler),
    (f"{DEEP_LEARNING}/execs/{{id}}", ExecHandler),
    (f"{DEEP_LEARNING}/execs/{{id}}/log", ExecLogHandler),
    (f"{DEEP_LEARNING}/execs/{{id}}/result", ExecResultHandler),
    (f"{DEEP_LEARNING}/execs/{{id}}/stop", ExecStopHandler),
    (f"{DEEP_LEARNING}/frameworks", FrameworkDetailsHandler),
    (f"{DEEP_LEARNING}/frameworks/all", FrameworkNamesHandler),
    (f"{DEEP_LEARNING}/scheduler/applications", ApplicationsHandler),
    (f"{DEEP_LEARNING}/scheduler/applications/{{id}}/stop", ApplicationStopHandler),
    (f"{DEEP_LEARNING}/scheduler/applications/{{id}}/driver/logs/{{kind}}", ApplicationDriverLogHandler),
    (f"{DEEP_LEARNING}/scheduler/applications/{{id}}/executor/{{n}}/logs/{{kind}}", ApplicationExecutorLogHandler),
    (f"{DEEP_LEARNING}/scheduler/engine/applications", EngineApplicationsHandler),
    (f"{DEEP_LEARNING}/scheduler/engine/applications/{{id}}", EngineApplicationHandler),
    (f"{DEEP_LEARNING}/scheduler/instances", InstancesHandler),
    (f"{DEEP_LEARNING}/scheduler/kubernetesobjects", KubernetesObjectsHandler),
    (f"{DEEP_LEARNING}/resplans/resplantree", PlanTreeHandler),
    (f"{DEEP_LEARNING}/resplans/resplan/{{name}}", ResourcePlanHandler),
    (f"{DEEP_LEARNING}/datasets", WmlaDatasetsHandler),
    (f"{DEEP_LEARNING}/datasets/{{name}}", WmlaDatasetHandler),
    (f"{DEEP_LEARNING}/datasets/{{name}}/csvs", DatasetRowsHandler),
    (f"{DEEP_LEARNING}/datasets/{{name}}/objectimages", DatasetPicturesHandler),
    (f"{DEEP_LEARNING}/datasets/{{name}}/stop", DatasetStopHandler),
    (f"{DEEP_LEARNING}/modeltemplates", TemplatesHandler),
    (f"{DEEP_LEARNING}/modeltemplates/files/{{file}}", TemplateFileHandler),
    (f"{DEEP_LEARNING}/modeltemplates/{{name}}", TemplateHandler),
    (f"{DEEP_LEARNING}/modeltemplates/{{name}}/files", TemplateFilesHandler),
    (f"{DEEP_LEARNING}/models", WmlaModelsHandler),
    (f"{DEEP_LEARNING}/models/weightfile", WeightFileHandler),
    (f"{DEEP_LEARNING}/models/files/{{file}}", ModelFileHandler),
    (f"{DEEP_LEARNING}/models/{{name}}", WmlaModelHandler),
    (f"{DEEP_LEARNING}/models/{{name}}/files", ModelFilesHandler),
    (f"{DEEP_LEARNING}/models/{{name}}/trainingnames", TrainingNamesHandler),
    (f"{DEEP_LEARNING}/models/{{name}}/trainings", TrainingsHandler),
    (f"{DEEP_LEARNING}/models/{{name}}/trainings/{{training}}", TrainingHandler),
    (f"{DEEP_LEARNING}/models/{{name}}/trainings/{{training}}/stop", TrainingStopHandler),
    (f"{DEEP_LEARNING}/models/{{name}}/trainings/{{training}}/weightfile", TrainingWeightsHandler),
    (f"{DEEP_LEARNING}/models/{{name}}/validations", WmlaValidationsHandler),
    (f"{DEEP_LEARNING}/models/{{name}}/validations/{{validation}}", WmlaValidationHandler),
    (f"{DEEP_LEARNING}/models/{{name}}/validations/{{validation}}/stop", ValidationStopHandler),
)
# Whole families that answer 501, each a pattern below one of the roots, and then every other path.
FAMILIES: tuple[tuple[str, type[WmlaHandler]], ...] = (
    (rf"{DEEP_LEARNING}/hypersearch(?:/.*)?", HypersearchHandler),
    (rf"{DEEP_LEARNING}/models/[^/]+/hypersearch(?:/.*)?", HypersearchHandler),
    (rf"{DEEP_LEARNING}/execs/[^/]+/deploy/?", InferenceHandler),
    (rf"{DEEP_LEARNING}/(?:inferences|edimodels)(?:/.*)?", InferenceHandler),
    (rf"{INFERENCE}(?:/.*)?", InferenceHandler),
    *((rf"{root}(?:/.*)?", WmlaUnknownHandler) for root in (AUTH, CONDUCTOR, DEEP_LEARNING)),
)


def handlers() -> list[tuple[str, type[WmlaHandler]]]:
    """Return patterns relative to the base URL, with and without a slash at the end, so that none redirects."""
    # dlicmd posts to `/execs/`, and HTTP clients turn a redirected POST into a GET.
    return [*((f"{pattern(path)}/?", handler) for path, handler in ROUTES), *FAMILIES]


def pattern(path: str) -> str:
    """Return the regular expression of a path template."""
    return re.sub(r"\{(\w+)\}", lambda name: r"(\d{1,6})" if name[1] == "n" else r"([^/]+)", path)
