"""What notebooks, scripts and training processes import: `import edt_sdk`.

Every name below is resolved at its first use (PEP 562), so that the import itself costs nothing and loads neither torch
nor ipywidgets. `%load_ext edt_sdk` adds the magics.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from edt_sdk.callbacks import Callback, LoggerCallback
    from edt_sdk.client import Client, Deployment, Experiment, Job, Project, Search, SearchTrial, Version
    from edt_sdk.fabric import FabricModel
    from edt_sdk.notebook.magics import load_ipython_extension, unload_ipython_extension
    from edt_sdk.schemas.errors import (
        ChangedMeanwhile,
        Conflict,
        EdtError,
        InvalidRequest,
        JobFailed,
        NotAllowed,
        NotBuiltYet,
        NotFound,
        PackageError,
        ServerUnreachable,
        TooLarge,
        Unprocessable,
        WaitTimeout,
    )
    from edt_sdk.schemas.job import JobState, JobView
    from edt_sdk.schemas.search.space import choice, integer, log, uniform
    from edt_sdk.trial import params

    __version__: str

__all__ = [
    "Callback",
    "ChangedMeanwhile",
    "Client",
    "Conflict",
    "Deployment",
    "EdtError",
    "Experiment",
    "FabricModel",
    "InvalidRequest",
    "Job",
    "JobFailed",
    "JobState",
    "JobView",
    "LoggerCallback",
    "NotAllowed",
    "NotBuiltYet",
    "NotFound",
    "PackageError",
    "Project",
    "Search",
    "SearchTrial",
    "ServerUnreachable",
    "TooLarge",
    "Unprocessable",
    "Version",
    "WaitTimeout",
    "__version__",
    "choice",
    "integer",
    "load_ipython_extension",
    "log",
    "params",
    "uniform",
    "unload_ipython_extension",
]

_HOMES = {
    "Callback": "callbacks",
    "Client": "client",
    "Deployment": "client",
    "Experiment": "client",
    "FabricModel": "fabric",
    "Job": "client",
    "JobState": "schemas.job",
    "JobView": "schemas.job",
    "LoggerCallback": "callbacks",
    "Project": "client",
    "Search": "client",
    "SearchTrial": "client",
    "Version": "client",
    "choice": "schemas.search.space",
    "integer": "schemas.search.space",
    "load_ipython_extension": "notebook.magics",
    "log": "schemas.search.space",
    "params": "trial",
    "uniform": "schemas.search.space",
    "unload_ipython_extension": "notebook.magics",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        value: Any = version("jupyter-edt")
    elif name in __all__:
        value = getattr(import_module(f"edt_sdk.{_HOMES.get(name, 'schemas.errors')}"), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
