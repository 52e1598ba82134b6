"""Display data sets and models as lists: a table in a notebook, lines elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TypeVar

from edt_sdk.formatting.text_table import table
from edt_sdk.packing.table import human_bytes
from edt_sdk.schemas.catalogue import Dataset, Model

Item = TypeVar("Item", Dataset, Model)
DATASET_HEAD = ("NAME", "TYPE", "KEPT", "FILES", "SIZE", "JOBS", "WHERE")
MODEL_HEAD = ("NAME", "KIND", "FRAMEWORK", "MAIN", "DATA SET", "WORKERS", "TRAININGS")


def dataset_cells(item: Dataset) -> tuple[str, ...]:
    """Return the columns of a data set."""
    return (
        item.name,
        item.type,
        item.mode,
        "?" if item.files is None else str(item.files),
        "?" if item.size is None else human_bytes(item.size),
        str(item.jobs),
        item.trouble or (item.path or "(data folder)" if item.mode == "reference" else "(server's copy)"),
    )


def model_cells(item: Model) -> tuple[str, ...]:
    """Return the columns of a model or template."""
    workers, trainings = (str(item.max_workers), str(item.trainings)) if item.kind == "model" else ("", "")
    return (item.name, item.kind, item.framework, item.main, item.dataset or "-", workers, trainings)


class DatasetList(list[Dataset]):
    """Lists data sets as of the time of the request. Behaves like a list otherwise."""

    def __repr__(self) -> str:
        rows = [dataset_cells(item) for item in self]
        return table(DATASET_HEAD, rows) if rows else "No data sets yet: client.add_dataset(name, folder) adds one."

    def _repr_html_(self) -> str:
        return _html(DATASET_HEAD, [dataset_cells(item) for item in self], repr(self))


class ModelList(list[Model]):
    """Lists models as of the time of the request. Behaves like a list otherwise."""

    def __repr__(self) -> str:
        rows = [model_cells(item) for item in self]
        return table(MODEL_HEAD, rows) if rows else "No models yet: client.add_model(name, folder) adds one."

    def _repr_html_(self) -> str:
        return _html(MODEL_HEAD, [model_cells(item) for item in self], repr(self))


def _html(head: Sequence[str], rows: Sequence[Sequence[str]], empty: str) -> str:
    if not rows:
        return f"<p>{escape(empty)}</p>"
    cells = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    titles = "".join(f"<th scope='col'>{escape(name.capitalize())}</th>" for name in head)
    return f"<table><thead><tr>{titles}</tr></thead><tbody>{cells}</tbody></table>"
