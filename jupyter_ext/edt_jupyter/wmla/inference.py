"""Tokens of inference, and requests to models."""

from __future__ import annotations

import msgspec
from tornado.web import HTTPError

from edt_jupyter.http.edge import ask_edge, sentence
from edt_jupyter.wmla.credentials import Credentials, basic
from edt_jupyter.wmla.inference_models import InferenceHandler
from edt_jupyter.wmla.logon import AnsweredHere


class _TokenHandler(AnsweredHere, path="/auth/token", resource="edt:cluster"):
    auth_actions = {"POST": "read"}

    def credentials(self) -> Credentials | None:
        """Return what this request shows. A web page sends Basic's credentials in the body."""
        return super().credentials() or _in_body(self.request.body)

    async def post(self) -> None:
        """Return a token for later requests, under each of the names that clients read."""
        token = await self.open_session()
        self.reply({"user_token": token, "service_token": token, "access_token": token})


class _InferenceTokenHandler(_TokenHandler, path="/auth/token/inference"):
    pass


class InferenceCallHandler(InferenceHandler, path="/inference/{model}", resource="edt:deployments"):
    """A task for the kernels of a model."""

    async def post(self, name: str) -> None:
        """Return what the kernel has set, as it is."""
        answer = await ask_edge(self.service, self.user, name, f"/dlim/v1/inference/{name}", self.request)
        if answer.code >= 400:
            raise HTTPError(answer.code, sentence(answer))
        self.finish(answer.body, set_content_type=answer.headers.get("Content-Type", "application/json"))


def _in_body(body: bytes) -> Credentials | None:
    """Return the credentials of a web page: `{"method": "password", "userpasswd": base64 of user:password}`."""
    try:
        encoded = msgspec.json.decode(body, type=_Page).userpasswd
    except msgspec.DecodeError:
        return None
    return basic(encoded, in_body=True) if encoded else None


class _Page(msgspec.Struct):
    userpasswd: str = ""
