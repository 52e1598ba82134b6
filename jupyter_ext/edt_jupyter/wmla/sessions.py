"""What a logon hands out: a token that stands for the credentials it was given, for twelve hours.

Signed by tornado with a key that all servers over one data folder share and that changes with the server's password, so
that it survives a restart, and nobody has to keep a list. All tokens have one length: dlicmd writes the new one over
the old one in its file without shortening that. What a logoff has ended is remembered for as long as it would live,
by all servers over the data folder.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import hashlib
import hmac
import json
import secrets
import time
from pathlib import Path

from jupyter_server.auth import IdentityProvider
from tornado.web import create_signed_value, decode_signed_value

from edt_sdk.schemas.errors import ServerUnreachable
from edt_server.system.private_files import make_private_dir

SECONDS = 12 * 3600
_DAY = 86_400
_NAME = "edt-wmla"
_LENGTH = 768  # of what is signed; more only for a Jupyter token or user that has no room in it


def signing_key(secret: str, provider: IdentityProvider) -> str:
    """The key of all sessions; `secret` is what servers over one data folder share.

    Raises:
        ServerUnreachable: the secret is not known yet.
    """
    if not secret:
        raise ServerUnreachable("jupyter-edt is starting.", hint="Try again in a moment.")
    mac = hmac.new(secret.encode(), b"wmla sessions", hashlib.sha256)
    return provider.cookie_secret_hook(mac).hexdigest()


def seal(key: str, kind: str, value: str) -> str:
    """A token for a credential: `kind` says what `value` is."""
    nonce = secrets.token_hex(8)  # two logons in one second are two sessions: each is ended by itself
    room = -len(json.dumps([kind, value, nonce, ""])) % _LENGTH
    signed = create_signed_value(key, _NAME, json.dumps([kind, value, nonce, " " * room]))
    return base64.urlsafe_b64encode(signed).decode().rstrip("=")


def unseal(key: str, token: str) -> tuple[str, str] | None:
    """What was sealed, None when this is no token of ours, or an old one."""
    try:
        signed = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        return None
    plain = decode_signed_value(key, _NAME, signed, max_age_days=SECONDS / _DAY)
    if plain is None:
        return None
    kind, value, *_ = json.loads(plain)
    return kind, value


class Ended:
    """The sessions that were logged off before their time: a file each, named after the session's hash.

    In a folder that all servers over one data folder share, so that they know of each other's logoffs, also after a
    restart. A file says no more than that somebody logged off, and when.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def add(self, token: str) -> None:
        """This one is over."""
        make_private_dir(self._folder)
        now = time.time()
        for mark in self._folder.iterdir():
            with contextlib.suppress(FileNotFoundError):  # another server may tidy up too
                if mark.stat().st_mtime < now - SECONDS:
                    mark.unlink()
        (self._folder / _mark(token)).touch(mode=0o600)

    def __contains__(self, token: str) -> bool:
        return (self._folder / _mark(token)).exists()


def _mark(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
