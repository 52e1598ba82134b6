"""Logon and logoff, of 1.2.x's conductor and of 2.x. Answered here, also by a server that does not lead."""

from __future__ import annotations

from edt_jupyter.wmla import sessions
from edt_jupyter.wmla.base import USER, WmlaHandler
from edt_jupyter.wmla.credentials import COOKIE


class _AnsweredHere(WmlaHandler):
    async def forwarded(self) -> bool:
        """Never: who asks is this server's to say."""
        return False

    def _open_session(self) -> str:
        """A token for whoever asks, also as a cookie."""
        # Somebody whom Jupyter's own cookie has let in showed us nothing that could be sealed but who it is.
        kind, value = self._session or (USER, self.identity_provider.user_to_cookie(self.current_user))
        key = sessions.signing_key(self.extension.secret, self.identity_provider)
        token = sessions.seal(key, kind, value)
        secure = self.request.protocol == "https"
        self.set_cookie(COOKIE, token, path=self.base_url, httponly=True, samesite="Strict", secure=secure)
        return token


class LogonHandler(_AnsweredHere):
    """`/auth/v1/logon`, and conductor's `/auth/logon`."""

    auth_resource = "edt:cluster"

    async def get(self) -> None:
        """A token for the following requests, in the answer and as a cookie."""
        self.reply({"accessToken": self._open_session(), "username": self._name()})


class LogoffHandler(_AnsweredHere):
    """`/auth/v1/logoff`."""

    auth_resource = "edt:cluster"
    auth_actions = {"POST": "read"}

    async def post(self) -> None:
        """End the session."""
        if self._shown is not None:
            self.doorkeeper.ended.add(self._shown.secret)
        self.clear_cookie(COOKIE, path=self.base_url)
        self.reply({"message": "Logged off."})
