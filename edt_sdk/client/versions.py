"""`Version`: the weights and the code of a training under a name and a number. `VersionClient` makes them.

A version is named by a text: `digits/3`, `digits@champion` by an alias, or `digits` for the newest.
"""

from __future__ import annotations

import os
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote

import msgspec

from edt_sdk.client.job import Job
from edt_sdk.client.search import SearchTrial
from edt_sdk.client.session import ServerSession
from edt_sdk.display.catalogue_view import VERSION_HEAD, lineage_rows, version_cells
from edt_sdk.formatting.tables import html_table, text_table
from edt_sdk.http.connection import Connection, save_file
from edt_sdk.packing.sources import collect
from edt_sdk.schemas.errors import Conflict, InvalidRequest
from edt_sdk.schemas.fields import names_checked
from edt_sdk.schemas.job import JobState, JobView, tags_of
from edt_sdk.schemas.serving.versions import (
    ModelVersion,
    NewFolderVersion,
    NewVersion,
    VersionComparison,
    VersionPatch,
    VersionReference,
)

if TYPE_CHECKING:
    import torch

    from edt_sdk.client.client import Client

_VERSIONS = "versions"
_NONE = "No versions yet: client.register(job, name) makes one."


class Version:
    """A version of a model. Its attributes are those of `ModelVersion`, as of the last request.

    Attributes:
        view: everything the server says about it.
    """

    def __init__(self, connection: Connection, view: ModelVersion) -> None:
        self._connection = connection
        self.view = view

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Return a field of the view."""
            if name in ModelVersion.__struct_fields__:
                return getattr(self.view, name)
            raise AttributeError(f"{type(self).__name__} has no {name!r}.")

    @property
    def id(self) -> str:
        """Return its name with its number, such as digits/3."""
        return self.view.id

    @property
    def metrics(self) -> dict[str, float | None]:
        """Return test_loss, test_accuracy and the script's own metrics of its last validation."""
        return self.view.metrics

    @property
    def sha256(self) -> str:
        """Return the SHA-256 of the file of its weights."""
        return self.view.sha256

    def lineage(self) -> str:
        """Return what it came from, as a table: job, search, epoch, code, settings and software."""
        return text_table(("", ""), lineage_rows(self.view))

    def update(self, *, description: str | None = None, tags: Sequence[str] | str | None = None) -> Version:
        """Change its description or its tags. None leaves one as it is."""
        patch = VersionPatch(description=description, tags=None if tags is None else tags_of(tags)).check()
        return self._answer("PATCH", body=patch)

    def alias(self, name: str) -> Version:
        """Let `name` mean this version from now on, and no other version: `client.version("digits@champion")`."""
        return self._answer("PUT", f"/aliases/{quote(name, safe='')}")

    def remove_alias(self, name: str) -> Version:
        """Take an alias away. Raises NotFound when this version is not called that."""
        return self._answer("DELETE", f"/aliases/{quote(name, safe='')}")

    def load_into(self, model: torch.nn.Module) -> torch.nn.Module:
        """Load the weights into `model`, in place, and return the model. Only tensors are read, never code.

        Raises Conflict for a version of a folder, which has no weights.
        """
        if not self.view.sha256:
            raise Conflict(f"{self.id} was made of a folder: it has no weights to load.")
        # Here and not at the top: importing torch takes about a second, and most clients never need it.
        from edt_sdk.training.checkpoints import model_files

        with tempfile.TemporaryDirectory(prefix="edt-") as folder:
            with zipfile.ZipFile(self.download(folder)) as archive:
                weights = Path(archive.extract("weights.pth", folder))
            model_files.load(weights, model)
        return model

    def download(
        self,
        directory: str | os.PathLike[str] = ".",
        *,
        told: Callable[[int, int | None], None] = lambda written, total: None,
    ) -> Path:
        """Download weights and code as one zip (`weights.pth`, `code.tar.gz`), and return its path.

        Args:
            directory: the target, made when missing.
            told: callback, run during the download with the bytes so far and the total.

        Raises Conflict when the weights on the server are not what was registered.
        """
        folder = Path(directory).expanduser()
        folder.mkdir(parents=True, exist_ok=True)
        target = folder / f"{self.view.name}-{self.view.number}.zip"
        save_file(self._connection, f"{self._path}/archive", target, told=told)
        return target

    def example(self) -> Any:
        """Return the inputs of a request of one row: `dep.predict(version.example())`. None where none is known.

        They are those of the first sample of the training's data, nested lists, by name where a model takes several.
        """
        return self._connection.json("GET", f"{self._path}/example")["inputs"]

    def reproduce(self) -> Reproduction:
        """Train it again from the same code, settings and beginning: `version.reproduce().wait().equal`."""
        return Reproduction(self, Job(self._connection, self._json("POST", "/reproduce", JobView)))

    def compare(self, job: Job | str) -> VersionComparison:
        """Return whether a job has trained the same weights, and what differs between the trainings."""
        params = {"job": job.id if isinstance(job, Job) else job}
        return cast(VersionComparison, self._json("GET", "/comparison", VersionComparison, params=params))

    def delete(self) -> None:
        """Remove it with its files. Its number is not used again. Raises Conflict while an alias means it."""
        self._connection.json("DELETE", self._path)

    @property
    def _path(self) -> str:
        return address(VersionReference(self.view.name, self.view.number))

    def _json(self, method: str, verb: str, cls: Any, **more: Any) -> Any:
        return msgspec.convert(self._connection.json(method, f"{self._path}{verb}", **more), cls)

    def _answer(self, method: str, verb: str = "", **more: Any) -> Version:
        self.view = self._json(method, verb, ModelVersion, **more)
        return self

    def __repr__(self) -> str:
        return f"{self.view.id}{''.join(f' @{alias}' for alias in self.view.aliases)}\n{self.lineage()}"

    def _repr_html_(self) -> str:
        return html_table((self.view.id, ""), lineage_rows(self.view))


class Reproduction:
    """The training of a version once more.

    Attributes:
        version: what is trained again.
        job: the training.
    """

    def __init__(self, version: Version, job: Job) -> None:
        self.version, self.job = version, job

    def wait(self, timeout: float | None = None, *, progress: bool = True) -> Reproduction:
        """Wait for its end. Arguments and errors are those of `Job.wait`."""
        self.job.wait(timeout, progress=progress)
        return self

    @property
    def comparison(self) -> VersionComparison:
        """Return what has come out. Raises Conflict before the job has the weights."""
        return self.version.compare(self.job)

    @property
    def equal(self) -> bool:
        """Return whether the weights are equal, bit by bit."""
        return self.comparison.equal

    def __repr__(self) -> str:
        state = self.job.refresh().state
        if state is not JobState.FINISHED:
            now = f"ended as {state.shown}" if state.final else "trains"
            return f"{self.version.view.id} is being trained again: {self.job.id} {now}."
        found = self.comparison
        if found.equal:
            return f"{self.version.view.id} was trained again by {self.job.id}: equal, bit by bit."
        why = f"What differs: {', '.join(found.differences)}." if found.differences else "The settings are the same."
        return f"{self.version.view.id} was trained again by {self.job.id}: other weights. {why}"


class VersionList(list[Version]):
    """Lists versions as of the time of the request. Behaves like a list otherwise."""

    def __repr__(self) -> str:
        return text_table(VERSION_HEAD, self._cells()) if self else _NONE

    def _repr_html_(self) -> str:
        return html_table(VERSION_HEAD, self._cells(), empty=_NONE)

    def _cells(self) -> list[tuple[str, ...]]:
        return [version_cells(version.view) for version in self]


@names_checked
class VersionClient(ServerSession):
    """A client for the versions of a server."""

    def register(
        self,
        job: Job | SearchTrial | str | os.PathLike[str],
        name: str,
        *,
        epoch: int | None = None,
        description: str = "",
        tags: Sequence[str] | str = (),
        alias: str = "",
    ) -> Version:
        """Keep the weights and the code of a training as the next version of a name.

        Its job may be deleted afterwards. A version of that name with the same weights and code is returned, if any.

        Args:
            job: what has trained, such as `search.best`, or the id or the name of a job. A `Path`, or a text such as
                "./mine" or "mine/", is a folder with code that answers requests: a `predictor.py`, or a kernel of
                WMLA's inference with its `model.json`.
            name: 1 to 100 letters, digits, dots, dashes and underscores.
            epoch: the weights after this epoch, from 1. By default the final ones.
            description: text for people.
            tags: words to find it by, or one text with commas.
            alias: a name that means this version from now on, such as "champion".

        Raises:
            Conflict: the job has no final weights yet.
            NotFound: there is no such job, or it has no weights of that epoch.
            Unprocessable: the folder has no code that answers requests.
        """
        said: dict[str, Any] = {"name": name, "description": description, "tags": tags_of(tags), "alias": alias}
        if isinstance(job, os.PathLike) or (isinstance(job, str) and _means_folder(job)):
            if epoch is not None:
                raise InvalidRequest("A folder has no epochs.", hint="Leave epoch out.", field="epoch")
            files = [file for file in collect(job, script=False).files if not file.spare]
            new_folder = NewFolderVersion(**said).check()
            return self._version(self._post_package(f"{_VERSIONS}/folders", new_folder, files))
        trained = job.job if isinstance(job, SearchTrial) else job
        if trained is None:
            raise InvalidRequest("This trial has no job yet.", hint="Register it when it has trained.", field="job")
        new = NewVersion(
            job=trained.id if isinstance(trained, Job) else cast("Client", self).job(trained).id, epoch=epoch, **said
        ).check()
        return self._version(self._connection.json("POST", _VERSIONS, body=new))

    def versions(self, name: str | None = None) -> VersionList:
        """My versions, of one name or of all: by name, and the newest first."""
        answer = self._connection.json("GET", _VERSIONS, params={"name": name})
        return VersionList(self._version(each) for each in answer["versions"])

    def version(self, version: str) -> Version:
        """Return a version: "digits/3", "digits@champion", or "digits" for the newest. Raises NotFound for none."""
        return self._version(self._connection.json("GET", address(VersionReference.of(version))))

    def _version(self, answer: Any) -> Version:
        return Version(self._connection, msgspec.convert(answer, ModelVersion))


def _means_folder(text: str) -> bool:
    """Return whether a text is a folder's path. A job's name may have a slash too, such as "digits/1 again"."""
    return text in (".", "..") or text.startswith(("./", "../", "/", "~")) or ("/" in text and os.path.isdir(text))


def address(version: VersionReference) -> str:
    """Return the path of a version below the API."""
    return f"{_VERSIONS}/{quote(version.name, safe='')}/{quote(version.which, safe='@')}"
