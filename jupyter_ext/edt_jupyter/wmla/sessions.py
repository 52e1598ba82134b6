"""The token of a session: it stands for the credentials of a logon, for twelve hours.

Tornado signs it with a key that all servers over one data folder share, and that changes with the server's password.
So a token survives a restart, and no list of tokens is kept. All tokens have one length, because dlicmd overwrites the
token in its file without truncating the file. An ended session is remembered until it would have expired, by all
servers over the data folder.
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

# WMLA's own tokens expire after twelve hours too.
SECONDS = 12 * 3600
_DAY = 86_400
_NAME = "edt-wmla"
_LENGTH = 768  # of the signed text, longer only for a Jupyter token or user name that does not fit


def signing_key(secret: str, provider: IdentityProvider) -> str:
    """Return the key of all sessions. `secret` is what servers over one data folder share.

    Raises:
        ServerUnreachable: the secret is not known yet.
    """
    if not secret:
        raise ServerUnreachable("jupyter-edt is starting.", hint="Try again in a moment.")
    mac = hmac.new(secret.encode(), b"wmla sessions", hashlib.sha256)
    return provider.cookie_secret_hook(mac).hexdigest()


def seal(key: str, kind: str, value: str) -> str:
    """Return a token for a credential. `kind` names the kind of `value`."""
    nonce = secrets.token_hex(8)  # two logons within a second are two sessions, each with an end of its own
    # All tokens get one length: dlicmd overwrites the old token in its file and does not truncate the file.
    room = -len(json.dumps([kind, value, nonce, ""])) % _LENGTH
    signed = create_signed_value(key, _NAME, json.dumps([kind, value, nonce, " " * room]))
    return base64.urlsafe_b64encode(signed).decode().rstrip("=")


def unseal(key: str, token: str) -> tuple[str, str] | None:
    """Return the sealed kind and value, None for an expired token, or one of another origin."""
    try:
        # Without `validate` foreign characters are skipped, and a session that was logged off would be valid again
        # under another spelling, with a hash that no file has.
        signed = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        return None
    plain = decode_signed_value(key, _NAME, signed, max_age_days=SECONDS / _DAY)
    if plain is None:
        return None
    kind, value, *_ = json.loads(plain)
    return kind, value


class Ended:
    """The sessions that were logged off before they expired: a file for each, named after the session's hash.

    The folder is shared by all servers over one data folder, so that a logoff holds on each of them, also after a
    restart. A file contains nothing. Its time is the time of the logoff.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def add(self, token: str) -> None:
        """Record that this session has ended."""
        make_private_dir(self._folder)
        now = time.time()
        for mark in self._folder.iterdir():
            with contextlib.suppress(FileNotFoundError):  # another server may remove it at the same time
                if mark.stat().st_mtime < now - SECONDS:
                    mark.unlink()
        (self._folder / _mark(token)).touch(mode=0o600)

    def __contains__(self, token: str) -> bool:
        return (self._folder / _mark(token)).exists()


def _mark(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
