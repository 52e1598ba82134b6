"""The credentials of a WMLA client, read from a request's headers. Pure.

A token or session in a header of its own is sent by a program on purpose. A Basic password and a cookie are also sent
by browsers on their own account, whoever made them ask: those two count only when nothing in the request says that it
comes from a browser (decision 020).
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass

from edt_sdk.schemas.errors import InvalidRequest

COOKIE = "edt-wmla"
# Scripts send none of these; a browser at least one of them with every request that may change something.
_BROWSERS = ("Origin", "Referer", "Sec-Fetch-Site")


@dataclass(frozen=True, slots=True)
class Credentials:
    """What a request shows.

    Attributes:
        kind: "token" (a Jupyter token or a session), "basic", or "cookie" (a session).
        secret: the token or password.
        name: of Basic, a label.
    """

    kind: str
    secret: str
    name: str = ""

    @property
    def ambient(self) -> bool:
        """True for what a browser may send without anybody's will."""
        return self.kind != "token"


def read(headers: Mapping[str, str], cookie: str | None) -> Credentials | None:
    """The credentials in these headers, else in our cookie; None when there are none, or only Jupyter's own.

    Raises:
        InvalidRequest: a Basic header that cannot be read.
    """
    if token := headers.get("X-Auth-Token", "").strip():
        return Credentials("token", token)
    scheme, _, rest = headers.get("Authorization", "").strip().partition(" ")
    if scheme.lower() == "basic":
        return _basic(rest.strip())
    if scheme.lower() in ("bearer", "token") and rest.strip():
        return Credentials("token", rest.strip())
    return Credentials("cookie", cookie) if cookie else None


def from_browser(headers: Mapping[str, str]) -> bool:
    """True when something says that a browser has made the request."""
    return any(name in headers for name in _BROWSERS)


def _basic(encoded: str) -> Credentials:
    try:
        plain = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        raise InvalidRequest(
            "The Authorization header is no Basic one.", hint="It is base64 of user:password."
        ) from None
    try:
        text = plain.decode()
    except UnicodeDecodeError:
        text = plain.decode("latin-1")
    name, colon, password = text.partition(":")
    if not colon:
        raise InvalidRequest("The Basic credentials have no colon.", hint="They are base64 of user:password.")
    return Credentials("basic", password, name)
