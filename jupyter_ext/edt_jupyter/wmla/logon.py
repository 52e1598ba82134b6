"""Logon and logoff, for conductor of 1.2.x and for 2.x. Also a server that does not lead answers them."""

from __future__ import annotations

import asyncio
from functools import partial

from edt_jupyter.wmla import sessions
from edt_jupyter.wmla.base import USER, WmlaHandler
from edt_jupyter.wmla.credentials import COOKIE


class AnsweredHere(WmlaHandler):
    """Base of what opens and ends sessions."""

    async def forwarded(self) -> bool:
        """Never forward: this server identifies the user."""
        # Any server over the data folder can open and end a session, because all share the folder and the key
        # (docs/decisions/020).
        return False

    async def open_session(self) -> str:
        """Return a token for this user, and set it as a cookie."""
        # A user with Jupyter's own cookie sent no credential to keep, so the user's name is kept.
        kind, value = self._session or (USER, self.identity_provider.user_to_cookie(self.current_user))
        opening = partial(self.logons.sessions.open, self.session_key, self._name(), kind, value)
        token = await asyncio.to_thread(opening)
        secure = self.request.protocol == "https"
        # No page's script may read it, and no other site may send it (docs/decisions/020).
        self.set_cookie(COOKIE, token, path=self.base_url, httponly=True, samesite="Strict", secure=secure)
        return token


class LogonHandler(AnsweredHere, path="/logon", resource="edt:cluster"):
    """The logon of both generations: conductor's is below another path."""

    async def get(self) -> None:
        """Return a token for later requests, also as a cookie."""
        # A GET, as all clients send it. 1.2.x's notebooks read the status only and repeat Basic with every call, 2.x's
        # read the token, and one script relies on the cookie (docs/decisions/020).
        self.reply({"accessToken": await self.open_session(), "username": self._name()})


class _LogoffHandler(AnsweredHere, path="/logoff", resource="edt:cluster"):
    auth_actions = {"POST": "read"}

    async def post(self) -> None:
        """End the session."""
        if self._shown is not None and sessions.is_session(self._shown.secret):
            self.logons.sessions.end(self.session_key, self._shown.secret)
        self.clear_cookie(COOKIE, path=self.base_url)
        self.reply({"message": "Logged off."})
