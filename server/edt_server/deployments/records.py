"""The stored form of a deployment, and how its revisions follow each other. Pure.

A record is the `data` of a `CatalogueRow`. Every change returns another record, which the service stores.
"""

from __future__ import annotations

import msgspec

from edt_sdk.schemas.serving.deployments import DeploymentKey, DeploymentSettings, NewRevision
from edt_sdk.schemas.serving.edge_file import Key


class RevisionRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A revision in the store.

    Attributes:
        version: its name with its number, which an alias meant when the revision was made.
        job: id of the job of its replicas, "" before there is one.
        canary: percent of the callers that it answers before it takes over, None to take over when it is ready.
        outcome: a sentence on what became of it, "" for one that answers or is about to.
        answered: it has been the one that answers, with a replica.
    """

    number: int
    version: str
    job: str
    created: float
    by: str
    max_batch: int
    exact: bool
    deadline: float
    canary: int | None = None
    outcome: str = ""
    answered: bool = False

    @property
    def again(self) -> NewRevision:
        """The revision to ask for to serve the same once more."""
        return NewRevision(version=self.version, max_batch=self.max_batch, exact=self.exact, deadline=self.deadline)


class KeyRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A key in the store, without the key itself."""

    id: str
    name: str
    sha256: str
    created: float
    expires: float | None = None

    @property
    def shown(self) -> DeploymentKey:
        """The key as it is listed."""
        return DeploymentKey(id=self.id, name=self.name, created=self.created, expires=self.expires)

    @property
    def told(self) -> Key:
        """The key as the edge knows it."""
        return Key(id=self.id, sha256=self.sha256, expires=self.expires)


class DeploymentRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A deployment in the store.

    Attributes:
        settings: those that may change.
        revisions: all, the oldest first.
        active: number of the revision that answers, 0 while it is stopped.
        coming: number of the revision that is to take over, 0 for none.
    """

    instance_group: str
    settings: DeploymentSettings
    revisions: tuple[RevisionRecord, ...] = ()
    active: int = 0
    coming: int = 0
    keys: tuple[KeyRecord, ...] = ()

    def revision(self, number: int) -> RevisionRecord | None:
        """Return the revision of that number, None for 0."""
        return self.revisions[number - 1] if number else None

    @property
    def answering(self) -> tuple[RevisionRecord, ...]:
        """The revisions with replicas: the one that answers, and the one that is to take over."""
        found = (self.revision(self.active), self.revision(self.coming))
        return tuple(each for each in found if each is not None)

    @property
    def last(self) -> RevisionRecord | None:
        """The revision that answers, else the last that did, else the last one. None before the first."""
        answered = [each for each in self.revisions if each.answered]
        return self.revision(self.active) or next(reversed(answered or self.revisions), None)

    @property
    def before(self) -> RevisionRecord | None:
        """The revision that answered before the present one, None for none."""
        last = self.last
        before = [each for each in self.revisions if last is not None and each.number < last.number and each.answered]
        return before[-1] if before else None

    def added(self, revision: RevisionRecord) -> DeploymentRecord:
        """Return it with a further revision, which is to take over, or answers at once where none does."""
        more = self.replace(revisions=(*self.revisions, revision))
        return more.replace(coming=revision.number) if self.active else more.replace(active=revision.number)

    def restarted(self, number: int, job: str) -> DeploymentRecord:
        """Return it, stopped before, with that revision answering again by another job."""
        return self._changed(number, job=job, outcome="").replace(active=number)

    def has_answered(self, number: int) -> DeploymentRecord:
        """Return it with the note that this revision has answered."""
        return self._changed(number, answered=True)

    def promoted(self, number: int) -> DeploymentRecord:
        """Return it with the coming revision of that number in the place of the active one. Unchanged without it."""
        if self.coming != number:
            return self
        former = self.revision(self.active)
        what = "It answered until" if former is not None and former.answered else "It never answered, and"
        replaced = self._changed(self.active, outcome=f"{what} revision {number} took over.")
        return replaced.replace(active=number, coming=0)

    def aborted(self, number: int, why: str) -> DeploymentRecord:
        """Return it without the coming revision of that number. Unchanged when that does not come."""
        return self._changed(number, outcome=why).replace(coming=0) if self.coming == number else self

    def without_key(self, key: str) -> DeploymentRecord:
        """Return it without the key of that id."""
        return self.replace(keys=tuple(each for each in self.keys if each.id != key))

    def stopped(self, why: str) -> DeploymentRecord:
        """Return it without any revision that answers."""
        without = self.aborted(self.coming, "It was stopped before it took over.") if self.coming else self
        return without._changed(self.active, outcome=why).replace(active=0)

    def _changed(self, number: int, **changes: object) -> DeploymentRecord:
        """Return it with these fields of a revision."""
        revisions = [msgspec.structs.replace(r, **changes) if r.number == number else r for r in self.revisions]
        return self.replace(revisions=tuple(revisions))

    def replace(self, **changes: object) -> DeploymentRecord:
        """Return it with these fields."""
        return msgspec.structs.replace(self, **changes)
