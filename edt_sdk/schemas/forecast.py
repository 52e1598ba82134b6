"""What a submission would be: its files, and when it would start; the answer to a question, nothing submitted."""

from __future__ import annotations

from typing import Any

import msgspec


class Forecast(msgspec.Struct, frozen=True, kw_only=True):
    """When a job that is not submitted yet would start, if nobody else came.

    Attributes:
        code: a word for programs: "now", "soon" (others leave a slot for it), "waits", "never" (as things are).
        text: one sentence with the numbers, for people.
        start_low, start_high: seconds from now, not before and not after; None where that is not known, or never.
        slots: that it would hold when it has started and grown; None where it would wait.
    """

    code: str
    text: str
    start_low: float | None = None
    start_high: float | None = None
    slots: int | None = None


class PackedFile(msgspec.Struct, frozen=True, kw_only=True):
    """One file of a package: its name there, and its size in bytes."""

    name: str
    size: int


class Preview(msgspec.Struct, frozen=True, kw_only=True):
    """What would be submitted.

    Attributes:
        name: of the job.
        main: the script it would run, "" where it runs a command.
        files: everything in the package, by name.
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
    """What a job of mine was made of: its package as it was submitted, and its settings; `job` is its id."""

    job: str


class Picked(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a person has picked, to look at or to submit.

    Attributes:
        source: a folder, a `.py` or an `.ipynb` file of a Jupyter server, as its contents API names it, "" for the top
            folder; or a job to make another one of.
        main: the script to run, relative to the folder; None for the one there is, or the job's.
        tag: of a notebook only the cells with this tag; None for all.
        spec: fields of `JobSpec`, all but what packing decides: `main` and `code_dir`; `name` may be left out. Of
            another job only those that shall be different.
    """

    source: str | OfJob
    main: str | None = None
    tag: str | None = None
    spec: dict[str, Any] = {}
