"""Find what answers requests in a folder.

A class `Predictor`, a model of MLflow, a kernel that `model.json` names, or an ONNX file.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec

from edt_sdk.schemas.catalogue import check_inside
from edt_sdk.schemas.errors import Unprocessable
from edt_sdk.schemas.registered import DESCRIPTION, MLMODEL, ONNX, PREDICTOR, Runtime

_LARGEST_DESCRIPTION = 1 << 20  # bytes: it is read whole


class _Variable(msgspec.Struct):
    name: str
    value: Any = None


class _Description(msgspec.Struct):
    """What is read of a `model.json`. The kernel reads the rest."""

    kernel_path: str
    mk_environments: list[_Variable] | None = None


@dataclass(frozen=True, slots=True)
class AnsweringProgram:
    """A file of a folder, and the environment variables that it needs."""

    main: str
    env: dict[str, str] = field(default_factory=dict)


def answering_program(folder: Path) -> AnsweringProgram:
    """Return what answers requests in a folder. Unprocessable, InvalidRequest where nothing can. Blocks."""
    for known in (PREDICTOR, MLMODEL):
        if (folder / known).is_file():
            return AnsweringProgram(known)
    path = folder / DESCRIPTION
    if not path.is_file():
        files = sorted(each.name for each in folder.glob(f"*{ONNX}") if each.is_file())
        if len(files) == 1:
            return AnsweringProgram(files[0])
        raise Unprocessable(
            f"The folder has {len(files)} ONNX files, and nothing says which of them answers."
            if files
            else "The folder has no code that could answer requests, and no model.",
            hint=f"Put a {PREDICTOR} with a class Predictor into it, one {ONNX} file, or WMLA's {DESCRIPTION} with a "
            f"kernel; or take a folder of MLflow with its {MLMODEL}.",
        )
    if find_spec("edt_server.wmla") is None:
        raise Unprocessable(
            "This server was built without WMLA's modules, which kernels import.",
            hint=f"Put a {PREDICTOR} with a class Predictor into the folder.",
        )
    described = _described(path)
    kernel = described.kernel_path.removeprefix("./")
    check_inside(kernel, "kernel_path")
    if kernel not in {each.relative_to(folder).as_posix() for each in folder.rglob("*") if each.is_file()}:
        raise Unprocessable(
            f"The folder has no file {kernel!r:.100}.", hint=f"{DESCRIPTION} names it.", field="kernel_path"
        )
    return AnsweringProgram(kernel, {each.name: _text(each.value) for each in described.mk_environments or ()})


def runtime_of(main: str, names: Collection[str], *, trained: bool) -> Runtime:
    """Return how a package answers: from its main file, the names of all files, and whether it has trained weights."""
    if PREDICTOR in names:
        return Runtime.PREDICTOR
    if trained:
        return Runtime.SCRIPT
    if main == MLMODEL:
        return Runtime.MLFLOW
    return Runtime.ONNX if main.endswith(ONNX) else Runtime.KERNEL


def _described(path: Path) -> _Description:
    if path.stat().st_size > _LARGEST_DESCRIPTION:
        raise Unprocessable(f"{DESCRIPTION} has more than {_LARGEST_DESCRIPTION:,} bytes.")
    try:
        return msgspec.json.decode(path.read_bytes(), type=_Description)
    except msgspec.ValidationError as wrong:
        raise Unprocessable(f"{DESCRIPTION} cannot be used: {wrong}.") from None
    except (msgspec.DecodeError, ValueError, RecursionError) as wrong:
        raise Unprocessable(f"{DESCRIPTION} is not JSON: {wrong}.") from None


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return "" if value is None else json.dumps(value)
