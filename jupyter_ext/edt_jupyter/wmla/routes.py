"""Map WMLA's routes to handlers. The test suite makes `docs/wmla-routes.md` of this table."""

from __future__ import annotations

from typing import NoReturn

from tornado.web import HTTPError

from edt_jupyter.http.base import EdtHandler, pattern, routes_of
from edt_jupyter.wmla import (
    about,
    algorithms,
    conductor,
    datasets,
    execs,
    hypersearch,
    logon,
    models,
    scheduler,
    trainings,
    tunings,
    validations,
)
from edt_jupyter.wmla.base import WmlaHandler
from edt_sdk.schemas.errors import NotFound

AUTH = "/auth/v1"
CONDUCTOR = "/platform/rest/conductor/v1"
DEEP_LEARNING = "/platform/rest/deeplearning/v1"
INFERENCE = "/dlim/v1"


class _NoRoute(WmlaHandler, resource="edt:cluster"):
    """Base of the answers for routes that this server does not have, which distinguish them from unknown paths."""

    def refuse(self) -> NoReturn:
        """Raise the error of the answer."""
        raise NotFound(f"There is no {self.request.method} {self.request.path} here.", hint="See docs/wmla-routes.md.")

    async def get(self, *_path: str) -> None:
        """Refuse the request."""
        self.refuse()

    head = post = put = patch = delete = get


class InferenceHandler(_NoRoute):
    """Inference: `/dlim/v1`, and the routes for it elsewhere."""

    def refuse(self) -> NoReturn:
        """Raise 501."""
        raise HTTPError(501, "Inference is not in this release; download the result and serve the model elsewhere.")


class WmlaUnknownHandler(_NoRoute):
    """Every other path."""


_OTHERS = (about, algorithms, datasets, execs, hypersearch, models, scheduler, trainings, tunings, validations)
ROUTES: list[tuple[str, type[EdtHandler]]] = [
    *routes_of(logon, below=AUTH),
    (f"{CONDUCTOR}/auth/logon", logon.LogonHandler),
    *routes_of(conductor, below=CONDUCTOR),
    *routes_of(*_OTHERS, below=DEEP_LEARNING),
]
# Whole families that answer 501, each a pattern below one of the roots, and then every other path.
FAMILIES: tuple[tuple[str, type[EdtHandler]], ...] = (
    (rf"{DEEP_LEARNING}/execs/[^/]+/deploy/?", InferenceHandler),
    (rf"{DEEP_LEARNING}/(?:inferences|edimodels)(?:/.*)?", InferenceHandler),
    (rf"{INFERENCE}(?:/.*)?", InferenceHandler),
    *((rf"{root}(?:/.*)?", WmlaUnknownHandler) for root in (AUTH, CONDUCTOR, DEEP_LEARNING)),
)


def handlers() -> list[tuple[str, type[EdtHandler]]]:
    """Return patterns relative to the base URL."""
    return [*((pattern(path), handler) for path, handler in ROUTES), *FAMILIES]
