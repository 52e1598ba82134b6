"""Where a reader of growing files stopped: an opaque, URL-safe word that the next request hands back.

It holds byte offsets by file, so a reader can stop and go on at any place, also on another server over the same files.
It is no secret and no authority: keys and offsets are checked by whoever reads the files.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping

import msgspec

from edt_sdk.schemas.errors import InvalidRequest

_decoder: msgspec.json.Decoder[dict[str, int]] = msgspec.json.Decoder(dict[str, int])


def to_cursor(offsets: Mapping[str, int]) -> str:
    """The word for these offsets (bytes by file key); "" for a reader that has read nothing."""
    read = {key: value for key, value in sorted(offsets.items()) if value}
    return base64.urlsafe_b64encode(msgspec.json.encode(read)).decode().rstrip("=") if read else ""


def from_cursor(cursor: str) -> dict[str, int]:
    """Offsets by file key; InvalidRequest for a word that no reader gave."""
    if not cursor:
        return {}
    try:
        data = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        offsets = _decoder.decode(data)
    except (binascii.Error, ValueError, msgspec.DecodeError):
        offsets = {"": -1}
    if any(value < 0 for value in offsets.values()):
        raise InvalidRequest(
            f"{cursor!r} is not a cursor.",
            hint="Give the 'next' of an earlier answer unchanged, or nothing.",
            field="after",
        )
    return offsets
