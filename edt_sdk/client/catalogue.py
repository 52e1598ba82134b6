"""`CatalogueClient`: the verbs of `Client` for data sets and models under names.

A source on this machine is packed here and sent. A source in the server's data folder is named by its `path`. A
training of a model is a job like any other.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import msgspec

from edt_sdk.client.job import Job, weights_named
from edt_sdk.client.session import ServerSession
from edt_sdk.display.catalogue_view import DatasetList, ModelList
from edt_sdk.packing.data_files import data_files
from edt_sdk.packing.sources import Source, SourceFile, collect
from edt_sdk.schemas.catalogue import (
    Dataset,
    DatasetDetails,
    Model,
    ModelChange,
    ModelDetails,
    ModelTraining,
    NewDataset,
    NewModel,
)
from edt_sdk.schemas.errors import InvalidRequest
from edt_sdk.schemas.fields import check_names, names_checked, words_of
from edt_sdk.schemas.job import DEFAULT_PRIORITY, JobView

if TYPE_CHECKING:
    from edt_sdk.client.versions import Version

_DATASETS, _MODELS = "datasets", "models"


@names_checked
class CatalogueClient(ServerSession):
    """A client for the catalogue of a server."""

    # --- data sets ----------------------------------------------------------------------------------------------------

    def datasets(self) -> DatasetList:
        """My data sets, by name."""
        return DatasetList(msgspec.convert(self._connection.json("GET", _DATASETS)["datasets"], list[Dataset]))

    def dataset(self, name: str) -> DatasetDetails:
        """Return a data set with its jobs and the first of its files. Raises NotFound when there is none."""
        return msgspec.convert(self._connection.json("GET", _at(_DATASETS, name)), DatasetDetails)

    def add_dataset(
        self,
        name: str,
        source: str | os.PathLike[str] | None = None,
        *,
        path: str | None = None,
        copy: bool = False,
        type: str = "Any",
        description: str = "",
        train: str = "",
        test: str = "",
        val: str = "",
    ) -> Dataset:
        """Register a data set.

        Args:
            name: 1 to 100 letters, digits, dots, dashes and underscores.
            source: a folder or file of this machine, which is sent.
            path: in place of it a folder of the server's data folder, relative to that or absolute.
            copy: with `path`, the server keeps a copy. By default the folder is used where it lies.
            type: what it holds, for people, a value of `edt_sdk.schemas.catalogue.DatasetType`.
            description: for people.
            train: the part for training, relative to its folder, for scripts that ask for it. "" for all of it.
            test: the part for tests, likewise.
            val: the part for validation, likewise.

        Raises:
            Conflict: the name is taken.
            PackageError, NotFound, InvalidRequest, Unprocessable: it is not there, or cannot be used.
            TooLarge: it is over the server's limit for uploads. Put it into the data folder, and name its `path`.
        """
        new = NewDataset(
            name=name, type=type, description=description, path=path, copy=copy, train=train, test=test, val=val
        ).check()
        _one_of(source=source, path=path)
        files = None if source is None else data_files(source)
        return msgspec.convert(self._add(_DATASETS, new, files), Dataset)

    def delete_dataset(self, name: str) -> None:
        """Remove a data set. A folder of the server's data folder stays as it is.

        Raises:
            NotFound: there is no data set with that name.
            Conflict: a job that has not ended needs the server's copy.
        """
        self._connection.json("DELETE", _at(_DATASETS, name))

    # --- models -------------------------------------------------------------------------------------------------------

    def models(self) -> ModelList:
        """My models, and templates that models are made of, by name."""
        return ModelList(msgspec.convert(self._connection.json("GET", _MODELS)["models"], list[Model]))

    def model(self, name: str) -> ModelDetails:
        """Return a model with its trainings, the newest first, and the files of its code.

        Raises NotFound when there is none.
        """
        return msgspec.convert(self._connection.json("GET", _at(_MODELS, name)), ModelDetails)

    def add_model(
        self,
        name: str,
        source: Source | None = None,
        *,
        path: str | None = None,
        template: str | None = None,
        main: str | None = None,
        framework: str | None = None,
        args: Sequence[str] | str | None = None,
        hyperparameters: Mapping[str, Any] | None = None,
        dataset: str | None = None,
        max_workers: int | None = None,
        description: str | None = None,
        kind: str = "model",
    ) -> Model:
        """Add a model: code and the settings of its trainings.

        Args:
            name: 1 to 100 letters, digits, dots, dashes and underscores.
            source: the same as for `submit`: a folder, a script, a notebook, or cells. It is sent.
            path: in place of it a folder, script or archive of the server's data folder.
            template: in place of it a template or model. The new model is a copy, changed by the arguments given here.
            main: main script, relative to the folder. Needed only where the choice is not clear.
            framework: what runs it, see `submit`. Our elastic engine by default.
            args: the script's own arguments.
            hyperparameters: some of epochs, train_batch_size, test_batch_size, optimizer and learning_rate, which a
                script of WMLA's console finds through `pth_parameter_mgr`.
            dataset: the data set of trainings that name none.
            max_workers: most slots of trainings that do not set it, 1 by default.
            description: for people.
            kind: "template" for code that is only the starting point of models.

        Raises:
            Conflict: the name is taken.
            PackageError, TooLarge: the code cannot be packed or has no main script.
            NotFound, InvalidRequest, Unprocessable: its place, template or data set cannot be used.
        """
        _one_of(source=source, path=path, template=template)
        collected = None if source is None else collect(source, main)
        new = NewModel(
            name=name,
            description=description,
            path=path,
            template=template,
            kind=kind,
            main=main if collected is None else collected.main,
            framework=framework,
            # None keeps the template's value, and an empty list replaces it.
            args=None if args is None else words_of(args),
            hyperparameters=None if hyperparameters is None else dict(hyperparameters),
            dataset=dataset,
            max_workers=max_workers,
        ).check()
        return msgspec.convert(self._add(_MODELS, new, None if collected is None else collected.files), Model)

    def update_model(self, name: str, **changes: Any) -> Model:
        """Change a model for trainings to come. Its earlier trainings stay as they are.

        Args:
            name: name of the model.
            **changes: description, main, framework, args, hyperparameters (replaced as a whole), dataset, max_workers.

        Raises:
            NotFound: no such model or data set.
            InvalidRequest, Unprocessable: nothing to change, or a value that cannot be.
        """
        check_names("update_model", changes, ModelChange.__struct_fields__)
        return msgspec.convert(self._connection.json("PATCH", _at(_MODELS, name), body=changes), Model)

    def train_model(
        self,
        name: str,
        *,
        dataset: str | None = None,
        framework: str | None = None,
        max_workers: int | None = None,
        args: Sequence[str] | str | None = None,
        hyperparameters: Mapping[str, Any] | None = None,
        priority: int = DEFAULT_PRIORITY,
        instance_group: str = "",
        mode: str = "exact",
        seed: int = 0,
        log: str = "quiet",
        env: Mapping[str, str] | None = None,
        warm_start: Job | Version | str | None = None,
        project: str = "",
        experiment: str = "",
        job_name: str | None = None,
    ) -> Job:
        """Train a model. The model's own settings apply where an argument is not given.

        Args:
            name: name of the model.
            dataset: a registered data set, "" for none.
            framework: the training engine.
            max_workers: most slots it may hold at once.
            args: the script's arguments, in place of the model's.
            hyperparameters: values that replace the model's, one by one.
            priority: weight under fair share.
            instance_group: the queue, "" for the server's first.
            mode: as in `submit`.
            seed: as in `submit`.
            log: as in `submit`.
            env: environment variables of the job.
            warm_start: another job of mine, or a version. The training starts with its weights.
            project: the project that it is a run of.
            experiment: the experiment in that project.
            job_name: name of the job for people, the model's name by default.

        Raises:
            NotFound: no such model or data set.
            InvalidRequest, Unprocessable: an argument cannot be used.
        """
        wanted = ModelTraining(
            name=job_name,
            framework=framework,
            dataset=dataset,
            max_workers=max_workers,
            args=None if args is None else words_of(args),
            hyperparameters=None if hyperparameters is None else dict(hyperparameters),
            priority=priority,
            instance_group=instance_group,
            mode=mode,
            seed=seed,
            log=log,
            env=dict(env or {}),
            warm_start=weights_named(warm_start) if warm_start else "",
            project=project,
            experiment=experiment,
        ).check()
        answer = self._connection.json("POST", f"{_at(_MODELS, name)}/train", body=wanted)
        return Job(self._connection, msgspec.convert(answer, JobView))

    def delete_model(self, name: str, *, kind: str = "model") -> None:
        """Remove a model, or with kind="template" a template.

        Its trainings stay. Raises NotFound when there is none.
        """
        self._connection.json("DELETE", _at(_MODELS, name), params={"kind": kind})

    def _add(self, path: str, new: NewDataset | NewModel, files: Sequence[SourceFile] | None) -> Any:
        if files is None:
            return self._connection.json("POST", path, body=new)
        return self._post_package(path, new, files)


def _at(path: str, name: str) -> str:
    if not name or name in (".", ".."):
        raise InvalidRequest(f"{name!r} is no name.", hint="client.datasets() and client.models() list them.")
    return f"{path}/{quote(name, safe='')}"


def _one_of(**given: object) -> None:
    said = [name for name, value in given.items() if value is not None]
    if len(said) != 1:
        raise InvalidRequest(
            f"Give one of {', '.join(given)}{f', not {len(said)} of them' if said else ''}.",
            hint="It says where the files are.",
            field=said[0] if said else next(iter(given)),
        )
