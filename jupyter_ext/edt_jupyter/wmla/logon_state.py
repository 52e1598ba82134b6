"""Check a client's password as Jupyter's identity provider does, and remember ended sessions.

A Basic password is a Jupyter token or the server's password. Checking a password takes its hash function's time, so a
correct password is remembered as a keyed digest, while this process lives and the password is not changed. Wrong ones
are checked one at a time: guessing is slow and delays no other user.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import os
from pathlib import Path

from jupyter_server.auth import IdentityProvider, User
from jupyter_server.auth.identity import PasswordIdentityProvider
from jupyter_server.base.handlers import JupyterHandler

from edt_jupyter.wmla.sessions import Ended


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
