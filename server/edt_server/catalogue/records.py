"""The stored form of data sets and of models, and how they are shown. Pure.

A record is the `data` of a `CatalogueRow`, with fields of `schemas.catalogue.Dataset` or `Model`. Every field has a
default, so that older rows can be read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from edt_sdk.schemas.catalogue import DEFAULT_FRAMEWORK, Dataset, DatasetType, Model
from edt_server.store import CatalogueRow, Use

DATASET, MODEL, TEMPLATE, WEIGHTS, ALGORITHM = "dataset", "model", "template", "weights", "algorithm"
# A version of a model, and what all versions of a name have in common.
VERSION, VERSIONS = "version", "versions"
DEPLOYMENT = "deployment"
# Of clients of WMLA's inference: what they say of a model, and of a runtime for its kernels.
INFERENCE, RUNTIME = "inference", "runtime"
CALLED = {
    DATASET: "data set",
    MODEL: "model",
    TEMPLATE: "template",
    WEIGHTS: "file of weights",
    ALGORITHM: "search algorithm",
    VERSION: "version",
    VERSIONS: "name of versions",
    DEPLOYMENT: "deployment",
    INFERENCE: "model for inference",
    RUNTIME: "runtime",
}
COPY, REFERENCE = "copy", "reference"


class DatasetRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A data set in the store. `path` is relative to the server's data folder, "" for a copy."""

    type: str = DatasetType.ANY.value
    description: str = ""
    mode: str = COPY
    path: str = ""
    train: str = ""
    test: str = ""
    val: str = ""
    files: int | None = None
    size: int | None = None


class ModelRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A model in the store."""

    description: str = ""
    framework: str = DEFAULT_FRAMEWORK
    main: str = ""
    args: tuple[str, ...] = ()
    # msgspec copies an empty dict for each instance, so this default is not shared.
    hyperparameters: dict[str, Any] = {}
    dataset: str = ""
    max_workers: int = 1
    origin: str = ""
    template: str = ""
    console: bool = False
    files: int = 0
    size: int = 0
    weights: bool = False


def dataset_record(row: CatalogueRow) -> DatasetRecord:
    """Return the stored form of a data set."""
    return msgspec.convert(row.data, DatasetRecord)


def model_record(row: CatalogueRow) -> ModelRecord:
    """Return the stored form of a model or template."""
    return msgspec.convert(row.data, ModelRecord)


def dataset_shown(row: CatalogueRow, place: str, trouble: str, uses: Sequence[Use]) -> Dataset:
    """Return a data set as its owner sees it, with its place and the trouble with that place."""
    return Dataset(
        **msgspec.structs.asdict(dataset_record(row)),
        id=row.id,
        name=row.name,
        owner=row.owner,
        place=place,
        created=row.created,
        jobs=sum(use.dataset == row.id and not use.ended for use in uses),
        trouble=trouble,
    )


def model_shown(row: CatalogueRow, uses: Sequence[Use]) -> Model:
    """Return a model as its owner sees it."""
    return Model(
        **msgspec.structs.asdict(model_record(row)),
        id=row.id,
        name=row.name,
        owner=row.owner,
        kind=row.kind,
        created=row.created,
        changed=row.changed,
        trainings=sum(use.model == row.id and not use.validates for use in uses),
    )
