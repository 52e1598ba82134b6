"""Answers to questions that change nothing: what a submission would be, and what a change of settings would do."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from edt_sdk.schemas.job import Reason


class Forecast(msgspec.Struct, frozen=True, kw_only=True):
    """The forecast of a job's start before it is submitted. It assumes that no further job arrives.

    Attributes:
        code: a word for programs. "soon" means that other jobs leave a slot for it, "never" with this plan and slots.
        text: one sentence with the numbers, for people.
        start_low, start_high: earliest and latest start, seconds from now. Null when unknown, or never.
        slots: how many it would hold once it has started and grown. Null when it would wait.
    """

    code: Annotated[str, Meta(extra_json_schema={"enum": ["now", "soon", "waits", "never"]})]
    text: str
    start_low: float | None = None
    start_high: float | None = None
    slots: int | None = None


def more_than_exist(max_workers: int, slots: int) -> str:
    """Return a remark on a job that asks for more slots than exist, "" for any other."""
    if max_workers <= slots:
        return ""
    noun = "slot exists" if slots == 1 else "slots exist"
    return f"max_workers is {max_workers}, and at most {slots} {noun}: it will use what there is."


class PackedFile(msgspec.Struct, frozen=True, kw_only=True):
    """One file of a package.

    Attributes:
        name: its path in the package.
        size: bytes.
    """

    name: str
    size: int


class Preview(msgspec.Struct, frozen=True, kw_only=True):
    """What would be submitted.

    Attributes:
        name: name of the job.
        main: the script it would run, empty when it runs a command.
        files: the files of the package, sorted by name.
        size: bytes of all files.
        notes: sentences on what was left out or would not run.
        forecast: when it would start.
    """

    name: str
    main: str
    files: tuple[PackedFile, ...]
    size: int
    notes: tuple[str, ...]
    forecast: Forecast


class OfJob(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The source of an earlier job: its package as it was submitted, and its settings.

    Attributes:
        job: its id.
    """

    job: str


class Picked(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A source that was picked, to preview or to submit.

    Attributes:
        source: a folder, a `.py` or an `.ipynb` file of a Jupyter server, as its contents API names it, empty for the
            top folder. Or an earlier job to clone.
        main: the script to run, relative to the folder. Null for the only one, or the earlier job's.
        tag: take only the notebook's cells with this tag. Null for all.
        spec: fields of `JobSpec` except `main` and `code_dir`, which packing decides. `name` may be left out. For a
            clone only the fields that differ.
        search: for a search whose trials are such jobs: fields of `SearchSpec` except `job`. `space` may be a text.
    """

    source: str | OfJob
    main: str | None = None
    tag: str | None = None
    spec: dict[str, Any] = {}
    search: dict[str, Any] | None = None


class WhatIfShare(msgspec.Struct, frozen=True, kw_only=True):
    """A job's slots now and after the change.

    Attributes:
        now: slots it holds.
        then: slots it would hold, once every worker that has to leave has left.
    """

    job: str
    name: str
    now: int
    then: int


class WhatIf(msgspec.Struct, frozen=True, kw_only=True):
    """The effect of a change of a job's settings: the slots of each job, and the end of this one.

    Attributes:
        job: id of the job with the changed settings.
        priority, max_workers, instance_group: its settings after the change.
        shares: every job that has not ended, in order of arrival.
        ends_now: forecast of the end of its training without the change, seconds since the epoch. Null while its
            progress is unknown. It assumes that no further job arrives, and that jobs of unknown progress stay.
        ends_then: the same with the change.
        reason: why it would not hold what it asks for. Null when it would.
    """

    job: str
    priority: int
    max_workers: int
    instance_group: str
    shares: tuple[WhatIfShare, ...]
    ends_now: float | None = None
    ends_then: float | None = None
    reason: Reason | None = None
