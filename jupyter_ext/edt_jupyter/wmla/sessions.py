"""Logons: check a client's password, and keep the session of a logon, which lasts for twelve hours.

A Basic password is a Jupyter token or the server's password. Checking a password takes its hash function's time, so a
correct password is remembered as a keyed digest, while this process lives and the password is not changed. Wrong ones
are checked one at a time: guessing is slow and delays no other user.

A client gets random text. The credential of its logon stays in a file, in the folder that all servers over one data
folder share. So a session survives a restart, holds on each of these servers, and ends with its file.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import json
import os
import re
import secrets
import time
from pathlib import Path

from jupyter_server.auth import IdentityProvider, User
from jupyter_server.auth.identity import PasswordIdentityProvider
from jupyter_server.base.handlers import JupyterHandler

from edt_sdk.schemas.errors import ServerUnreachable
from edt_server.system.private_files import make_private_dir, write_private

# WMLA's own tokens expire after twelve hours too.
SECONDS = 12 * 3600
# The sessions that one user can have at once. A script that logs on for each call must not fill the disk. One that does
# so twice a minute ends no other session of its user early.
MOST = 2000
_MARK, _RANDOM = 32, 1101  # characters of the owner's mark, and bytes of the random text after it
# All tokens have the length of the releases before: dlicmd overwrites the old token in its file and does not truncate
# the file.
_TOKEN = re.compile(rf"[0-9a-f]{{{_MARK}}}[A-Za-z0-9_-]{{{_RANDOM * 4 // 3}}}")


def signing_key(secret: str, provider: IdentityProvider) -> str:
    """Return the key of all sessions. `secret` is what servers over one data folder share, "" before it is known."""
    if not secret:
        raise ServerUnreachable("jupyter-edt is starting.", hint="Try again in a moment.")
    mac = hmac.new(secret.encode(), b"wmla sessions", hashlib.sha256)
    return provider.cookie_secret_hook(mac).hexdigest()


class Sessions:
    """The sessions that have not ended: a file for each, with the credential of its logon.

    The name of a file and what encrypts it come from the token, which no server keeps, and from the key, which changes
    with the server's password. So the folder alone gives no credential, and a new password ends all sessions.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def open(self, key: str, owner: str, kind: str, value: str) -> str:
        """Return the token of a new session with a credential of `kind`. The oldest of too many of one owner ends."""
        make_private_dir(self._folder)
        mark = _mac(key, owner)[: _MARK // 2].hex()
        self._clean(mark)
        token = mark + secrets.token_urlsafe(_RANDOM)
        path, pad = self._place(key, token)
        write_private(path, _crypt(pad, json.dumps([kind, value, time.time() + SECONDS]).encode()))
        return token

    def read(self, key: str, token: str) -> tuple[str, str] | None:
        """Return the kind and value of a session's credential, None for a session that has ended."""
        path, pad = self._place(key, token)
        try:
            kind, value, ends = json.loads(_crypt(pad, path.read_bytes()))
        except (FileNotFoundError, ValueError):
            return None
        # Also ended when its end is further away than a session lasts: the clock was set back since. Twice as long is
        # allowed for, because a clock that is corrected by a second must end no session.
        return (kind, value) if 0 < ends - time.time() < 2 * SECONDS else None

    def end(self, key: str, token: str) -> None:
        """End the session, on all servers over the data folder. The credential is gone then."""
        self._place(key, token)[0].unlink(missing_ok=True)

    def _clean(self, mark: str) -> None:
        """Remove what has expired, and the owner's oldest sessions, so that there is room for one more."""
        over = time.time() - SECONDS
        own: list[tuple[float, Path]] = []
        for path in self._folder.iterdir():
            with contextlib.suppress(FileNotFoundError):  # another server may remove it at the same time
                written = path.stat().st_mtime
                if written < over:
                    path.unlink()
                elif path.name.startswith(mark):
                    own.append((written, path))
        for _, path in sorted(own)[: max(0, len(own) - MOST + 1)]:
            path.unlink(missing_ok=True)

    def _place(self, key: str, token: str) -> tuple[Path, bytes]:
        """Return the file of a session, and the key of its content."""
        digest = _mac(key, token)
        return self._folder / f"{token[:_MARK]}-{digest[:32].hex()}", digest[32:]


def is_session(token: str) -> bool:
    """Return True for a token that has the form of a session's."""
    # Checked before a part of the token becomes a part of a file's name.
    return _TOKEN.fullmatch(token) is not None


def _mac(key: str, text: str) -> bytes:
    return hmac.new(key.encode(), text.encode(), hashlib.sha512).digest()


def _crypt(pad: bytes, data: bytes) -> bytes:
    """Encrypt or decrypt by a stream of bytes. Each session has a stream of its own, used for one file only."""
    stream = hashlib.shake_256(pad).digest(len(data))
    return bytes(a ^ b for a, b in zip(data, stream, strict=True))


class Logons:
    """The state of logons: the correct password in this process, and the sessions in a shared folder."""

    def __init__(self, folder: Path) -> None:
        self.sessions = Sessions(folder)
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
    kept = settings.setdefault("edt_wmla_logons", Logons(Path(data_dir, "control", "sessions")))
    assert isinstance(kept, Logons)
    return kept
