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
    edimodels,
    exec_deployment,
    execs,
    hypersearch,
    inference,
    inference_models,
    inference_runtimes,
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


class NoInferenceHandler(_NoRoute):
    """The console's predictions, which ran a script of a model once for some pictures."""

    def refuse(self) -> NoReturn:
        """Raise 501."""
        raise HTTPError(501, "Predictions of the console are not in this release. Deploy the model, and send requests.")


class NoStreamsHandler(_NoRoute):
    """Streams of tasks to a model."""

    def refuse(self) -> NoReturn:
        """Raise 501."""
        raise HTTPError(501, f"Streams are not in this release. Send requests to {INFERENCE}/inference and the model.")


class WmlaUnknownHandler(_NoRoute):
    """Every other path."""


_OTHERS = (
    about,
    algorithms,
    datasets,
    edimodels,
    exec_deployment,
    execs,
    hypersearch,
    models,
    scheduler,
    trainings,
    tunings,
    validations,
)
_INFERENCE = (inference, inference_models, inference_runtimes)
ROUTES: list[tuple[str, type[EdtHandler]]] = [
    *routes_of(logon, below=AUTH),
    (f"{CONDUCTOR}/auth/logon", logon.LogonHandler),
    *routes_of(conductor, below=CONDUCTOR),
    *routes_of(*_OTHERS, below=DEEP_LEARNING),
    *routes_of(*_INFERENCE, below=INFERENCE),
]
# Whole families that answer 501, each a pattern below one of the roots, and then every other path.
FAMILIES: tuple[tuple[str, type[EdtHandler]], ...] = (
    (rf"{DEEP_LEARNING}/inferences(?:/.*)?", NoInferenceHandler),
    (rf"{DEEP_LEARNING}/edimodels/[^/]+/streaming/?", NoStreamsHandler),
    (rf"{INFERENCE}/model/[^/]+/streaming/?", NoStreamsHandler),
    *((rf"{root}(?:/.*)?", WmlaUnknownHandler) for root in (AUTH, CONDUCTOR, DEEP_LEARNING, INFERENCE)),
)


def handlers() -> list[tuple[str, type[EdtHandler]]]:
    """Return patterns relative to the base URL."""
    return [*((pattern(path), handler) for path, handler in ROUTES), *FAMILIES]
