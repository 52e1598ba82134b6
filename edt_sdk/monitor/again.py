"""The line of Python that submits a job like this one again. Pure.

Its code is where it was submitted from, which the server does not know: the line says where to name it. Of the
settings those that differ from the defaults are written out.
"""

from __future__ import annotations

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


def again(view: JobView) -> str:
    """`client.submit(…)` with the settings of a job."""
    settings: dict[str, object] = {"main": view.main} if view.main else {}
    settings |= {"name": view.name, "max_workers": view.max_workers, "instance_group": view.instance_group}
    settings |= {name: getattr(view, name) for name, usual in _DEFAULTS.items() if getattr(view, name) != usual}
    if view.args:
        settings["args"] = list(view.args)
    given = "".join(f"    {name}={value!r},\n" for name, value in settings.items())
    return f"client.submit(\n    {FOLDER!r},\n{given})"
