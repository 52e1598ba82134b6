"""What a job is, as told to the server (`JobSpec`) and as told by it (`JobView`).

Checks that need no server live in `JobSpec.check`, so that the SDK refuses before it sends and the server refuses
with the same words. What depends on the server (groups, package, interpreter) is checked there.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Any, TypeVar

import msgspec

from edt_sdk.schemas.errors import EdtError, InvalidRequest, Unprocessable
from edt_sdk.schemas.frameworks import Framework, framework_named
from edt_sdk.schemas.registered import Registered
from edt_sdk.schemas.torchrun import TorchrunOptions
from edt_sdk.schemas.wmla import WmlaRequest

DEFAULT_PRIORITY = 5000
DEFAULT_INSTANCE_GROUP = "default"
DEFAULT_SHARDS = 8
T = TypeVar("T")
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
# Where msgspec says what is wrong: "… field `shar` …", "… - at `$.instance_groups[0].share`".
_FIELD = re.compile(r"field `(?P<named>[^`]+)`|at `\$\.(?:[^`]*\.)?(?P<at>\w+)(?:\[[^`\]]*\])*`")


class JobState(StrEnum):
    """The states of a job; the last four are final."""

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


_FINAL = frozenset({JobState.FINISHED, JobState.KILLED, JobState.FAILED, JobState.ERROR})


class JobSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One submission.

    Attributes:
        name: what people call it; need not be unique.
        main: main script, relative to the code folder, POSIX separators; may be "" with a `command`.
        max_workers: most slots the job may hold at once, ≥ 1.
        min_workers: slots without which it does not run at all; 1 with `slots_per_unit` means one unit.
        slots_per_unit: its slots come and go this many at a time; the other two are multiples of it.
        pending_timeout: seconds after which it ends with ERROR if it has never got a slot; None for what its instance
            group says.
        code_dir: name of the package's one top folder, or "" when its files lie at the top.
        args: the script's own arguments.
        env: environment variables for driver and workers.
        priority: weight under fair share, ≥ 1.
        instance_group: the queue, "" for the server's first.
        mode: "exact" (equal bits for any number of workers) or "fast".
        seed: seed of sample order, dropout and augmentation; never taken from the clock.
        threads_per_slot: intra-op threads of a worker, None for cores ÷ slots of the server. Part of the bits.
        python: interpreter to run the job in, None for the server's configured one.
        warm_start: id of another job of the same owner, whose final weights (else its newest epoch's) this one's model
            begins with; "" for the script's own.
        python_version: "major.minor" the submitter's code was written or pickled for, None when that does not matter.
        framework: what runs the script, see `Framework`.
        command: run in place of the script, in the code folder; not with the elastic engine, which needs a script.
        data_path: the job's DATA_DIR, relative to the server's data folder; "" for that folder itself.
        dataset: name of a data set of the catalogue, whose folder is the job's DATA_DIR; not with `data_path`.
        registered: what of the catalogue it uses; the server's word, whatever a client says.
        torchrun: how the script is started, for the framework of that name.
        wmla: what the submission of a WMLA client said that only they want to see again, None for other submissions.
    """

    name: str
    main: str
    max_workers: int
    min_workers: int = 1
    slots_per_unit: int = 1
    pending_timeout: float | None = None
    code_dir: str = ""
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
    priority: int = DEFAULT_PRIORITY
    instance_group: str = ""
    mode: str = "exact"
    seed: int = 0
    threads_per_slot: int | None = None
    python: str | None = None
    python_version: str | None = None
    warm_start: str = ""
    framework: str = Framework.EDT.value
    command: tuple[str, ...] = ()
    data_path: str = ""
    torchrun: TorchrunOptions | None = None
    wmla: WmlaRequest | None = None
    dataset: str = ""
    registered: Registered | None = None

    def check(self) -> JobSpec:
        """Return self, or raise InvalidRequest or Unprocessable naming the field."""
        if not self.name.strip() or len(self.name) > 200:
            raise InvalidRequest("name must have 1 to 200 characters.", field="name")
        self._check_program()
        check_max_workers(self.max_workers)
        check_units(self.min_workers, self.max_workers, self.slots_per_unit)
        if self.pending_timeout is not None and not 0 < self.pending_timeout < float("inf"):
            raise Unprocessable(
                f"pending_timeout is a number of seconds above 0, not {self.pending_timeout:g}.",
                hint="Leave it out to wait as long as it takes.",
                field="pending_timeout",
            )
        check_priority(self.priority)
        if self.mode not in ("exact", "fast"):
            raise Unprocessable(f"mode is 'exact' or 'fast', not {self.mode!r}.", field="mode")
        if not 0 <= self.seed < 2**63:
            raise Unprocessable("seed must lie in 0 … 2**63 - 1.", field="seed")
        if self.threads_per_slot is not None and self.threads_per_slot < 1:
            raise Unprocessable("threads_per_slot must be at least 1.", field="threads_per_slot")
        for key, value in self.env.items():
            if not _ENV_NAME.match(key) or "\0" in value:
                raise InvalidRequest(f"{key!r} is not a usable environment variable.", field="env")
        return self

    def _check_program(self) -> None:
        framework = framework_named(self.framework)
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
        if self.dataset and self.data_path and self.registered is None:
            raise InvalidRequest(
                "A job has a dataset or a data_path, not both.", hint="Leave data_path out.", field="dataset"
            )
        if self.torchrun is not None:
            self.torchrun.check()


def _leaves(path: str) -> bool:
    return path.startswith(("/", "\\")) or ".." in path.split("/")


def check_max_workers(value: int) -> int:
    """`value`, or Unprocessable when it is below 1."""
    if value < 1:
        raise Unprocessable(
            f"max_workers must be at least 1, not {value}.",
            hint="It is the most slots the job may use at once; the job starts on one.",
            field="max_workers",
        )
    return value


def check_units(least: int, most: int, unit: int) -> None:
    """Unprocessable unless a job with these `min_workers`, `max_workers` and `slots_per_unit` can exist."""
    if unit < 1:
        raise Unprocessable(f"slots_per_unit must be at least 1, not {unit}.", field="slots_per_unit")
    if most < unit or most % unit:
        nearest = max(unit, most // unit * unit)
        raise Unprocessable(
            f"max_workers is {most}, which is no multiple of slots_per_unit, {unit}.",
            hint=f"Say max_workers={nearest}.",
            field="max_workers",
        )
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


def check_priority(value: int) -> int:
    """`value`, or Unprocessable when it is outside 1 … 10**9."""
    if not 1 <= value <= 10**9:
        raise Unprocessable(
            f"priority must lie in 1 … 1000000000, not {value}.",
            hint=f"The default is {DEFAULT_PRIORITY}; twice that gets about twice the slots.",
            field="priority",
        )
    return value


class JobPatch(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What may change while a job lives; None leaves a field as it is."""

    priority: int | None = None
    max_workers: int | None = None
    instance_group: str | None = None

    def check(self) -> JobPatch:
        """Return self, or raise Unprocessable or InvalidRequest."""
        if self.priority is None and self.max_workers is None and self.instance_group is None:
            raise InvalidRequest(
                "Nothing to change.", hint="Give priority, max_workers or instance_group.", field="priority"
            )
        if self.priority is not None:
            check_priority(self.priority)
        if self.max_workers is not None:
            check_max_workers(self.max_workers)
        if self.instance_group == "":
            raise Unprocessable("instance_group is empty.", hint="Name the queue.", field="instance_group")
        return self


class JobResume(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a job goes on.

    Attributes:
        checkpoint: what to go on from, as `job.checkpoints()` names it, such as "epoch-3"; None for the newest.
        instance_group: the queue it goes on in; None for the one it was in.
    """

    checkpoint: str | None = None
    instance_group: str | None = None

    def check(self) -> JobResume:
        """Return self, or raise InvalidRequest for an empty name: it may come from a variable that is not set."""
        if self.checkpoint is not None and not self.checkpoint.strip():
            raise InvalidRequest(
                "The name of a checkpoint is empty.",
                hint="Name it as job.checkpoints() does, such as epoch-3; leave it out for the newest.",
                field="checkpoint",
            )
        return self


class Reason(msgspec.Struct, frozen=True, kw_only=True):
    """Why a job does not hold what it asked for.

    Attributes:
        code: a word for programs: "busy", "share", "capped", "starting", "order", "limit", "unit", "slower",
            "never_fits", "suspended".
        text: one sentence with the numbers, for people.
        held, entitled, asked: slots.
        numbers: whatever else the sentence mentions.
    """

    code: str
    text: str
    held: int
    entitled: int
    asked: int
    numbers: dict[str, Any] = {}


class JobProgress(msgspec.Struct, frozen=True, kw_only=True):
    """How far the training is. Updates and epochs count from 0; `update` is the number of committed updates.

    `loss` and `accuracy` are means over the last update's samples; the `test_` ones are of the last validation.
    `not_a_number`: the loss of the last update is none, or infinite; JSON has only null for it.
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


class JobView(msgspec.Struct, frozen=True, kw_only=True):
    """A job as the server shows it. Times are seconds since the epoch (UTC).

    `warm_start` is the id of the job with whose weights its model began, "" for the script's own. `dataset` and `model`
    are names of the catalogue: what it reads, and what it is a training of; "" for none. `validates` is the id of the
    job whose training it validates, "" for a job that trains.
    """

    id: str
    name: str
    owner: str
    state: JobState
    state_since: float
    created: float
    started: float | None
    ended: float | None
    priority: int
    max_workers: int
    instance_group: str
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


def parse_spec(data: bytes | str) -> JobSpec:
    """A checked JobSpec from JSON; InvalidRequest names the wrong field."""
    return _parse(data, JobSpec).check()


def parse_patch(data: bytes | str) -> JobPatch:
    """A checked JobPatch from JSON; Unprocessable names the wrong field, InvalidRequest says that it is no JSON."""
    return parse_change(data, JobPatch).check()


def parse_resume(data: bytes | str) -> JobResume:
    """A checked JobResume from JSON, or from no body at all; InvalidRequest names the wrong field."""
    return (_parse(data, JobResume) if data else JobResume()).check()


def parse_change(data: bytes | str, cls: type[T]) -> T:
    """A `cls` from the JSON of a change, not checked yet.

    Raises:
        InvalidRequest: it is no JSON.
        Unprocessable: a field that there is not, or that cannot have this value; `field` names it.
    """
    try:
        return msgspec.json.decode(data, type=cls)
    except msgspec.ValidationError as wrong:
        raise _misfit(wrong, Unprocessable) from None
    except msgspec.DecodeError as wrong:
        raise InvalidRequest(f"The body is not JSON: {wrong}.") from None


def convert_change(value: Any, cls: type[T]) -> T:
    """The same from plain data, such as what an administrator has configured."""
    try:
        return msgspec.convert(value, cls)
    except msgspec.ValidationError as wrong:
        raise _misfit(wrong, Unprocessable) from None


def _misfit(wrong: msgspec.ValidationError, cls: type[InvalidRequest] | type[Unprocessable]) -> EdtError:
    text = str(wrong)
    found = _FIELD.search(text)
    ids = {"field": found["named"] or found["at"]} if found else {}
    return cls(f"{text.replace('$.', '').rstrip('.')}.", **ids)


def _parse(data: bytes | str, cls: type[T]) -> T:
    try:
        return msgspec.json.decode(data, type=cls)
    except msgspec.ValidationError as wrong:
        raise _misfit(wrong, InvalidRequest) from None
    except msgspec.DecodeError as wrong:
        raise InvalidRequest(f"The body is not JSON: {wrong}.") from None
