"""Routes of WMLA's that this server does not have: told apart from paths that nobody knows."""

from __future__ import annotations

from typing import NoReturn

from tornado.web import HTTPError, authenticated

from edt_jupyter.http.authorization import authorized
from edt_jupyter.wmla.base import WmlaHandler
from edt_sdk.schemas.errors import NotFound


class _NoRoute(WmlaHandler):
    def refuse(self) -> NoReturn:
        """Raise the answer."""
        raise NotFound(f"There is no {self.request.method} {self.request.path} here.", hint="See docs/wmla-routes.md.")


def _verbs(about: str, cls: type[_NoRoute]) -> type[_NoRoute]:
    """Give a handler all verbs; each is decorated for itself (see `edt_jupyter.http.authorization`)."""

    @authenticated
    @authorized("read", resource="edt:cluster")
    async def get(self: _NoRoute, *_path: str) -> None:
        self.refuse()

    @authenticated
    @authorized("read", resource="edt:cluster")
    async def head(self: _NoRoute, *_path: str) -> None:
        self.refuse()

    @authenticated
    @authorized("write", resource="edt:cluster")
    async def post(self: _NoRoute, *_path: str) -> None:
        self.refuse()

    @authenticated
    @authorized("write", resource="edt:cluster")
    async def put(self: _NoRoute, *_path: str) -> None:
        self.refuse()

    @authenticated
    @authorized("write", resource="edt:cluster")
    async def patch(self: _NoRoute, *_path: str) -> None:
        self.refuse()

    @authenticated
    @authorized("write", resource="edt:cluster")
    async def delete(self: _NoRoute, *_path: str) -> None:
        self.refuse()

    verbs = (get, head, post, put, patch, delete)
    for verb in verbs:
        verb.__doc__ = about
        setattr(cls, verb.__name__, verb)
    return cls


class HypersearchHandler(_NoRoute):
    """`/hypersearch` and everything below it."""

    def refuse(self) -> NoReturn:
        """501."""
        raise HTTPError(501, "Hyper-parameter search is not in this release; submit its trainings one by one.")


class InferenceHandler(_NoRoute):
    """Inference: `/dlim/v1`, and what belongs to it elsewhere."""

    def refuse(self) -> NoReturn:
        """501."""
        raise HTTPError(501, "Inference is not in this release; download the result and serve the model elsewhere.")


class UnknownHandler(_NoRoute):
    """Every other path."""


_verbs("501.", HypersearchHandler)
_verbs("501.", InferenceHandler)
_verbs("NotFound.", UnknownHandler)
