"""Emit changes of jobs' states on Jupyter's event bus, which the browser receives over a socket it has open already.

State transitions only, never metrics or logs: every authenticated client receives the bus.
"""

from __future__ import annotations

from importlib.resources import as_file, files
from typing import Any

from jupyter_events import EventLogger

from edt_sdk.schemas.job import JobState
from edt_server.store import JobRow

SCHEMA_ID = "https://schema.jupyter-edt.org/edt/job_state/v1"


def register(logger: EventLogger) -> None:
    """Register the schema, once for a logger."""
    if SCHEMA_ID not in logger.schemas:
        with as_file(files("edt_jupyter").joinpath("event_schemas/job_state/v1.yaml")) as path:
            logger.register_event_schema(path)


def emit(logger: EventLogger, row: JobRow, before: JobState | None) -> None:
    """Emit the state that the job has now."""
    state = {"state": row.state.value, "before": None if before is None else before.value, "time": row.state_since}
    tell(logger, {"job": row.id, "name": row.spec.name, "owner": row.owner, "search": row.spec.search, **state})


def tell(logger: EventLogger, change: dict[str, Any]) -> None:
    """Emit a change in the schema's fields."""
    logger.emit(schema_id=SCHEMA_ID, data=change)
