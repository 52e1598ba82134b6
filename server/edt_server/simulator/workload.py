"""Read a workload in the format of the Pollux artifact: a CSV of jobs, and a CSV of the speeds of their applications.

Jobs: `name,time,application,num_replicas,batch_size`, with the time in seconds since the start. A `duration` column
(seconds with `num_replicas` workers) may replace what APPS.csv has. Optional columns: `priority`, `max_workers`,
`min_workers`, `slots_per_unit`, `elastic` (yes or no), `instance_group`, `owner`. Applications:
`application,workers,batch_size,samples_per_second,samples_total`. Invalid values are refused with file, line and
column.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from edt_sdk.schemas.errors import InvalidRequest
from edt_sdk.schemas.job import DEFAULT_PRIORITY
from edt_server.simulator.speed import Speed

T = TypeVar("T")
# The growth limit of an elastic job without a table and without max_workers: a multiple of its replicas.
GROWTH_WITHOUT_TABLE = 2


@dataclass(frozen=True, slots=True)
class SimulatedJob:
    """A job of the workload.

    Attributes:
        name: unique in its workload.
        time: of its arrival, in seconds from the start.
        application: jobs of the same application have the same colour in the picture.
        replicas: the workers its user would give it if it were not elastic.
        max_workers: the most workers it can use if it is.
        work: what it has to do, in samples (any unit that `speed` has too).
        speed: samples per second at a number of workers.
        priority: weight under fair share.
        min_workers: the fewest workers it runs on.
        instance_group: its queue, "" for the plan's first.
        owner: for user shares.
        slots_per_unit: its workers come and go so many at a time, and `max_workers` is a multiple of this number.
        keeps: its workers are never taken from it, as it would have to restart: it is not elastic.
    """

    name: str
    time: float
    application: str
    replicas: int
    max_workers: int
    work: float
    speed: Speed
    priority: int = DEFAULT_PRIORITY
    min_workers: int = 1
    instance_group: str = ""
    owner: str = ""
    slots_per_unit: int = 1
    keeps: bool = False

    def rigid(self, slots: int) -> SimulatedJob:
        """Return the same job without elasticity: its `replicas`, from start to end.

        It takes at most all `slots`, in its units. But a program that runs on its own number alone keeps that, and
        never starts where there are fewer.
        """
        unit = self.slots_per_unit
        # A program that is written for its own number of processes cannot run on fewer.
        size = self.replicas if self.keeps else max(unit, min(self.replicas, slots) // unit * unit)
        return replace(self, max_workers=size, min_workers=size)


@dataclass(frozen=True, slots=True)
class Application:
    """An application of APPS.csv: samples in all, and by batch size the speed and the measured sizes."""

    samples_total: float
    speeds: Mapping[int, Speed]


class Row:
    """A line of a CSV file. Its methods read a column, or raise an error with the column's name and line."""

    def __init__(self, path: Path, line: int, values: Mapping[str, str]) -> None:
        self.path, self.line, self._values = path, line, values

    def text(self, column: str, default: str | None = None) -> str:
        """Return the column's text. Without `default` it must be there."""
        value = self._values.get(column, "")
        if value:
            return value
        if default is None:
            raise self.wrong(column, "is empty")
        return default

    def whole(self, column: str, default: int | None = None) -> int:
        """Return an integer ≥ 1."""
        if default is not None and not self.text(column, ""):
            return default
        return self._number(column, int, lambda value: value >= 1, "a whole number of at least 1")

    def real(self, column: str) -> float:
        """Return a number > 0."""
        return self._number(column, float, lambda value: value > 0, "a number above 0")

    def seconds(self, column: str) -> float:
        """Return a number ≥ 0."""
        return self._number(column, float, lambda value: value >= 0, "a number of seconds, 0 or more")

    def _number(self, column: str, kind: Callable[[str], T], fits: Callable[[T], bool], wanted: str) -> T:
        text = self.text(column)
        try:
            value = kind(text)
        except ValueError:
            raise self.wrong(column, f"is {text!r}, not {wanted}") from None
        # float() also reads "inf" and "nan". Every comparison with NaN is False, so that it is refused too.
        if not fits(value) or value == float("inf"):
            raise self.wrong(column, f"is {text}, not {wanted}")
        return value

    def wrong(self, column: str, what: str, hint: str = "") -> InvalidRequest:
        """Return the error for this line."""
        return InvalidRequest(
            f"{self.path}, line {self.line}: column {column} {what}.", hint=hint, field=column, line=self.line
        )


def read_workload(path: Path, apps: Path | None = None) -> tuple[SimulatedJob, ...]:
    """Return the jobs of a workload, by arrival. `apps` may be None where the jobs have a `duration`.

    InvalidRequest with line and column when a file cannot be read or used.
    """
    applications = {} if apps is None else read_applications(apps)
    jobs: dict[str, SimulatedJob] = {}
    for row in _rows(path, ("name", "time", "num_replicas")):
        job = _job(row, applications, apps)
        if job.name in jobs:
            raise row.wrong("name", f"is {job.name!r}, as in a line before", "Give each job its own.")
        jobs[job.name] = job
    if not jobs:
        raise InvalidRequest(f"{path} has no jobs.", hint="Write one line a job below the names of the columns.")
    return tuple(sorted(jobs.values(), key=lambda job: job.time))


def read_applications(path: Path) -> dict[str, Application]:
    """Return the applications by name. InvalidRequest with line and column for an invalid value."""
    points: dict[str, dict[int, dict[int, float]]] = defaultdict(lambda: defaultdict(dict))
    totals: dict[str, float] = {}
    columns = ("application", "workers", "batch_size", "samples_per_second", "samples_total")
    for row in _rows(path, columns):
        name, total = row.text("application"), row.real("samples_total")
        # The number of samples belongs to the application, but a CSV file repeats it in each line.
        if totals.setdefault(name, total) != total:
            raise row.wrong("samples_total", f"is {total:g}; a line before says {totals[name]:g} for {name!r}")
        known = points[name][row.whole("batch_size")]
        workers = row.whole("workers")
        if workers in known:
            raise row.wrong("workers", f"is {workers} a second time for {name!r} and this batch_size")
        known[workers] = row.real("samples_per_second")
    return {
        name: Application(totals[name], {size: Speed.of(table.items()) for size, table in sizes.items()})
        for name, sizes in points.items()
    }


def _job(row: Row, applications: Mapping[str, Application], apps: Path | None) -> SimulatedJob:
    replicas = row.whole("num_replicas")
    application = row.text("application", "job")
    known = applications.get(application)
    timed = bool(row.text("duration", ""))
    if known is None:
        if not timed:
            where = (
                f"is {application!r}, which {apps} does not have"
                if apps
                else f"is {application!r}; its speed is unknown"
            )
            raise row.wrong("application", where, "Give a duration column, or the application's speeds with --apps.")
        most = row.whole("max_workers", GROWTH_WITHOUT_TABLE * replicas)
        speed = Speed.by_law(max(most, replicas))
        work = row.real("duration") * speed.at(replicas)
    else:
        speed = _speed(row, known, application, timed=timed)
        most = row.whole("max_workers", max(speed.most, replicas))
        work = row.real("duration") * speed.at(replicas) if timed else known.samples_total
    elastic = row.text("elastic", "yes")
    if elastic not in ("yes", "no"):
        raise row.wrong("elastic", f"is {elastic!r}, neither yes nor no")
    least, most, unit = _sizes(row, most) if elastic == "yes" else (replicas, replicas, 1)
    return SimulatedJob(
        name=row.text("name"),
        time=row.seconds("time"),
        application=application,
        replicas=replicas,
        max_workers=most,
        work=work,
        speed=speed,
        priority=row.whole("priority", DEFAULT_PRIORITY),
        min_workers=least,
        instance_group=row.text("instance_group", ""),
        owner=row.text("owner", ""),
        slots_per_unit=unit,
        keeps=elastic == "no",
    )


def _sizes(row: Row, most: int) -> tuple[int, int, int]:
    """Return the fewest and the most workers of an elastic job, and how many come and go at a time."""
    least, unit = row.whole("min_workers", 1), row.whole("slots_per_unit", 1)
    if unit > most:
        raise row.wrong("slots_per_unit", f"is {unit}, more than the {most} workers it can use")
    # Only a given number can be wrong. A maximum that comes from the speeds is rounded down below.
    if most % unit and row.text("max_workers", ""):
        raise row.wrong("max_workers", f"is {most}, no multiple of slots_per_unit, {unit}")
    if least % unit and least > 1:
        raise row.wrong("min_workers", f"is {least}, no multiple of slots_per_unit, {unit}")
    if least > most:
        raise row.wrong("min_workers", f"is {least}, more than the {most} workers it can use")
    return least, most // unit * unit, unit


def _speed(row: Row, known: Application, application: str, *, timed: bool) -> Speed:
    if timed and not row.text("batch_size", ""):
        # With a duration the unit of work cancels out. Only the shape of the speeds matters, and any table has one.
        return next(iter(known.speeds.values()))
    size = row.whole("batch_size")
    if size not in known.speeds:
        sizes = ", ".join(map(str, sorted(known.speeds)))
        raise row.wrong("batch_size", f"is {size}; {application!r} was measured at {sizes}")
    return known.speeds[size]


def _rows(path: Path, columns: tuple[str, ...]) -> Iterator[Row]:
    try:
        # Spreadsheet programs write a byte order mark, which must not become part of the first column's name.
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file, skipinitialspace=True)
            head = [name.strip() for name in reader.fieldnames or ()]
            for column in columns:
                if column not in head:
                    raise InvalidRequest(
                        f"{path}, line 1: there is no column {column}.",
                        hint=f"It needs {', '.join(columns)}; it has {', '.join(head) or 'nothing'}.",
                        field=column,
                        line=1,
                    )
            reader.fieldnames = head
            for values in reader:
                # DictReader keeps surplus values under None instead of an error.
                if None in values:
                    raise InvalidRequest(
                        f"{path}, line {reader.line_num}: more values than columns.", line=reader.line_num
                    )
                yield Row(path, reader.line_num, {key: (value or "").strip() for key, value in values.items()})
    except OSError as wrong:
        raise InvalidRequest(f"{path} cannot be read: {wrong.strerror}.") from None
    except (UnicodeDecodeError, csv.Error) as wrong:
        raise InvalidRequest(f"{path} is no CSV file in UTF-8: {wrong}.") from None
