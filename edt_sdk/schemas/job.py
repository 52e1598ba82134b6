"""What a job is: the settings a client submits (`JobSpec`) or changes (`JobPatch`), and the job as shown (`JobView`).

A setting that may change later is a field of `JobSettings` and of `JobPatch`, and nothing else lists the settings: the
options of the command line and of magics, the OpenAPI components and the front end's types are made from the structs
(`fields.py`). `check` runs at the two trust edges: in the client before it sends, and in the server when a request
arrives. What depends on the server (groups, package, interpreter) is checked there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from enum import StrEnum
from functools import partial
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from edt_sdk.schemas.errors import EdtError, InvalidRequest, Unprocessable
from edt_sdk.schemas.fields import did_you_mean, misfit, near, words_of
from edt_sdk.schemas.frameworks import OFFERED, Framework, framework_named
from edt_sdk.schemas.registered import Registered, WmlaRequest
from edt_sdk.schemas.torchrun import TorchrunOptions

DEFAULT_PRIORITY = 5000
DEFAULT_INSTANCE_GROUP = "default"
DEFAULT_SHARDS = 8
MOST_PRIORITY = 10**9
MOST_WORKERS = 10**6
MOST_THREADS = 1024
LONGEST_PATH = 4096
MOST_NOTES = 10_000
MOST_TAGS = 20
LONGEST_TAG = 40
LONGEST_LABEL = 100
# The settings by which the scheduler divides slots. It never sees the others, which may change after the job has ended.
SCHEDULED = ("priority", "max_workers", "instance_group")
T = TypeVar("T")
S = TypeVar("S", bound=msgspec.Struct)
Refusal = type[InvalidRequest] | type[Unprocessable]
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
# msgspec's messages: "… unknown field `shar` - at `$.instance_groups[0]`", "Expected `int`, got `str` - at `$.seed`".
_UNKNOWN = re.compile(r"Object contains unknown field `(?P<name>[^`]*)`(?: - at `\$\.?(?P<place>[^`]*)`)?\Z")
_TYPE = re.compile(
    r"Expected `(?P<wanted>[^`]+)`, got `(?P<got>[^`]+)` - at `\$\.(?P<place>\w+(?:\.\w+|\[(?:\d+|\.\.\.)\])*)`\Z"
)
_STEP = re.compile(r"\[(\d+|\.\.\.)\]|(\w+)")
_FIELD = re.compile(r"field `(?P<named>[^`]+)`|at `\$\.(?:[^`]*\.)?(?P<at>\w+)(?:\[[^`\]]*\])*`")


def tags_of(given: Iterable[str] | str) -> tuple[str, ...]:
    """Return tags from a sequence, or from one text with commas."""
    return tuple(tag.strip() for tag in given.split(",") if tag.strip()) if isinstance(given, str) else tuple(given)


# Bounds are described here and enforced in `check`, because msgspec's own errors have no hints.
Count = Annotated[int, Meta(extra_json_schema={"minimum": 1, "maximum": MOST_WORKERS}, extra={"metavar": "N"})]
Threads = Annotated[int, Meta(extra_json_schema={"minimum": 1, "maximum": MOST_THREADS}, extra={"metavar": "N"})]
Priority = Annotated[int, Meta(extra_json_schema={"minimum": 1, "maximum": MOST_PRIORITY}, extra={"metavar": "P"})]
GroupName = Annotated[str, Meta(extra={"metavar": "G"})]
Notes = Annotated[str, Meta(extra_json_schema={"maxLength": MOST_NOTES}, extra={"metavar": "TEXT"})]
Tags = Annotated[
    tuple[str, ...],
    Meta(extra_json_schema={"maxItems": MOST_TAGS, "uniqueItems": True}, extra={"metavar": "TAG,…", "parser": tags_of}),
]
Label = Annotated[str, Meta(extra_json_schema={"maxLength": LONGEST_LABEL}, extra={"metavar": "NAME"})]
Mode = Annotated[str, Meta(extra_json_schema={"enum": ["exact", "fast"]})]
Log = Annotated[str, Meta(extra_json_schema={"enum": ["quiet", "batches"]})]
FrameworkName = Annotated[str, Meta(extra_json_schema={"enum": list(OFFERED)}, extra={"metavar": "F"})]
Seconds = Annotated[float, Meta(extra_json_schema={"exclusiveMinimum": 0}, extra={"metavar": "S"})]
DatasetName = Annotated[str, Meta(extra={"metavar": "NAME"})]
JobId = Annotated[str, Meta(extra={"metavar": "JOB"})]


class JobState(StrEnum):
    """The states of a job. The last four are final."""

    SUBMITTED = "SUBMITTED"
    PENDING = "PENDING"
    LAUNCHING = "LAUNCHING"
    RUNNING = "RUNNING"
    RECOVERING = "RECOVERING"
    SUSPENDED = "SUSPENDED"
    FINISHED = "FINISHED"
    KILLED = "KILLED"
    FAILED = "FAILED"
    ERROR = "ERROR"

    @property
    def final(self) -> bool:
        """True when the job has ended."""
        return self in _FINAL

    @property
    def word(self) -> str:
        """The state for people: "stopped" where programs see KILLED, else the name in small letters."""
        return self.shown.lower()

    @property
    def shown(self) -> str:
        """The state for people in capitals, as tables and cards have it."""
        return "STOPPED" if self is JobState.KILLED else self.value


_FINAL = frozenset({JobState.FINISHED, JobState.KILLED, JobState.FAILED, JobState.ERROR})


class JobSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a job that may change after it was submitted.

    Attributes:
        priority: weight under fair share; twice the weight gets about twice the slots. At most its queue's
            `max_priority` (10,000), except for admins.
        max_workers: most slots it may hold at once.
        instance_group: the queue, empty for the server's first.
        notes: text about the job for people, at most 10,000 characters.
        tags: words to find it by, at most 20 of at most 40 characters, separated by commas.
        project: name of the project it belongs to, at most 100 characters without a slash.
        experiment: name of the experiment in that project whose runs it is compared with.
    """

    max_workers: Count
    priority: Priority = DEFAULT_PRIORITY
    instance_group: GroupName = ""
    notes: Notes = ""
    tags: Tags = ()
    project: Label = ""
    experiment: Label = ""


class JobPatch(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A change of a job's settings. None leaves a field as it is.

    Attributes:
        priority: weight under fair share; twice the weight gets about twice the slots. At most its queue's
            `max_priority` (10,000), except for admins.
        max_workers: most slots it may hold at once.
        instance_group: the queue it moves to.
        notes: text about the job for people; empty for none.
        tags: words to find it by, separated by commas, in place of the present ones; empty for none.
        project: the project it belongs to; empty for none.
        experiment: the experiment in that project; empty for none.
    """

    priority: Priority | None = None
    max_workers: Count | None = None
    instance_group: GroupName | None = None
    notes: Notes | None = None
    tags: Tags | None = None
    project: Label | None = None
    experiment: Label | None = None

    def check(self) -> JobPatch:
        """Return self, or raise Unprocessable or InvalidRequest."""
        changes = self.changes()
        if not changes:
            raise InvalidRequest(
                "Nothing to change.", hint=f"Give {', '.join(self.__struct_fields__)}.", field="priority"
            )
        # "" is the first queue in a submission. A change has to name the queue that the job moves to.
        if self.instance_group == "":
            raise Unprocessable("instance_group is empty.", hint="Name the queue.", field="instance_group")
        _check_settings(changes)
        return self

    def changes(self) -> dict[str, Any]:
        """Return the settings that this patch sets, by name."""
        return {name: value for name in self.__struct_fields__ if (value := getattr(self, name)) is not None}

    def scheduling(self) -> JobPatch:
        """Return the part that the scheduler needs to know."""
        return JobPatch(**{name: getattr(self, name) for name in SCHEDULED})

    def apply_to(self, settings: JobSettings) -> JobSettings:
        """Return the settings after the change. Unprocessable for an experiment without a project."""
        changed = msgspec.structs.replace(settings, **self.changes())
        check_experiment(changed.project, changed.experiment)
        return changed


class JobSpec(JobSettings, frozen=True, kw_only=True):
    """One submission.

    Attributes:
        name: what to call the job; need not be unique.
        main: main script, relative to the code folder, with slashes; may be empty with a `command`.
        max_workers: most slots it may hold at once; 1 where a submission does not say.
        min_workers: fewest slots it can run on; with `slots_per_unit` a multiple of that, or 1 for one unit.
        slots_per_unit: its slots come and go N at a time; `max_workers` and `min_workers` are multiples of it.
        pending_timeout: seconds after which it ends with ERROR if it has never held a slot (default: its group's).
        code_dir: name of the package's one top folder, empty when its files lie at the top.
        args: the script's own arguments, as words; a text is split as a shell splits it.
        env: an environment variable for driver and workers; repeatable.
        mode: exact gives equal bits for any number of workers; fast the same batches, not the same bits.
        seed: seed of sample order, dropout and augmentation.
        log: quiet prints a line for each epoch, seldom in long trainings; batches prints lines for every micro-batch,
            as WMLA does. What the script prints is always there.
        threads_per_slot: threads of a worker (default: the server's cores ÷ slots). They are part of the bits.
        python: path of the Python to run the job in (default: this Python, or the server's own).
        warm_start: id of another job, whose final weights (else its newest epoch's) this model starts with, or a
            version such as digits@champion.
        python_version: "major.minor" the submitter's code was written or pickled for, null when it does not matter.
        framework: what runs the script. edtPyTorch is the elastic engine; PyTorch starts the script as it is;
            distPyTorch starts it once for each slot, with RANK and WORLD_SIZE; torchrun starts a PyTorch Elastic
            script, with torchrun's options after --.
        command: command to run in the code folder in place of the script; not with edtPyTorch.
        data_path: the job's DATA_DIR, relative to the server's data folder; empty for that folder itself.
        dataset: name of a registered data set, whose folder is the job's DATA_DIR; not with `data_path`.
        registered: what the job uses of the catalogue. Only the server sets it.
        search: id of the search that it is a trial of, with whose trials it shares slots. Only the server sets it.
        torchrun: how torchrun starts the script, for the framework of that name.
        wmla: what only WMLA clients want to read again, null for other submissions.
    """

    name: Annotated[str, Meta(extra_json_schema={"minLength": 1, "maxLength": 200})]
    main: Annotated[str, Meta(extra={"metavar": "FILE"})]
    min_workers: Count = 1
    slots_per_unit: Count = 1
    pending_timeout: Seconds | None = None
    code_dir: str = ""
    args: tuple[str, ...] = ()
    env: Annotated[dict[str, str], Meta(extra={"metavar": "K=V"})] = {}
    mode: Mode = "exact"
    seed: Annotated[int, Meta(extra_json_schema={"minimum": 0})] = 0
    log: Log = "quiet"
    threads_per_slot: Threads | None = None
    python: Annotated[str, Meta(extra={"metavar": "PATH"})] | None = None
    python_version: str | None = None
    warm_start: JobId = ""
    framework: FrameworkName = Framework.EDT.value
    command: Annotated[tuple[str, ...], Meta(extra={"metavar": "CMD"})] = ()
    data_path: Annotated[str, Meta(extra={"metavar": "DIR"})] = ""
    torchrun: TorchrunOptions | None = None
    wmla: WmlaRequest | None = None
    dataset: DatasetName = ""
    registered: Registered | None = None
    search: str = ""

    @property
    def settings(self) -> JobSettings:
        """The settings the job starts with."""
        return JobSettings(**{name: getattr(self, name) for name in JobSettings.__struct_fields__})

    def check(self) -> JobSpec:
        """Return self, or raise InvalidRequest or Unprocessable naming the field."""
        if not self.name.strip() or len(self.name) > 200:
            raise InvalidRequest("name must have 1 to 200 characters.", field="name")
        # Other users see it in their terminals, where a control character is a command.
        if not self.name.isprintable():
            raise InvalidRequest(f"name has a character that cannot be shown: {self.name!r}.", field="name")
        self._check_program()
        _check_settings(msgspec.structs.asdict(self.settings))
        check_experiment(self.project, self.experiment)
        check_units(self.min_workers, self.max_workers, self.slots_per_unit)
        # A comparison with both ends also refuses NaN.
        if self.pending_timeout is not None and not 0 < self.pending_timeout < float("inf"):
            raise Unprocessable(
                f"pending_timeout is a number of seconds above 0, not {self.pending_timeout:g}.",
                hint="Leave it out to wait as long as it takes.",
                field="pending_timeout",
            )
        if self.mode not in ("exact", "fast"):
            raise Unprocessable(f"mode is 'exact' or 'fast', not {self.mode!r}.", field="mode")
        if self.log not in ("quiet", "batches"):
            raise Unprocessable(f"log is 'quiet' or 'batches', not {self.log!r}.", field="log")
        if not 0 <= self.seed < 2**63:
            raise Unprocessable("seed must lie in 0 … 2**63 - 1.", field="seed")
        if self.threads_per_slot is not None and not 1 <= self.threads_per_slot <= MOST_THREADS:
            raise Unprocessable(
                f"threads_per_slot must lie in 1 … {MOST_THREADS}, not {self.threads_per_slot}.",
                field="threads_per_slot",
            )
        for key, value in self.env.items():
            if not _ENV_NAME.match(key) or "\0" in value:
                raise InvalidRequest(f"{key!r} is not a usable environment variable.", field="env")
        return self

    def _check_program(self) -> None:
        for name in ("main", "python", "data_path"):
            if len(getattr(self, name) or "") > LONGEST_PATH:
                raise InvalidRequest(f"{name} has at most {LONGEST_PATH} characters.", field=name)
        framework = framework_named(self.framework)
        if framework is Framework.SERVE and (self.registered is None or self.registered.serves is None):
            raise Unprocessable(
                "A deployment is no job to submit.",
                hint="Deploy a version: client.deploy('digits@champion'), or at a shell: edt deploy digits@champion.",
                field="framework",
            )
        if self.command and framework is Framework.EDT:
            raise Unprocessable(
                "The elastic engine runs a Python script, not a command.",
                hint="Submit it with framework='PyTorch', or give main='train.py'.",
                field="command",
            )
        if self.command and self.args:
            raise InvalidRequest(
                "A command has its arguments in itself.", hint="Write them behind its name.", field="args"
            )
        if (not self.main and not self.command) or _leaves(self.main):
            raise InvalidRequest(
                f"main must be a path inside the package, not {self.main!r}.",
                hint="Give it relative to the submitted folder, such as main='train.py'.",
                field="main",
            )
        if _leaves(self.data_path):
            raise InvalidRequest(
                f"data_path must be a path inside the server's data folder, not {self.data_path!r}.",
                hint="Give it relative to that folder, such as data_path='mnist'.",
                field="data_path",
            )
        # The server itself sets both when it looks the data set up. Such a spec also has `registered`.
        if self.dataset and self.data_path and self.registered is None:
            raise InvalidRequest(
                "A job has a dataset or a data_path, not both.", hint="Leave data_path out.", field="dataset"
            )
        if self.torchrun is not None:
            self.torchrun.check()


# Only these fields become options of a submission and of a clone. Packing or the server decides the others.
SUBMITTABLE = tuple(
    name
    for name in JobSpec.__struct_fields__
    if name not in ("main", "code_dir", "args", "python", "python_version", "torchrun", "wmla", "registered", "search")
)
CLONEABLE = tuple(
    name
    for name in ("main", *SUBMITTABLE)
    if name not in ("slots_per_unit", "pending_timeout", "threads_per_slot", "framework", "command", "data_path")
)


def _leaves(path: str) -> bool:
    # Such a path would name a file of the server outside the package or the data folder. A backslash is Windows' root.
    return path.startswith(("/", "\\")) or ".." in path.split("/")


def check_max_workers(value: int) -> None:
    """Raise Unprocessable when `value` is outside 1 … 10**6."""
    if not 1 <= value <= MOST_WORKERS:
        raise Unprocessable(
            f"max_workers must be at least 1, not {value}."
            if value < 1
            else f"max_workers must be at most {MOST_WORKERS:,}, not {value:,}.",
            hint="It is the most slots the job may use at once; the job starts on one.",
            field="max_workers",
        )


def check_units(least: int, most: int, unit: int) -> None:
    """Raise Unprocessable unless a job with these `min_workers`, `max_workers` and `slots_per_unit` can exist."""
    if unit < 1:
        raise Unprocessable(f"slots_per_unit must be at least 1, not {unit}.", field="slots_per_unit")
    if most < unit or most % unit:
        nearest = max(unit, most // unit * unit)
        raise Unprocessable(
            f"max_workers is {most}, which is no multiple of slots_per_unit, {unit}.",
            hint=f"Say max_workers={nearest}.",
            field="max_workers",
        )
    # A minimum of 1 stands for one unit, so that the default fits every unit.
    if least < 1 or (least > 1 and least % unit):
        raise Unprocessable(
            f"min_workers is {least}, which is no multiple of slots_per_unit, {unit}."
            if least > 1
            else f"min_workers must be at least 1, not {least}.",
            hint=f"Say min_workers={max(1, least // unit) * unit}.",
            field="min_workers",
        )
    if least > most:
        raise Unprocessable(
            f"min_workers is {least} and max_workers {most}: it could never have as many as it needs.",
            hint=f"Say max_workers={least} or more.",
            field="min_workers",
        )


def check_priority(value: int) -> None:
    """Raise Unprocessable when `value` is outside 1 … 10**9."""
    if not 1 <= value <= MOST_PRIORITY:
        raise Unprocessable(
            f"priority must lie in 1 … {MOST_PRIORITY}, not {value}.",
            hint=f"The default is {DEFAULT_PRIORITY}; twice that gets about twice the slots.",
            field="priority",
        )


def check_notes(text: str) -> None:
    """Raise Unprocessable unless `text` can be a job's notes."""
    if len(text) > MOST_NOTES:
        raise Unprocessable(
            f"notes have at most {MOST_NOTES:,} characters; these have {len(text):,}.",
            hint="Write longer texts into a file among the job's results.",
            field="notes",
        )
    if "\0" in text:  # PostgreSQL cannot store it
        raise Unprocessable("notes cannot contain a NUL character.", hint="Remove it.", field="notes")


def check_tags(tags: tuple[str, ...]) -> None:
    """Raise Unprocessable unless these can be a job's tags."""
    if len(tags) > MOST_TAGS:
        raise Unprocessable(
            f"A job has at most {MOST_TAGS} tags; these are {len(tags)}.", hint="Leave some out.", field="tags"
        )
    for at, tag in enumerate(tags):
        if not tag.strip() or tag != tag.strip() or "," in tag or not tag.isprintable() or len(tag) > LONGEST_TAG:
            raise Unprocessable(
                f"{tag!r} is no tag.",
                hint=f"A tag has 1 to {LONGEST_TAG} characters, no comma, and no blank at its start or end.",
                field="tags",
            )
        if tag in tags[:at]:
            raise Unprocessable(f"The tag {tag!r} is there twice.", hint="Give each tag once.", field="tags")


def check_label(value: str, field: str) -> None:
    """Raise Unprocessable unless `value` can be the `project` or `experiment` of a job. "" stands for none."""
    # It is a part of an address, where a slash ends it and dots alone have a meaning of their own.
    plain = value == value.strip() and value.isprintable() and "/" not in value and bool(value.strip("."))
    if value and (not plain or len(value) > LONGEST_LABEL):
        raise Unprocessable(
            f"{value!r:.120} is no name of {'a project' if field == 'project' else 'an experiment'}.",
            hint=f"It has at most {LONGEST_LABEL} characters, no slash, no blank at an end, and not only dots.",
            field=field,
        )


def check_experiment(project: str, experiment: str) -> None:
    """Raise Unprocessable for an experiment without a project."""
    if experiment and not project:
        raise Unprocessable(
            f"The experiment {experiment!r} is in no project.",
            hint="Give project as well, or an empty experiment.",
            field="experiment",
        )


# By field: submission and patch share the checks, so that both edges refuse the same values.
_CHECKS: dict[str, Callable[[Any], object]] = {
    "priority": check_priority,
    "max_workers": check_max_workers,
    "notes": check_notes,
    "tags": check_tags,
    "project": partial(check_label, field="project"),
    "experiment": partial(check_label, field="experiment"),
}


def _check_settings(values: dict[str, Any]) -> None:
    for name, value in values.items():
        if name in _CHECKS:
            _CHECKS[name](value)


class JobResume(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """How a job goes on.

    Attributes:
        checkpoint: checkpoint to go on from, such as epoch-3 (default: the newest).
        instance_group: the queue it goes on in (default: the one it was in).
    """

    checkpoint: Annotated[str, Meta(extra_json_schema={"minLength": 1}, extra={"metavar": "NAME"})] | None = None
    instance_group: GroupName | None = None

    def check(self) -> JobResume:
        """Return self, or raise InvalidRequest for an empty name, which may come from a variable that is not set."""
        if self.checkpoint is not None and not self.checkpoint.strip():
            raise InvalidRequest(
                "The name of a checkpoint is empty.",
                hint="Name it as job.checkpoints() does, such as epoch-3; leave it out for the newest.",
                field="checkpoint",
            )
        return self


REASON_CODES = (
    "suspended", "never_fits", "busy", "starting", "share", "capped", "order", "limit", "unit", "slower",
    "quota", "restarts", "apart",
)  # fmt: skip


class Reason(msgspec.Struct, frozen=True, kw_only=True):
    """Why a job does not hold what it asked for.

    Attributes:
        code: a word for programs.
        text: a plain sentence with the numbers, for people.
        details: how it is computed, for those who ask; "" when there is nothing to add.
        held, entitled, asked: slots.
        numbers: the other numbers of the sentence.
    """

    code: Annotated[str, Meta(extra_json_schema={"enum": list(REASON_CODES)})]
    text: str
    details: str = ""
    held: int
    entitled: int
    asked: int
    numbers: dict[str, Any] = {}

    def __repr__(self) -> str:
        return self.text


class JobProgress(msgspec.Struct, frozen=True, kw_only=True):
    """How far the training is. Updates and epochs count from 0.

    Attributes:
        update: number of committed updates.
        loss, accuracy: means over the samples of the running epoch so far, and of the last epoch once that has ended.
        test_loss, test_accuracy: means of the last validation.
        not_a_number: that loss is NaN or infinite, for which JSON has only null.
        inexact: why the weights depend on the number of workers, in sentences. Empty while nothing was found.
    """

    update: int = 0
    total_updates: int = 0
    epoch: int = 0
    epochs: int = 0
    loss: float | None = None
    accuracy: float | None = None
    test_loss: float | None = None
    test_accuracy: float | None = None
    samples_per_second: float | None = None
    not_a_number: bool = False
    inexact: str = ""


class JobView(JobSettings, frozen=True, kw_only=True):
    """A job as the server shows it. Times are seconds since the epoch (UTC).

    Attributes:
        slots: how many slots it holds.
        shards: number of parts of an update's batch, null before the first training.
        reason: why it does not hold what it asked for.
        message: one sentence about the state, empty when the state needs none.
        result_dir: where its results lie on the server's machine.
        warm_start: id of the job or name of the version with whose weights it started. Empty for the script's own.
        framework: what runs its script.
        dataset: name of the registered data set that it reads. Empty for none.
        model: name of the model of the catalogue that it trains. Empty for none.
        validates: id of the job with the training it validates. Empty for a job that trains.
        log: how much of the training its log has.
        search: id of the search that it is a trial of. Empty for none.
    """

    id: str
    name: str
    owner: str
    state: JobState
    state_since: float
    created: float
    started: float | None
    ended: float | None
    mode: str
    seed: int
    main: str
    args: tuple[str, ...]
    slots: int
    shards: int | None
    progress: JobProgress | None
    reason: Reason | None
    message: str
    result_dir: str
    warm_start: str = ""
    min_workers: int = 1
    slots_per_unit: int = 1
    pending_timeout: float | None = None
    framework: str = Framework.EDT.value
    dataset: str = ""
    model: str = ""
    validates: str = ""
    log: Log = "quiet"
    search: str = ""

    @property
    def usable_slots(self) -> int:
        """The slots that it can use: its maximum, or as many as it has shards where these are fewer."""
        return max(self.slots, self.min_workers, min(self.max_workers, self.shards or self.max_workers))


def parse_spec(data: bytes | str) -> JobSpec:
    """Return a checked JobSpec from JSON, or raise InvalidRequest with the name of the wrong field."""
    return parse_submission(data, JobSpec).check()


def parse_submission(data: bytes | str, cls: type[S]) -> S:
    """Return a `cls` from JSON, not checked yet, or raise InvalidRequest with the name of the wrong field."""
    check_spelling(parse_change(data, dict[str, msgspec.Raw], InvalidRequest), cls)
    return parse_change(data, cls, InvalidRequest)


def check_spelling(names: Iterable[str], cls: type[msgspec.Struct]) -> None:
    """Raise InvalidRequest for a name that is no field of `cls` but nearly one.

    Other unknown fields are ignored, because a newer client may send settings that this server does not know.
    """
    known = cls.__struct_fields__
    for name in names:
        if name not in known and near(name, known) is not None:
            raise _no_field(name, known, InvalidRequest)


def parse_patch(data: bytes | str) -> JobPatch:
    """Return a checked JobPatch from JSON. Raises as `parse_change`, and InvalidRequest when it changes nothing."""
    return parse_change(data, JobPatch).check()


def parse_resume(data: bytes | str) -> JobResume:
    """Return a checked JobResume from JSON or an empty body, or raise InvalidRequest naming the wrong field."""
    return (parse_change(data, JobResume, InvalidRequest) if data else JobResume()).check()


def parse_change(data: bytes | str, cls: type[T], refusal: Refusal = Unprocessable) -> T:
    """Return a `cls` from JSON, not checked yet.

    Raises:
        InvalidRequest: the body is not JSON.
        refusal: a field is unknown or has a wrong value. `field` names it.
    """
    try:
        try:
            return msgspec.json.decode(data, type=cls)
        except msgspec.ValidationError:
            # Read again without types, for the arguments that are a text and for the value that the error names.
            value = msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError) as wrong:  # the latter for brackets in brackets
        raise InvalidRequest(f"The body is not JSON: {wrong}.") from None
    return convert_change(value, cls, refusal)


def convert_change(value: Any, cls: type[T], refusal: Refusal = Unprocessable) -> T:
    """Return a `cls` from plain data, such as the arguments of a call. Raises `refusal` as `parse_change`.

    The arguments of a script, `args`, may be a text, which is split as a shell splits it.
    """
    if isinstance(value, dict) and isinstance(value.get("args"), str):
        value = {**value, "args": words_of(value["args"])}
    try:
        return msgspec.convert(value, cls)
    except msgspec.ValidationError as wrong:
        raise _misfit(wrong, value, cls, refusal) from None


def _misfit(wrong: msgspec.ValidationError, value: Any, cls: Any, refusal: Refusal) -> EdtError:
    # msgspec names the field, the type and the place only in its message.
    text = str(wrong)
    if unknown := _UNKNOWN.match(text):
        _, components = msgspec.json.schema_components([cls])
        known = {name for each in components.values() for name in each.get("properties", ())}
        return _no_field(unknown["name"], known, refusal, unknown["place"] or "")
    if (typed := _TYPE.match(text)) and (found := _FIELD.search(text)):
        whole, inside, _ = typed["place"].partition("[...]")
        shown = f"Each value of {whole}" if inside else whole
        return refusal(misfit(_at(value, typed["place"], typed["got"]), typed["wanted"], shown), field=found["at"])
    found = _FIELD.search(text)
    ids = {"field": found["named"] or found["at"]} if found else {}
    return refusal(f"{text.replace('$.', '').rstrip('.')}.", **ids)


def _no_field(name: str, known: Iterable[str], refusal: Refusal, place: str = "") -> EdtError:
    where = f" in {place}" if place else ""
    return refusal(f"There is no field {name!r}{where}.", hint=did_you_mean(name, known), field=name)


def _at(value: Any, place: str, got: str) -> Any:
    """Return the value at a place such as `instance_groups[0].share`, or `env[...]` for a value of the type `got`."""
    for index, name in _STEP.findall(place):
        if index == "...":
            value = next((each for each in value.values() if type(each).__name__ == got), None)
        else:
            value = value[int(index)] if index else value[name]
    return value
