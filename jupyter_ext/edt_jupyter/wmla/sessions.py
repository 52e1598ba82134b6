"""Logons: check a client's password, and give the token of a session, which stands for a logon for twelve hours.

A Basic password is a Jupyter token or the server's password. Checking a password takes its hash function's time, so a
correct password is remembered as a keyed digest, while this process lives and the password is not changed. Wrong ones
are checked one at a time: guessing is slow and delays no other user.

Tornado signs a token with a key that all servers over one data folder share, and that changes with the server's
password. So a token survives a restart, and no list of tokens is kept.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import hashlib
import hmac
import json
import os
import secrets
import time
from pathlib import Path

from jupyter_server.auth import IdentityProvider, User
from jupyter_server.auth.identity import PasswordIdentityProvider
from jupyter_server.base.handlers import JupyterHandler
from tornado.web import create_signed_value, decode_signed_value

from edt_sdk.schemas.errors import ServerUnreachable
from edt_server.system.private_files import make_private_dir

# WMLA's own tokens expire after twelve hours too.
SECONDS = 12 * 3600
_DAY = 86_400
_NAME = "edt-wmla"
_LENGTH = 768  # of the signed text, longer only for a Jupyter token or user name that does not fit


def signing_key(secret: str, provider: IdentityProvider) -> str:
    """Return the key of all sessions. `secret` is what servers over one data folder share, "" before it is known."""
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


class Logons:
    """The state of logons: the correct password in this process, and the ended sessions in a shared folder."""

    def __init__(self, folder: Path) -> None:
        self.ended = Ended(folder)
        self._key = os.urandom(32)
        self._right: set[bytes] = set()
        self._one = asyncio.Lock()

    async def by_password(self, provider: IdentityProvider, handler: JupyterHandler, password: str) -> User | None:
        """Return the user that the server's password identifies, None for a wrong password or a server without one."""
        if not isinstance(provider, PasswordIdentityProvider) or not provider.hashed_password:
            return None
        text = f"{provider.hashed_password}\0{password}".encode()
        # The password's hash is part of the text, so a changed password makes the cached digest useless.
        mark = hmac.new(self._key, text, hashlib.sha256).digest()
        if mark not in self._right:
            async with self._one:
                # The hash function takes its time on purpose, and the event loop must not wait for it.
                if not await asyncio.to_thread(provider.passwd_check, password):
                    return None
            self._right = {mark}  # only one password is correct at a time
        return provider.generate_anonymous_user(handler)


def logons(settings: dict[str, object], data_dir: str) -> Logons:
    """Return the web application's instance, made when first needed. `data_dir` is the folder that servers share."""
    kept = settings.setdefault("edt_wmla_logons", Logons(Path(data_dir, "control", "ended-sessions")))
    assert isinstance(kept, Logons)
    return kept


def _mark(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
