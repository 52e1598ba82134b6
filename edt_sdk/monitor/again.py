"""The line of Python that makes another job of the package of this one, with the settings to change."""

from __future__ import annotations

from edt_sdk.schemas.job import JobView


def again(view: JobView) -> str:
    """`client.job(…).clone(…)` with the settings that people change from one run to the next."""
    settings: dict[str, object] = {"name": view.name, "max_workers": view.max_workers, "priority": view.priority}
    if view.args:
        settings["args"] = list(view.args)
    given = "".join(f"    {name}={value!r},\n" for name, value in settings.items())
    return f"client.job({view.id!r}).clone(\n{given})"
