"""From a client's credentials to what Jupyter's identity provider knows: it decides, in its own way, who that is.

A Basic password is a Jupyter token or the server's password. A password takes its hash function's time to check; one
that was right is remembered, as a keyed mark, while this process lives and the password stays. Wrong ones are
checked one at a time, so that guessing is slow and holds up nobody else.
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


class Doorkeeper:
    """What is remembered of logons: here which password was right, in a folder which sessions were ended."""

    def __init__(self, folder: Path) -> None:
        self.ended = Ended(folder)
        self._key = os.urandom(32)
        self._right: set[bytes] = set()
        self._one = asyncio.Lock()

    async def by_password(self, provider: IdentityProvider, handler: JupyterHandler, password: str) -> User | None:
        """The user whom the server's password lets in; None when there is no password, or this is not it."""
        if not isinstance(provider, PasswordIdentityProvider) or not provider.hashed_password:
            return None
        text = f"{provider.hashed_password}\0{password}".encode()
        mark = hmac.new(self._key, text, hashlib.sha256).digest()
        if mark not in self._right:
            async with self._one:
                if not await asyncio.to_thread(provider.passwd_check, password):
                    return None
            self._right = {mark}  # one password is right at a time
        return provider.generate_anonymous_user(handler)


def doorkeeper(settings: dict[str, object], data_dir: str) -> Doorkeeper:
    """The web application's, made when it is first needed; `data_dir` is the folder that servers share."""
    kept = settings.setdefault("edt_wmla_doorkeeper", Doorkeeper(Path(data_dir, "control", "ended-sessions")))
    assert isinstance(kept, Doorkeeper)
    return kept
