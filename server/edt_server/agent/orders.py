"""Make a job's orders fit this host: the server's paths become those of the host, and its Python where it must.

On a host that shares the server's files only the host's name and addresses change.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import msgspec

from edt_sdk.schemas.errors import Unprocessable
from edt_sdk.schemas.wire.agent import AgentOrders
from edt_sdk.schemas.wire.control import Launch


def localized(launch: Launch, here: AgentOrders, interface: str) -> Launch:
    """Return the orders of an attempt as they count on this host, whose workers listen at `interface`.

    Unprocessable when the host has no Python for the job.
    """
    runtime = str(Path(here.runtime_dir) / launch.job_id)
    if here.shared:
        return msgspec.structs.replace(launch, runtime_dir=runtime, interface=interface)
    root = launch.data_dir.rstrip("/")

    def moved(path: str) -> str:
        inside = path == root or path.startswith(f"{root}/")
        return here.data_dir + path.removeprefix(root) if inside else path

    spec = msgspec.structs.replace(launch.spec, args=tuple(map(moved, launch.spec.args)))
    isolation = msgspec.structs.replace(launch.isolation, readable=tuple(map(moved, launch.isolation.readable)))
    control = Path(here.data_dir) / "control"
    return msgspec.structs.replace(
        launch,
        spec=spec,
        data_dir=here.data_dir,
        runtime_dir=runtime,
        control_file=str(control / "server.json"),
        hosts_dir=str(control / "hosts"),
        interpreter=_python(launch),
        data_fs=here.data_fs or launch.data_fs,
        warm_start=moved(launch.warm_start),
        dataset_dir=moved(launch.dataset_dir),
        isolation=isolation,
        interface=interface,
    )


def _python(launch: Launch) -> str:
    """Return the Python of the job here: the same path, else the one that this agent runs with."""
    if os.path.isfile(launch.interpreter) and os.access(launch.interpreter, os.X_OK):
        return launch.interpreter
    if not sys.executable:
        raise Unprocessable(
            f"There is no {launch.interpreter} on this host.",
            hint="Join from the environment that jobs are to run in.",
            job=launch.job_id,
            field="python",
        )
    return sys.executable
