"""The line of Python that submits a job like this one again.

Of the settings those that differ from the defaults are written out. The server keeps a copy of the code with the job's
results: where this machine sees it, it is what the line names.
"""

from __future__ import annotations

from pathlib import Path

from edt_sdk.schemas.frameworks import Framework
from edt_sdk.schemas.job import DEFAULT_PRIORITY, JobView

FOLDER = "the folder it was submitted from"
_DEFAULTS = {
    "min_workers": 1,
    "slots_per_unit": 1,
    "pending_timeout": None,
    "priority": DEFAULT_PRIORITY,
    "mode": "exact",
    "seed": 0,
    "warm_start": "",
    "framework": Framework.EDT.value,
}


def again(view: JobView, folder: str = FOLDER) -> str:
    """`client.submit(…)` with the settings of a job, and the code in `folder`."""
    settings: dict[str, object] = {"main": view.main} if view.main else {}
    settings |= {"name": view.name, "max_workers": view.max_workers, "instance_group": view.instance_group}
    settings |= {name: getattr(view, name) for name, usual in _DEFAULTS.items() if getattr(view, name) != usual}
    if view.args:
        settings["args"] = list(view.args)
    given = "".join(f"    {name}={value!r},\n" for name, value in settings.items())
    return f"client.submit(\n    {folder!r},\n{given})"


def code_of(view: JobView) -> str:
    """The folder with a copy of a job's code, as far as it is to be seen from here; else what to name instead."""
    root = Path(view.result_dir) / "_submitted_code"
    try:
        places = [root, *sorted(place for place in root.iterdir() if place.is_dir())]
        return next((str(place) for place in places if view.main and (place / view.main).is_file()), FOLDER)
    except OSError:
        return FOLDER
