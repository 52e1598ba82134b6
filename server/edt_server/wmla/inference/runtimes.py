"""Translate runtimes of Elastic Distributed Inference, of which only the variables have a meaning here. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from edt_sdk.schemas.catalogue import check_name
from edt_sdk.schemas.errors import InvalidRequest
from edt_server.store import CatalogueRow

SCHEMA = "1"
PYTHON = "python"


class RuntimeRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A runtime of these clients in the store."""

    type: str
    launcher: str
    schema_version: str = SCHEMA
    pre_exec: str = ""
    machine_type: str = ""
    envs: tuple[dict[str, str], ...] = ()
    description: str = ""
    conda_home: str = ""
    conda_env_name: str = ""
    docker_img: str = ""


BUILT_IN = RuntimeRecord(type=PYTHON, launcher=PYTHON, description="The server's own Python.")


def runtime(fields: Mapping[str, Any]) -> RuntimeRecord:
    """Return a runtime to keep. InvalidRequest says which field is missing or cannot be used."""
    try:
        found = msgspec.convert({**fields, "envs": checked_pairs(fields.get("envs"), "envs", "name")}, RuntimeRecord)
    except msgspec.ValidationError as wrong:
        raise InvalidRequest(f"The runtime cannot be used: {wrong}.") from None
    check_name(found.type, "runtime")
    return found


def runtime_object(row: CatalogueRow) -> dict[str, Any]:
    """Return a runtime as these clients see it."""
    return {**row.data, "epoch_created": int(row.created), "epoch_updated": int(row.changed)}


def checked_pairs(given: object, field: str, key: str) -> list[dict[str, str]]:
    """Return names and values as texts, [] for None. InvalidRequest names the field that they are in."""
    return [
        _pair(each, field, key) for each in (given if isinstance(given, list) else [] if given is None else [given])
    ]


def _pair(given: object, field: str, key: str) -> dict[str, str]:
    if not isinstance(given, dict) or not isinstance(given.get(key), str):
        raise InvalidRequest(f'{field} is a list of {{"{key}": …, "value": …}}.', field=field)
    value = given.get("value")
    return {key: given[key], "value": value if isinstance(value, str) else "" if value is None else json.dumps(value)}
