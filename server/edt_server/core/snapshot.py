"""Store the core as bytes, so that a starting server replays only the events since.

It is `Core.state` as compressed JSON. `VERSION` is a hash of its form: the kinds of events and the fields of what is
stored. A snapshot of another version is ignored, and every event is replayed instead.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
import zlib

import msgspec

from edt_sdk.schemas.plan import Plan
from edt_sdk.schemas.wire.control import Slot
from edt_server.core.core import Core
from edt_server.core.events import CoreEvent
from edt_server.core.job import CoreJob

log = logging.getLogger(__name__)

# Raise this when equal events lead to other decisions than before: an old snapshot then differs from a replay.
RULES = 2
_FORM = (
    RULES,
    sorted(Core().state()),
    [(field.name, str(field.type)) for field in dataclasses.fields(CoreJob)],
    # The docstrings are part of a schema, but not of the form.
    [
        {key: value for key, value in schema.items() if key != "description"}
        for _, schema in sorted(msgspec.json.schema_components((Plan, Slot, CoreEvent))[1].items())
    ],
)
VERSION = hashlib.sha256(json.dumps(_FORM, sort_keys=True).encode()).hexdigest()[:16]
# VERSION → the versions before that it can read: with the docstrings, without an upper bound of `max_workers`, without
# `max_priority`, without quotas, without held sizes, without budgets, without searches, without projects of jobs, which
# the core never sees, without hosts apart, and without portable resource groups.
_BEFORE = {
    "e17a386248563d37": (
        "5d450cfec1d5594e", "7e018cf0f7a12ea8", "fa66e22ae5eb95d7", "3af2497bc715c643", "b55155f3a73835a9",
        "4e231cac1fab208a", "391bc166d8f0f2fb", "f3cf8e5bf01693ab", "167eeaeb40e47dfe", "d4bb79e42e3ca64c",
    )
}  # fmt: skip


def dump(core: Core) -> bytes:
    """Return the whole core as bytes. `load` makes a core of equal digest from them."""
    return zlib.compress(json.dumps(core.state(), separators=(",", ":")).encode(), 1)


def load(version: str, data: bytes) -> Core | None:
    """Return the core that was dumped, None where its form is another one or the data is damaged."""
    if version not in (VERSION, *_BEFORE.get(VERSION, ())):
        log.info("the core's snapshot is of another release; every event is replayed")
        return None
    try:
        return Core.restored(json.loads(zlib.decompress(data)))
    # A damaged snapshot must not keep the server from starting: it only saves the time of a replay.
    except (zlib.error, ValueError, LookupError, TypeError) as wrong:
        log.warning("the core's snapshot cannot be read (%s); every event is replayed", wrong)
        return None
