"""Describe the catalogue: data sets and models that a user keeps and trains by their names.

A data set is a folder: one of the server's data folder, referenced where it lies or copied, or an upload. A model is
code with its training settings: framework, script, arguments, hyper-parameters, data set, maximum of workers. A
training of a model is an ordinary job that names them (`JobView.model`, `JobView.dataset`).
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated, Any, Self

import msgspec
from msgspec import Meta

from edt_sdk.schemas.errors import InvalidRequest, Unprocessable
from edt_sdk.schemas.frameworks import Framework, framework_named
from edt_sdk.schemas.job import DEFAULT_PRIORITY, JobView, Log, check_max_workers, check_priority

_NAME = re.compile(r"\w[\w.-]{0,99}\Z")
DEFAULT_FRAMEWORK = Framework.EDT.value
_LONGEST_TEXT = 2000
_LONGEST_ARGUMENT = 4096
# The keys that `pth_parameter_mgr` reads. A script's own settings are its arguments.
HYPERPARAMETERS = ("epochs", "train_batch_size", "test_batch_size", "optimizer", "learning_rate")


class DatasetType(StrEnum):
    """What a data set holds, for people: nothing depends on it."""

    ANY = "Any"
    CSV = "CSV"
    IMAGES = "ImageClassification"
    OBJECTS = "ObjectDetection"
    VECTORS = "ImageToVector"
    LMDB = "LMDB"
    TFRECORDS = "TFRecords"
    OTHER = "Other"


class EntryKind(StrEnum):
    """The two kinds of WMLA's console: a model can be trained, and a template is code that models are made from."""

    MODEL = "model"
    TEMPLATE = "template"


DatasetTypeName = Annotated[
    str, Meta(extra_json_schema={"enum": [each.value for each in DatasetType]}, extra={"metavar": "T"})
]
CatalogueName = Annotated[str, Meta(extra_json_schema={"minLength": 1, "maxLength": 100})]
KindName = Annotated[str, Meta(extra_json_schema={"enum": [each.value for each in EntryKind]})]


class FileEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One file of a folder.

    Attributes:
        name: its path relative to the folder, with slashes.
        size: bytes.
    """

    name: str
    size: int


class NewDataset(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A data set to be registered. Its files come from an upload, from `path` or from `source`, exactly one of these.

    Attributes:
        name: 1 to 100 letters, digits, dots, dashes and underscores.
        type: what it holds, for people.
        description: for people.
        path: a folder or file of the server's data folder, relative to it or absolute.
        source: a folder or file of the Jupyter server's own files, as its file browser names it. It is always copied.
        copy: with `path`, keep a copy. Without it the data are read where they lie.
        train, test, val: parts, relative to its folder, for scripts that ask for them. "" is the whole set.
    """

    name: CatalogueName
    type: DatasetTypeName = DatasetType.ANY.value
    description: Annotated[str, Meta(extra_json_schema={"maxLength": _LONGEST_TEXT})] = ""
    path: str | None = None
    source: str | None = None
    copy: bool = False
    train: str = ""
    test: str = ""
    val: str = ""

    def check(self) -> NewDataset:
        """Return self, or raise InvalidRequest or Unprocessable naming the field."""
        check_name(self.name, "data set")
        if self.type not in list(DatasetType):
            raise Unprocessable(
                f"{self.type!r} is no type of data set.", hint=f"There are {', '.join(DatasetType)}.", field="type"
            )
        _check_text(self.description)
        for field in ("train", "test", "val"):
            check_inside(getattr(self, field), field)
        return self


class Dataset(msgspec.Struct, frozen=True, kw_only=True):
    """A registered data set.

    Attributes:
        id: identifies it where a later entry could have the same `name`.
        mode: "reference" (used where it lies) or "copy".
        place: the absolute path on the server: the DATA_DIR of a job that uses it.
        path: the same relative to the server's data folder, "" for a copy.
        files, size: number of files and bytes when it was registered. None when they were not counted.
        created: seconds since the epoch (UTC).
        jobs: how many jobs that have not ended use it.
        trouble: one sentence when it cannot be used now, such as that its folder is gone. "" when all is well.
    """

    id: str
    name: str
    owner: str
    type: DatasetTypeName
    description: str
    mode: Annotated[str, Meta(extra_json_schema={"enum": ["reference", "copy"]})]
    place: str
    path: str
    train: str
    test: str
    val: str
    files: int | None
    size: int | None
    created: float
    jobs: int
    trouble: str


class DatasetDetails(msgspec.Struct, frozen=True, kw_only=True):
    """A data set with its jobs, ended ones too, the newest first, and the first of its files."""

    dataset: Dataset
    jobs: tuple[JobView, ...]
    files: tuple[FileEntry, ...]


class ModelSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of a model that a client gives, None where it gives none.

    Attributes:
        description: for people.
        main: main script, relative to the folder. Needed only where there is more than one candidate.
        framework: what runs the script (of a new model edtPyTorch).
        args: the script's own arguments.
        hyperparameters: some of `HYPERPARAMETERS`, which the script finds through `pth_parameter_mgr`.
        dataset: the default data set of a training, "" for none.
        max_workers: the default maximum of slots of a training (of a new model 1).
    """

    description: str | None = None
    main: str | None = None
    framework: str | None = None
    args: tuple[str, ...] | None = None
    hyperparameters: dict[str, Any] | None = None
    dataset: str | None = None
    max_workers: int | None = None

    def check(self) -> Self:
        """Return self, or raise InvalidRequest or Unprocessable naming the field."""
        _check_training(self)
        _check_text(self.description or "")
        if self.main is not None:
            check_inside(self.main, "main")
            if not self.main:
                raise InvalidRequest("main is empty.", hint="Name the script, or leave it out.", field="main")
        return self


class NewModel(ModelSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A model to be added. Its code comes from an upload, from `path`, `source` or `template`, exactly one of these.

    Attributes:
        name: 1 to 100 letters, digits, dots, dashes and underscores.
        path: a folder, script or archive of the server's data folder, relative to it or absolute.
        source: a folder, script or notebook of the Jupyter server's own files, as its file browser names it.
        template: a model or template to copy the code from, and the settings that are not given here.
        kind: "model", or "template" for code that is only the beginning of models.
    """

    name: CatalogueName
    path: str | None = None
    source: str | None = None
    template: str | None = None
    kind: KindName = EntryKind.MODEL.value

    def check(self) -> Self:
        """Return self, or raise InvalidRequest or Unprocessable naming the field."""
        check_name(self.name, "model")
        if self.kind not in list(EntryKind):
            raise Unprocessable(f"kind is 'model' or 'template', not {self.kind!r}.", field="kind")
        return super().check()


class ModelChange(ModelSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A change of a model's settings. None leaves a field as it is. `hyperparameters` are replaced as a whole."""

    def check(self) -> Self:
        """Return self, or raise InvalidRequest or Unprocessable naming the field."""
        if all(getattr(self, field) is None for field in self.__struct_fields__):
            raise InvalidRequest("Nothing to change.", hint=f"Give {', '.join(self.__struct_fields__)}.")
        return super().check()


class Model(msgspec.Struct, frozen=True, kw_only=True):
    """A model of the catalogue.

    Attributes:
        id: identifies it where a later entry could have the same `name`.
        origin: where its code came from, for people.
        template: the model it was made from, "" for none.
        console: its script takes `--train_dir` and `--weights`, as models of WMLA's console do. A training passes both.
        files, size: of its code.
        created, changed: seconds since the epoch (UTC).
        trainings: the number of jobs that train it.
        weights: it has weights of its own, with which a training begins.
    """

    id: str
    name: str
    owner: str
    kind: KindName
    description: str
    framework: str
    main: str
    args: tuple[str, ...]
    hyperparameters: dict[str, Any]
    dataset: str
    max_workers: int
    origin: str
    template: str
    console: bool
    files: int
    size: int
    created: float
    changed: float
    trainings: int
    weights: bool


class ModelDetails(msgspec.Struct, frozen=True, kw_only=True):
    """A model with its trainings, the newest first, and the files of its code."""

    model: Model
    trainings: tuple[JobView, ...]
    files: tuple[FileEntry, ...]


class ModelTraining(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings for training a model once. None takes the model's own setting.

    Attributes:
        name: the job's name, by default the model's.
        framework: the training engine (default: the model's).
        dataset: a registered data set (default: the model's), "" for none.
        max_workers: most slots the job may hold at once (default: the model's).
        args: the script's arguments, in place of the model's.
        hyperparameters: over the model's, key by key.
        priority, instance_group, mode, seed, log, env, warm_start, project, experiment: as in `JobSpec`.
    """

    name: str | None = None
    framework: str | None = None
    dataset: str | None = None
    max_workers: int | None = None
    args: tuple[str, ...] | None = None
    hyperparameters: dict[str, Any] | None = None
    priority: int = DEFAULT_PRIORITY
    instance_group: str = ""
    mode: str = "exact"
    seed: int = 0
    log: Log = "quiet"
    env: dict[str, str] = {}
    warm_start: str = ""
    project: str = ""
    experiment: str = ""

    def check(self) -> ModelTraining:
        """Return self, or raise InvalidRequest or Unprocessable naming the field. `JobSpec.check` checks the rest."""
        _check_training(self)
        check_priority(self.priority)
        return self


def check_name(name: str, what: str) -> None:
    """Raise InvalidRequest when `name` is no name for a `what`."""
    if not _NAME.match(name):
        raise InvalidRequest(
            f"{name!r} is no name for a {what}.",
            hint="Use 1 to 100 letters, digits, dots, dashes and underscores, a letter or digit first.",
            field="name",
        )


def check_inside(path: str, field: str) -> None:
    """Raise InvalidRequest when `path` is absolute or leads out of its folder."""
    # Such a path would name a file of the server outside the folder.
    if path.startswith(("/", "\\")) or ".." in path.split("/") or "\0" in path:
        raise InvalidRequest(f"{field} must be a path inside the folder, not {path!r}.", field=field)


def check_hyperparameters(values: dict[str, Any]) -> dict[str, Any]:
    """Return `values`, or raise Unprocessable for a hyper-parameter that no script would find."""
    for key, value in values.items():
        if key not in HYPERPARAMETERS:
            raise Unprocessable(
                f"There is no hyper-parameter {key!r}.",
                hint=f"There are {', '.join(HYPERPARAMETERS)}; give a setting of the script's own as an argument.",
                field="hyperparameters",
            )
        if key in ("optimizer", "learning_rate"):
            # A training can do without a schedule, but not without an optimizer.
            none = key == "learning_rate" and value is None
            if not none and not (isinstance(value, dict) and isinstance(value.get("name"), str)):
                raise Unprocessable(
                    f"{key} is an object with a name, not {value!r}.",
                    hint='Such as {"name": "SGD", "lr": 0.01}.',
                    field="hyperparameters",
                )
        # A bool is an int in Python: true would pass as 1.
        elif isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise Unprocessable(f"{key} is a whole number above 0, not {value!r}.", field="hyperparameters")
    return values


def _check_training(given: ModelSettings | ModelTraining) -> None:
    """Check the settings that both have."""
    if given.framework is not None:
        framework_named(given.framework)
    if given.max_workers is not None:
        check_max_workers(given.max_workers)
    if given.hyperparameters is not None:
        check_hyperparameters(given.hyperparameters)
    if given.dataset:
        check_name(given.dataset, "data set")
    if any(len(word) > _LONGEST_ARGUMENT or "\0" in word for word in given.args or ()):
        raise InvalidRequest(f"An argument has at most {_LONGEST_ARGUMENT} characters and no NUL.", field="args")


def _check_text(text: str) -> None:
    if len(text) > _LONGEST_TEXT:
        raise InvalidRequest(f"description has at most {_LONGEST_TEXT} characters.", field="description")
