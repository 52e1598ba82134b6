"""WMLA's routes that this server does not have, with an answer that distinguishes them from unknown paths."""

from __future__ import annotations

from typing import NoReturn

from tornado.web import HTTPError

from edt_jupyter.wmla.base import WmlaHandler
from edt_sdk.schemas.errors import NotFound


class _NoRoute(WmlaHandler):
    auth_resource = "edt:cluster"

    def refuse(self) -> NoReturn:
        """Raise the error of the answer."""
        raise NotFound(f"There is no {self.request.method} {self.request.path} here.", hint="See docs/wmla-routes.md.")

    async def get(self, *_path: str) -> None:
        """Refuse the request."""
        self.refuse()

    head = post = put = patch = delete = get


class HypersearchHandler(_NoRoute):
    """`/hypersearch` and everything below it."""

    def refuse(self) -> NoReturn:
        """Raise 501."""
        # 501 and not 404: a client learns that the route exists elsewhere, and no stub makes it continue with an object
        # that does not exist (docs/decisions/021).
        raise HTTPError(501, "Hyper-parameter search is not in this release; submit its trainings one by one.")


class InferenceHandler(_NoRoute):
    """Inference: `/dlim/v1`, and the routes for it elsewhere."""

    def refuse(self) -> NoReturn:
        """Raise 501."""
        raise HTTPError(501, "Inference is not in this release; download the result and serve the model elsewhere.")


class WmlaUnknownHandler(_NoRoute):
    """Every other path."""
