"""Write and read the text of a token, with which a machine joins a server as a host.

It has a CURVE key pair of its own. So a machine that joins is known by the first byte that it sends.
"""

from __future__ import annotations

import base64

import msgspec

from edt_sdk.schemas.errors import Unprocessable

_PREFIX = "edt1."


class TokenText(msgspec.Struct, frozen=True, kw_only=True):
    """The machine's half of a token: where to dial, the server's key, and the pair to join with (Z85)."""

    servers: tuple[str, ...]
    server_key: str
    public_key: str
    secret_key: str

    def text(self) -> str:
        """Return the text that people paste."""
        return _PREFIX + base64.urlsafe_b64encode(msgspec.json.encode(self)).decode().rstrip("=")


def read_token(text: str) -> TokenText:
    """Return what a token's text says. Unprocessable when it is none."""
    text = text.strip()
    try:
        if not text.startswith(_PREFIX):
            raise ValueError
        body = text.removeprefix(_PREFIX)
        return msgspec.json.decode(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)), type=TokenText)
    except (ValueError, msgspec.MsgspecError):
        raise Unprocessable(
            "This is no token of an edt server.",
            hint="An admin of the server gets one with `edt host token`. Paste the whole line, which begins with edt1.",
            field="token",
        ) from None
