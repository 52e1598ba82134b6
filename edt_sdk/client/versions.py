"""`Version`: the weights and the code of a training under a name and a number. `VersionClient` makes them.

A version is named by a text: `digits/3`, `digits@champion` by an alias, or `digits` for the newest.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast
from urllib.parse import quote

import msgspec

from edt_sdk.client.job import Job
from edt_sdk.client.search import SearchTrial
from edt_sdk.client.session import ServerSession
from edt_sdk.display.catalogue_view import VERSION_HEAD, lineage_rows, version_cells
from edt_sdk.formatting.tables import html_table, text_table
from edt_sdk.http.connection import Connection, save_file
from edt_sdk.packing.sources import SourceFile, collect
from edt_sdk.schemas.errors import Conflict, InvalidRequest
from edt_sdk.schemas.fields import names_checked
from edt_sdk.schemas.job import JobState, JobView, tags_of
from edt_sdk.schemas.registered import ONNX
from edt_sdk.schemas.serving.examples import SIGNATURE_FILE, Examples
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
        with self._unpacked() as folder:
            _load(folder, model)
        return model

    def export(
        self,
        model: torch.nn.Module,
        format: Literal["onnx", "mlflow"] = "onnx",
        directory: str | os.PathLike[str] = ".",
    ) -> Path:
        """Write the model for other programs, and return the path: `version.export(network(), "mlflow")`.

        Args:
            model: what the training's script builds. The weights are loaded into it, in place.
            format: "onnx" for an ONNX file `digits-3.onnx`; "mlflow" for a folder `digits-3-mlflow`, which MLflow loads
                with torch alone, and of which `register()` makes a version. One that is there is replaced.
            directory: the target, made when missing.

        Raises:
            Conflict: the version is one of a folder, or of an epoch, so that nobody knows what the model takes.
            Unprocessable: the packages of that format are missing, or it cannot hold this model.
        """
        endings = {"onnx": ".onnx", "mlflow": "-mlflow"}
        if format not in endings:
            raise InvalidRequest(f"There is no format {format!r}.", hint="Take onnx or mlflow.", field="format")
        target = Path(directory).expanduser() / f"{self.view.name}-{self.view.number}{endings[format]}"
        with self._unpacked() as folder:
            _load(folder, model)
            try:
                examples = Examples.read(folder / SIGNATURE_FILE)
            except (FileNotFoundError, msgspec.DecodeError):
                raise Conflict(
                    f"Nothing tells what {self.id} takes: trainings with FabricModel write examples at their end.",
                    hint="Register the final weights of one, or download the weights and export them yourself.",
                ) from None
            from edt_sdk.training.checkpoints import exports

            (exports.to_onnx if format == "onnx" else exports.to_mlflow)(target, model, examples)
        return target

    @contextlib.contextmanager
    def _unpacked(self) -> Iterator[Path]:
        """Fetch the weights and the signature for a moment. Conflict for a version without weights."""
        if not self.view.sha256:
            raise Conflict(f"{self.id} was made of a folder: it has no weights to load.")
        with tempfile.TemporaryDirectory(prefix="edt-") as folder:
            with zipfile.ZipFile(self.download(folder)) as archive:
                archive.extractall(folder, {"weights.pth", SIGNATURE_FILE} & set(archive.namelist()))
            yield Path(folder)

    def download(
        self,
        directory: str | os.PathLike[str] = ".",
        *,
        told: Callable[[int, int | None], None] = lambda written, total: None,
    ) -> Path:
        """Download weights and code as one zip (`weights.pth`, `code.tar.gz`), and return its path.

        What the model takes and returns is in it too, with examples (`signature.json`), where the training has said so.

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
                "./mine" or "mine/", is a folder with what answers requests: a `predictor.py`, the `MLmodel` of MLflow,
                an ONNX file, or a kernel of WMLA's inference with its `model.json`. It may be an ONNX file itself.
            name: 1 to 100 letters, digits, dots, dashes and underscores.
            epoch: the weights after this epoch, from 1. By default the final ones.
            description: text for people.
            tags: words to find it by, or one text with commas.
            alias: a name that means this version from now on, such as "champion".

        Raises:
            Conflict: the job has no final weights yet.
            NotFound: there is no such job, or it has no weights of that epoch.
            Unprocessable: the folder has nothing that answers requests.
        """
        said: dict[str, Any] = {"name": name, "description": description, "tags": tags_of(tags), "alias": alias}
        if isinstance(job, os.PathLike) or (isinstance(job, str) and _means_path(job)):
            if epoch is not None:
                raise InvalidRequest("A folder has no epochs.", hint="Leave epoch out.", field="epoch")
            new_folder = NewFolderVersion(**said).check()
            return self._version(self._post_package(f"{_VERSIONS}/folders", new_folder, _files_of(job)))
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


def _load(folder: Path, model: torch.nn.Module) -> None:
    # Here and not at the top: importing torch takes about a second, and most clients never need it.
    from edt_sdk.training.checkpoints import model_files

    model_files.load(folder / "weights.pth", model)


def _means_path(text: str) -> bool:
    """Return whether a text is a path. A job's name may have a slash too, such as "digits/1 again"."""
    written = text in (".", "..") or text.startswith(("./", "../", "/", "~"))
    return written or ("/" in text and os.path.isdir(text)) or (text.endswith(ONNX) and os.path.isfile(text))


def _files_of(source: str | os.PathLike[str]) -> list[SourceFile]:
    """Return the files of a folder, or those of an ONNX model: large weights are in a second file beside it."""
    path = Path(source).expanduser()
    if path.suffix == ONNX and path.is_file():
        model = [path, path.with_name(f"{path.name}.data")]
        return [SourceFile(each.name, each, each.stat().st_size) for each in model if each.is_file()]
    return [file for file in collect(source, script=False).files if not file.spare]


def address(version: VersionReference) -> str:
    """Return the path of a version below the API."""
    return f"{_VERSIONS}/{quote(version.name, safe='')}/{quote(version.which, safe='@')}"
