"""The tables after the newest migration. A test compares them with the migrated database.

Column names are the field names of `JobRow` and `Event`. Structs are kept as JSON. `edt_events.job` is deliberately not
a foreign key: the events of a deleted job stay, or the allocation timeline would show slots without a holder.
"""

from __future__ import annotations

from enum import StrEnum
from functools import cache
from typing import Any, Generic, TypeVar

import msgspec
from sqlalchemy import JSON, BigInteger, Dialect, Float, Index, Integer, LargeBinary, String, Text, TypeDecorator, text
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from edt_sdk.schemas.job import JobProgress, JobSettings, JobSpec, JobState
from edt_sdk.schemas.search.spec import SearchSpec
from edt_sdk.schemas.search.views import SearchState, TrialState
from edt_sdk.schemas.wire.control import ProcessIdentity

T = TypeVar("T")
E = TypeVar("E", bound=StrEnum)
_NUMBER = BigInteger().with_variant(Integer, "sqlite")  # SQLite numbers rows only where the key's type is INTEGER


class StructJSON(TypeDecorator[T], Generic[T]):
    """A msgspec struct in a JSON column. An older release ignores fields that a newer one added."""

    impl = JSON(none_as_null=True)
    cache_ok = True

    def __init__(self, cls: type[T]) -> None:
        super().__init__()
        self.cls = cls

    def process_bind_param(self, value: T | None, dialect: Dialect) -> Any:
        """Convert a struct to JSON builtins."""
        return None if value is None else msgspec.to_builtins(value)

    def process_result_value(self, value: Any, dialect: Dialect) -> T | None:
        """Convert JSON builtins to a struct."""
        return None if value is None else msgspec.convert(value, self.cls)


class SpecJSON(StructJSON[JobSpec]):
    """A job's settings. A row of a release without the setting `log` belongs to a job that prints every micro-batch."""

    cache_ok = True

    def process_result_value(self, value: Any, dialect: Dialect) -> JobSpec | None:
        """Convert JSON builtins to the settings."""
        return super().process_result_value(value and {"log": "batches", **value}, dialect)


class PlainText(TypeDecorator[str]):
    """A column of any text. Characters that some database refuses (NUL, half a surrogate pair) become "�".

    Messages quote the last output of dead processes, and a single bad byte must not cost a report.
    """

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        """Return the text as it can be stored."""
        if value is None or (value.isascii() and "\0" not in value):
            return value
        return value.replace("\0", "�").encode("utf-16", "surrogatepass").decode("utf-16", "replace")


class StateName(TypeDecorator[E], Generic[E]):
    """A state by its name, so that a new state needs no migration."""

    impl = String(16)
    cache_ok = True

    def __init__(self, cls: type[E]) -> None:
        super().__init__()
        self.cls = cls

    def process_bind_param(self, value: E | None, dialect: Dialect) -> str | None:
        """Convert a state to its name. ValueError when it is not a state."""
        return None if value is None else self.cls(value).value

    def process_result_value(self, value: str | None, dialect: Dialect) -> E | None:
        """Convert a name to its state."""
        return None if value is None else self.cls(value)


class Base(DeclarativeBase):
    """Base of the tables."""

    type_annotation_map = {float: Float(53), str: PlainText()}

    def value(self, cls: type[T], without: str = "") -> T:
        """Return the row as a value of `cls`, which has a field for each column but `without`."""
        return cls(**{name: getattr(self, name) for name in _columns(type(self)) if name != without})


@cache
def _columns(model: type[Base]) -> tuple[str, ...]:
    return tuple(column.key for column in model.__table__.columns)


class JobModel(Base):
    """One row of `edt_jobs`. `JobRow` describes the columns. `search` is the one in the specification, for queries."""

    __tablename__ = "edt_jobs"
    __table_args__ = (
        Index("ix_edt_jobs_owner", "owner", "created"),
        Index("ix_edt_jobs_state", "state", "created"),
        Index("ix_edt_jobs_created", "created"),
        Index("ix_edt_jobs_search", "owner", "search", "created"),
    )

    id: Mapped[str] = mapped_column(String(64), primary_key=True)
    owner: Mapped[str]
    spec: Mapped[JobSpec] = mapped_column(SpecJSON(JobSpec))
    state: Mapped[JobState] = mapped_column(StateName(JobState))
    state_since: Mapped[float]
    created: Mapped[float]
    started: Mapped[float | None]
    ended: Mapped[float | None]
    attempt: Mapped[int]
    message: Mapped[str]
    interpreter: Mapped[str]
    threads_per_slot: Mapped[int]
    supervisor: Mapped[ProcessIdentity | None] = mapped_column(StructJSON(ProcessIdentity))
    public_key: Mapped[str]
    shards: Mapped[int | None]
    last_report: Mapped[int] = mapped_column(BigInteger)
    progress: Mapped[JobProgress | None] = mapped_column(StructJSON(JobProgress))
    settings: Mapped[JobSettings] = mapped_column(StructJSON(JobSettings))
    project: Mapped[str | None]
    definition: Mapped[str | None]
    metric: Mapped[str | None]
    search: Mapped[str] = mapped_column(String(64), server_default=text("''"))


class EventModel(Base):
    """One row of `edt_events`. `edt_sdk.schemas.events.Event` describes the columns."""

    __tablename__ = "edt_events"
    __table_args__ = (
        Index("ix_edt_events_job", "job", "seq"),
        Index("ix_edt_events_kind", "kind", "seq"),
        # Numbers are never used again, so a client that has seen `seq` n has seen everything up to n.
        {"sqlite_autoincrement": True},
    )

    seq: Mapped[int] = mapped_column(_NUMBER, primary_key=True, autoincrement=True)
    time: Mapped[float]
    job: Mapped[str | None] = mapped_column(String(64))
    kind: Mapped[str] = mapped_column(String(40))
    data: Mapped[dict[str, Any]] = mapped_column(JSON())
    cause: Mapped[int | None] = mapped_column(BigInteger)
    text: Mapped[str]


class SnapshotModel(Base):
    """The row of `edt_core_snapshots`: the newest is the only one."""

    __tablename__ = "edt_core_snapshots"

    seq: Mapped[int] = mapped_column(_NUMBER, primary_key=True, autoincrement=False)
    version: Mapped[str]
    data: Mapped[bytes] = mapped_column(LargeBinary)
    created: Mapped[float]


class LeaseModel(Base):
    """One row of `edt_leases`. Kept when the lease is given back, for its fencing number."""

    __tablename__ = "edt_leases"

    name: Mapped[str] = mapped_column(String(64), primary_key=True)
    holder: Mapped[ProcessIdentity | None] = mapped_column(StructJSON(ProcessIdentity))
    expires: Mapped[float]
    url: Mapped[str]
    fencing: Mapped[int] = mapped_column(BigInteger)


class CatalogueModel(Base):
    """One row of `edt_catalogue`. `CatalogueRow` describes the columns."""

    __tablename__ = "edt_catalogue"
    __table_args__ = (Index("ix_edt_catalogue_name", "owner", "kind", "name", unique=True),)

    id: Mapped[str] = mapped_column(String(64), primary_key=True)
    owner: Mapped[str]
    kind: Mapped[str] = mapped_column(String(16))
    name: Mapped[str]
    created: Mapped[float]
    changed: Mapped[float]
    data: Mapped[dict[str, Any]] = mapped_column(JSON())


class SearchModel(Base):
    """One row of `edt_searches`. `SearchRow` describes the columns."""

    __tablename__ = "edt_searches"
    __table_args__ = (
        Index("ix_edt_searches_name", "owner", "name", unique=True),
        Index("ix_edt_searches_created", "created"),
    )

    id: Mapped[str] = mapped_column(String(64), primary_key=True)
    name: Mapped[str]
    owner: Mapped[str]
    spec: Mapped[SearchSpec] = mapped_column(StructJSON(SearchSpec))
    state: Mapped[SearchState] = mapped_column(StateName(SearchState))
    message: Mapped[str]
    created: Mapped[float]
    ended: Mapped[float | None]
    best: Mapped[int | None]
    outside: Mapped[int]
    plugin_state: Mapped[bytes | None] = mapped_column(LargeBinary)


class TrialModel(Base):
    """One row of `edt_trials`. `TrialRow` describes the columns."""

    __tablename__ = "edt_trials"

    search: Mapped[str] = mapped_column(String(64), primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    rung: Mapped[int]
    bracket: Mapped[int]
    params: Mapped[dict[str, Any]] = mapped_column(JSON())
    sampler_state: Mapped[bytes | None] = mapped_column(LargeBinary)
    state: Mapped[TrialState] = mapped_column(StateName(TrialState))
    value: Mapped[float | None]  # type: ignore[assignment]  # the column hides Base.value
    epochs: Mapped[int]
    job: Mapped[str] = mapped_column(String(64))
    parent: Mapped[int | None]
    created: Mapped[float]
    ended: Mapped[float | None]
    message: Mapped[str]


class TrialReportModel(Base):
    """One row of `edt_trial_reports`. `TrialReport` describes the columns, but for the search."""

    __tablename__ = "edt_trial_reports"
    __table_args__ = (Index("ix_edt_trial_reports_seq", "search", "seq"),)

    search: Mapped[str] = mapped_column(String(64), primary_key=True)
    trial: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    budget: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    metrics: Mapped[dict[str, float | None]] = mapped_column(JSON())
    seq: Mapped[int]


class SearchDecisionModel(Base):
    """One row of `edt_search_decisions`. `Decision` describes the columns, but for the search."""

    __tablename__ = "edt_search_decisions"

    search: Mapped[str] = mapped_column(String(64), primary_key=True)
    index: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    kind: Mapped[str] = mapped_column(String(16))
    trial: Mapped[int | None]
    rung: Mapped[int | None]
    inputs: Mapped[str] = mapped_column(String(16))
    text: Mapped[str]
    outside: Mapped[bool]
    event: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
