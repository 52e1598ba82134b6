"""Read the credentials of a WMLA client from a request's headers. Pure.

A program sends a token or session in a header of its own on purpose. Browsers also send a Basic password and a cookie
by themselves, whichever page caused the request. Those two count only when nothing in the request shows that it comes
from a browser (decision 020).
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass

from edt_sdk.schemas.errors import InvalidRequest

COOKIE = "edt-wmla"
# Scripts send none of these headers. A browser sends at least one with every request that may change something.
_BROWSERS = ("Origin", "Referer", "Sec-Fetch-Site")


@dataclass(frozen=True, slots=True)
class Credentials:
    """The credentials in a request.

    Attributes:
        kind: "token" (a Jupyter token or a session), "basic", or "cookie" (a session).
        secret: the token or password.
        name: of Basic, a label.
        in_body: a program, or a person on a page, has put them there.
    """

    kind: str
    secret: str
    name: str = ""
    in_body: bool = False

    @property
    def ambient(self) -> bool:
        """Return True for credentials that a browser may send without its user's intent."""
        return self.kind != "token" and not self.in_body


def read(headers: Mapping[str, str], cookie: str | None) -> Credentials | None:
    """Return the credentials in these headers, else in our cookie, None without any or with Jupyter's own only."""
    # 2.x's notebooks send the first header, callers of models the second one, dlicmd sends Bearer, and Jupyter's own
    # clients send the scheme `token`.
    for header in ("X-Auth-Token", "X-User-Token"):
        if token := headers.get(header, "").strip():
            return Credentials("token", token)
    scheme, _, rest = headers.get("Authorization", "").strip().partition(" ")
    if scheme.lower() == "basic":
        return basic(rest.strip())
    if scheme.lower() in ("bearer", "token") and rest.strip():
        return Credentials("token", rest.strip())
    return Credentials("cookie", cookie) if cookie else None


def from_browser(headers: Mapping[str, str]) -> bool:
    """Return True when a header shows that a browser made the request."""
    return any(name in headers for name in _BROWSERS)


def basic(encoded: str, *, in_body: bool = False) -> Credentials:
    """Return the credentials in base64 of user:password. InvalidRequest for any other text."""
    try:
        plain = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        raise InvalidRequest(
            "The Basic credentials cannot be read.", hint="They are base64 of user:password."
        ) from None
    try:
        text = plain.decode()
    except UnicodeDecodeError:
        # Older programs encode Basic in Latin-1. RFC 7617 leaves the encoding open.
        text = plain.decode("latin-1")
    # At the first colon: a password may contain more of them, and the name of a user none.
    name, colon, password = text.partition(":")
    if not colon:
        raise InvalidRequest("The Basic credentials have no colon.", hint="They are base64 of user:password.")
    return Credentials("basic", password, name, in_body)
