"""The core as bytes, so that a server that starts needs only the events since.

What `Core.state` tells, as JSON, compressed. `VERSION` is a hash of its form: of the kinds of events there are, and of
the fields of what is kept. A snapshot of another version is none, and every event there ever was is replayed instead.
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
from edt_server.core.job import Job

log = logging.getLogger(__name__)

# To be raised when the core decides otherwise than before from equal events: then its history tells another present.
RULES = 2
_FORM = (
    RULES,
    sorted(Core().state()),
    [(field.name, str(field.type)) for field in dataclasses.fields(Job)],
    msgspec.json.schema_components((Plan, Slot, CoreEvent))[1],
)
VERSION = hashlib.sha256(json.dumps(_FORM, sort_keys=True).encode()).hexdigest()[:16]


def dump(core: Core) -> bytes:
    """All of it; `load` of this makes a core of equal digest."""
    return zlib.compress(json.dumps(core.state(), separators=(",", ":")).encode(), 1)


def load(version: str, data: bytes) -> Core | None:
    """The core that was dumped, None where that cannot be known any more."""
    if version != VERSION:
        log.info("the core's snapshot is of another release; every event is replayed")
        return None
    try:
        return Core.restored(json.loads(zlib.decompress(data)))
    except (zlib.error, ValueError, LookupError, TypeError) as wrong:
        log.warning("the core's snapshot cannot be read (%s); every event is replayed", wrong)
        return None
