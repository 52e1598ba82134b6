"""Display data sets and models as lists: a table in a notebook, lines elsewhere."""

from __future__ import annotations

from edt_sdk.formatting.tables import html_table, text_table
from edt_sdk.packing.table import human_bytes
from edt_sdk.schemas.catalogue import Dataset, Model

DATASET_HEAD = ("NAME", "TYPE", "KEPT", "FILES", "SIZE", "JOBS", "WHERE")
MODEL_HEAD = ("NAME", "KIND", "FRAMEWORK", "MAIN", "DATA SET", "WORKERS", "TRAININGS")
_NO_DATASETS = "No data sets yet: client.add_dataset(name, folder) adds one."
_NO_MODELS = "No models yet: client.add_model(name, folder) adds one."


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
        return text_table(DATASET_HEAD, list(map(dataset_cells, self))) if self else _NO_DATASETS

    def _repr_html_(self) -> str:
        return html_table(DATASET_HEAD, list(map(dataset_cells, self)), empty=_NO_DATASETS)


class ModelList(list[Model]):
    """Lists models as of the time of the request. Behaves like a list otherwise."""

    def __repr__(self) -> str:
        return text_table(MODEL_HEAD, list(map(model_cells, self))) if self else _NO_MODELS

    def _repr_html_(self) -> str:
        return html_table(MODEL_HEAD, list(map(model_cells, self)), empty=_NO_MODELS)
