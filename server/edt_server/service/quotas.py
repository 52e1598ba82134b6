"""The quotas of instance groups: what is used, and which submission is refused.

The plan has them, so that they are changed while jobs run, and every change has its user and time in the list of
events. Quotas of running jobs and slots refuse nothing: the core lets jobs wait (`core/quota.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from pathlib import Path

from edt_sdk.schemas.errors import Conflict
from edt_sdk.schemas.plan import QUOTAS, InstanceGroup, QuotaUse
from edt_server.core.core import Core
from edt_server.jobs import StoredBytes
from edt_server.ledger import LedgerWriter
from edt_server.store import JobRow

_WAITING, _BYTES = ("user_waiting", "max_waiting"), ("user_bytes", "max_bytes")
_NEAR = 0.8
_WORDS = {
    "waiting": "jobs without a slot",
    "running": "running jobs",
    "slots": "slots",
    "bytes": "bytes stored",
}
_FREES = {
    "waiting": "Wait until a job has got a slot, or stop one: job.stop(), or at a shell: edt stop ID.",
    "bytes": "Delete ended jobs with their results: job.delete(), or at a shell: edt delete ID.",
}


class Quotas:
    """The quotas of a service."""

    def __init__(self, writer: LedgerWriter, data_dir: Path) -> None:
        self._writer = writer
        self._stored = StoredBytes(data_dir)

    async def uses(self, user: str) -> list[QuotaUse]:
        """Return how much of each quota that is set is used, in the order of the plan."""
        found: list[QuotaUse] = []
        for group in self._writer.ledger.core.plan.leaves():
            fields = [field for field in QUOTAS if getattr(group, field) is not None]
            if fields:
                counted = await self._writer.read(_counted, self._writer.ledger.core, user, group)
                used = counted | await self._bytes(user, group)
                found += [_use(user, group, field, used[field]) for field in fields]
        return found

    async def check_bytes(self, user: str, group: InstanceGroup) -> None:
        """Raise Conflict when a quota of stored bytes is used up."""
        _refuse(user, group, await self._bytes(user, group))

    async def _bytes(self, user: str, group: InstanceGroup) -> dict[str, int]:
        """Return the bytes stored in the group, of the user and of all. Empty without a quota of them."""
        if all(getattr(group, field) is None for field in _BYTES):
            return {}
        # A row without a group is in the plan's first.
        names = {group.name, ""} if group == self._writer.ledger.core.plan.leaves()[0] else {group.name}

        def measure() -> dict[str, int]:
            owner = user if group.max_bytes is None else None
            rows = self._writer.ledger.store.jobs(owner=owner)
            return self._measured(user, [row for row in rows if row.settings.instance_group in names])

        return await asyncio.to_thread(measure)

    def _measured(self, user: str, rows: Iterable[JobRow]) -> dict[str, int]:
        sizes = [(row.owner, self._stored.of(row)) for row in rows]
        return {
            "user_bytes": sum(size for owner, size in sizes if owner == user),
            "max_bytes": sum(size for _, size in sizes),
        }


def check_waiting(core: Core, user: str, group: InstanceGroup) -> None:
    """Raise Conflict when a quota of waiting jobs is used up. For the transaction that adds a job to the group."""
    if any(getattr(group, field) is not None for field in _WAITING):
        counted = _counted(core, user, group)
        _refuse(user, group, {field: counted[field] for field in _WAITING})


def _counted(core: Core, user: str, group: InstanceGroup) -> dict[str, int]:
    """Return what the core knows to be used, by quota."""
    of_users = core.usage(group.name)
    found: dict[str, int] = {}
    for what in ("waiting", "running", "slots"):
        found[f"max_{what}"] = sum(getattr(each, what) for each in of_users.values())
        found[f"user_{what}"] = getattr(of_users[user], what) if user in of_users else 0
    return found


def _refuse(user: str, group: InstanceGroup, used: Mapping[str, int]) -> None:
    for field, count in used.items():
        limit = getattr(group, field)
        if limit is not None and count >= limit:
            use = _use(user, group, field, count)
            hint = f"{_FREES[field.partition('_')[2]]} `edt quota` shows what is used."
            ids = {"quota": field, "used": count, "limit": limit, "instance_group": group.name}
            raise Conflict(f"A quota is used up: {use.text}", hint=hint, **ids)


def _use(user: str, group: InstanceGroup, field: str, used: int) -> QuotaUse:
    limit = getattr(group, field)
    whose, _, what = field.partition("_")
    who = user if whose == "user" else "all users together"
    text = f"{who} {'has' if whose == 'user' else 'have'} {used:,} of at most {limit:,} {_WORDS[what]} in the instance "
    return QuotaUse(
        instance_group=group.name,
        quota=field,
        used=used,
        limit=limit,
        near=used >= _NEAR * limit,
        text=f"{text}group {group.name} ({field}).",
    )
