"""Describe versions of models: the weights and the code of a training under a name and a number, with their origin.

A version never changes, but for its description and tags. `digits/3` is its name. An alias such as `digits@champion`
names one version of its name, another one later, and `digits` alone means the newest.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Self

import msgspec
from msgspec import Meta

from edt_sdk.schemas.catalogue import CatalogueName, check_name
from edt_sdk.schemas.errors import InvalidRequest, Unprocessable
from edt_sdk.schemas.job import JobId, Tags, check_tags

_LONGEST_TEXT = 10_000
_REFERENCE = re.compile(r"(?P<name>[^/@]+)(?:/(?P<number>\d{1,9})|@(?P<alias>[^/@]+))?\Z")

Description = Annotated[str, Meta(extra_json_schema={"maxLength": _LONGEST_TEXT}, extra={"metavar": "TEXT"})]
Epoch = Annotated[int, Meta(extra_json_schema={"minimum": 1}, extra={"metavar": "N"})]


class NewFolderVersion(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A version to be made of a folder with code that answers requests, without a training.

    Attributes:
        name: 1 to 100 letters, digits, dots, dashes and underscores.
        description: text for people, at most 10,000 characters.
        tags: words to find it by, at most 20, separated by commas.
        alias: a name that means this version from now on.
    """

    name: CatalogueName
    description: Description = ""
    tags: Tags = ()
    alias: Annotated[str, Meta(extra={"metavar": "NAME"})] = ""

    def check(self) -> Self:
        """Return self, or raise InvalidRequest or Unprocessable naming the field."""
        check_name(self.name, "version")
        if self.alias:
            check_alias(self.alias)
        _check_words(self.description, self.tags)
        return self


class NewVersion(NewFolderVersion, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A version to be made of a job's weights.

    Attributes:
        job: id of the job that trained them.
        epoch: the weights after this epoch, from 1 (default: the final ones).
    """

    job: JobId
    epoch: Epoch | None = None

    def check(self) -> Self:
        """Return self, or raise InvalidRequest or Unprocessable naming the field."""
        if self.epoch is not None and self.epoch < 1:
            raise Unprocessable(f"The first epoch is 1, not {self.epoch}.", field="epoch")
        return super().check()


class VersionPatch(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A change of what people say about a version. None leaves a field as it is.

    Attributes:
        description: text for people, at most 10,000 characters; empty for none.
        tags: words to find it by, in place of the present ones.
    """

    description: Description | None = None
    tags: Tags | None = None

    def check(self) -> Self:
        """Return self, or raise InvalidRequest or Unprocessable."""
        if not self.changes():
            raise InvalidRequest("Nothing to change.", hint="Give description or tags.")
        _check_words(self.description or "", self.tags or ())
        return self

    def changes(self) -> dict[str, Any]:
        """Return the fields that this patch sets, by name."""
        return {name: value for name in self.__struct_fields__ if (value := getattr(self, name)) is not None}


class ModelVersion(msgspec.Struct, frozen=True, kw_only=True):
    """A version, with what it came from.

    Attributes:
        number: from 1 within its name, never used twice.
        aliases: what else it is called, sorted.
        created: seconds since the epoch (UTC).
        job, job_name: the job that trained it, which may have been deleted since. Empty for one made of a folder.
        search: id of the search that the job is a trial of. Empty for none.
        epoch: after which epoch, None for the end of the training.
        sha256: of the file of its weights, empty for one made of a folder.
        code_sha256: of the names and contents of its code's files.
        size: bytes of the weights.
        metrics: test_loss, test_accuracy and the script's own metrics of the last validation up to its epoch.
        args, dataset, seed, mode, threads_per_slot, shards: settings of the training that its bits depend on.
        software: versions of python and torch, as far as they are known.
        trouble: one sentence when its weights are not on disk as they were. Empty when all is well.
    """

    name: str
    number: int
    owner: str
    aliases: tuple[str, ...]
    description: str
    tags: tuple[str, ...]
    created: float
    job: str
    job_name: str
    search: str
    epoch: int | None
    sha256: str
    code_sha256: str
    size: int
    metrics: dict[str, float | None]
    framework: str
    main: str
    args: tuple[str, ...]
    dataset: str
    seed: int
    mode: str
    threads_per_slot: int
    shards: int | None
    software: dict[str, str]
    trouble: str

    @property
    def id(self) -> str:
        """Its name with its number, such as digits/3."""
        return f"{self.name}/{self.number}"


class VersionComparison(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a job has trained the same weights as a version.

    Attributes:
        equal: they are, bit by bit.
        sha256: of the job's weights.
        differences: what else differs between the two trainings, such as "the code". It may explain other weights.
    """

    equal: bool
    sha256: str
    differences: tuple[str, ...] = ()


class VersionReference(msgspec.Struct, frozen=True):
    """What a text such as digits/3, digits@champion or digits means: a number, an alias, or neither for the newest."""

    name: str
    number: int | None = None
    alias: str = ""

    @classmethod
    def of(cls, text: str) -> VersionReference:
        """Read such a text. InvalidRequest for another one."""
        if (match := _REFERENCE.match(text)) is None:
            raise InvalidRequest(f"{text!r} names no version.", hint="Write digits/3, digits@champion, or digits.")
        return cls(match["name"], int(match["number"]) if match["number"] else None, match["alias"] or "")

    @property
    def which(self) -> str:
        """Which of its name, as in the address of a version: 3, @champion or @newest."""
        return str(self.number) if self.number is not None else f"@{self.alias or NEWEST}"


NEWEST = "newest"


def is_version(text: str) -> bool:
    """Return whether a text can name a version and no job: an alias or a number stands in it."""
    return "/" in text or "@" in text


def check_alias(alias: str) -> None:
    """Raise InvalidRequest when this cannot be an alias."""
    check_name(alias, "alias")
    if alias == NEWEST:
        raise InvalidRequest(f"{NEWEST!r} always means the newest version.", hint="Choose another one.", field="alias")


def check_description(description: str) -> None:
    """Raise Unprocessable when a text for people is too long."""
    if len(description) > _LONGEST_TEXT:
        raise Unprocessable(f"description has at most {_LONGEST_TEXT:,} characters.", field="description")


def _check_words(description: str, tags: tuple[str, ...]) -> None:
    check_description(description)
    check_tags(tags)
