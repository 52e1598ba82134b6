"""Turn a `train()` call made outside a job into a job: the call itself is submitted.

The parts of the `FabricModel` and the arguments of the call go into one file in the format of `payload.py`. Objects
defined in a notebook travel by value, and the optimizer keeps references to the parameters of its model. The main
script of the job makes the call again, this time in a driver. The kernel is the parent of no process: it waits, and
loads the weights when the job has ended.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edt_sdk.schemas.errors import Unprocessable
from edt_sdk.schemas.wire.context import job_context
from edt_sdk.training.user import payload

if TYPE_CHECKING:
    from edt_sdk.client import Job

MAIN = "train_call.py"
FILE = "train_call.payload"

_SCRIPT = '''"""Make the train() call that is packed next to this file."""

from edt_sdk.fabric.fabric import FabricModel
from edt_sdk.training.calls import call

if __name__ == "__main__":
    fabric, arguments = call.load()
    FabricModel(**fabric).train(**arguments)
'''
# Data set functions written for WMLA read these variables. No other variable of the kernel is sent.
_TAKEN_ALONG = ("DATA_DIR", "DLI_DATA_FS")


def submit(fabric: Mapping[str, Any], arguments: Mapping[str, Any], *, max_workers: int, mode: str) -> Job:
    """Submit a `train()` call as a job: the keyword arguments of the `FabricModel`, and those of its `train()`.

    Raises:
        Unprocessable: a part cannot be sent, and the message names it. Or this process belongs to a job with a
            framework that trains by itself.
        ServerUnreachable: there is no server to submit to.
    """
    # Imported here: a driver, which makes the call again, never needs the client.
    from edt_sdk.client import Client

    job = job_context()
    if job is not None:
        raise Unprocessable(
            f"This job's framework is {job.framework}, which runs the script as it is: train() belongs to edtPyTorch.",
            hint="Submit it with framework='edtPyTorch'.",
            field="framework",
        )
    client = Client()
    # A flat dictionary, so that an error names a part as the user knows it. No argument of train() has these names.
    content = payload.dump({**fabric, "train": dict(arguments)}, [Path.cwd()])
    with tempfile.TemporaryDirectory(prefix="edt-call-") as name:
        folder = Path(name)
        (folder / MAIN).write_text(_SCRIPT)
        payload.write(folder / FILE, content)
        # Only data locations: other variables describe this kernel's machine and may hold secrets.
        env = {key: os.environ[key] for key in _TAKEN_ALONG if os.environ.get(key)}
        return client.submit(
            folder, main=MAIN, name=_name(), max_workers=max_workers, mode=mode, env=env, progress=False
        )


def load() -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the call packed in the working directory as (fabric, arguments), for the main script of the job."""
    parts = payload.load(Path(FILE))
    arguments: dict[str, Any] = parts.pop("train")
    return parts, arguments


def _name() -> str:
    """Return the name of the job: that of the notebook or script that made the call."""
    notebook = os.environ.get("JPY_SESSION_NAME", "")
    script = "" if "ipykernel" in sys.modules else sys.argv[0]
    return Path(notebook or script).stem or "notebook"
