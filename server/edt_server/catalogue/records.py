"""The stored form of data sets and of models, and how they are shown. Pure.

A record is the `data` of a `CatalogueRow`. Every field has a default, so that older rows can be read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from edt_sdk.schemas.catalogue import DEFAULT_FRAMEWORK, Dataset, DatasetType, Model
from edt_server.store import CatalogueRow, Use

DATASET, MODEL, TEMPLATE, WEIGHTS = "dataset", "model", "template", "weights"
CALLED = {DATASET: "data set", MODEL: "model", TEMPLATE: "template", WEIGHTS: "file of weights"}
COPY, REFERENCE = "copy", "reference"


class DatasetRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A data set in the store, see `schemas.catalogue.Dataset`.

    `path` is relative to the server's data folder, "" for a copy.
    """

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
    """A model in the store, see `schemas.catalogue.Model`."""

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
    record = dataset_record(row)
    return Dataset(
        id=row.id,
        name=row.name,
        owner=row.owner,
        type=record.type,
        description=record.description,
        mode=record.mode,
        place=place,
        path=record.path,
        train=record.train,
        test=record.test,
        val=record.val,
        files=record.files,
        size=record.size,
        created=row.created,
        jobs=sum(use.dataset == row.id and not use.ended for use in uses),
        trouble=trouble,
    )


def model_shown(row: CatalogueRow, uses: Sequence[Use]) -> Model:
    """Return a model as its owner sees it."""
    record = model_record(row)
    return Model(
        id=row.id,
        name=row.name,
        owner=row.owner,
        kind=row.kind,
        description=record.description,
        framework=record.framework,
        main=record.main,
        args=record.args,
        hyperparameters=record.hyperparameters,
        dataset=record.dataset,
        max_workers=record.max_workers,
        origin=record.origin,
        template=record.template,
        console=record.console,
        files=record.files,
        size=record.size,
        created=row.created,
        changed=row.changed,
        trainings=sum(use.model == row.id and not use.validates for use in uses),
        weights=record.weights,
    )
