"""The catalogue of a service: data sets, models and weights."""

from __future__ import annotations

from edt_sdk.schemas.job import JobSpec
from edt_sdk.schemas.registered import Registered
from edt_server.catalogue.datasets import Datasets
from edt_server.catalogue.models import Models
from edt_server.catalogue.shelf import JobService
from edt_server.catalogue.weights import Weights


class Catalogue:
    """Data sets and models under names."""

    def __init__(self, service: JobService) -> None:
        self.datasets = Datasets(service)
        self.models = Models(service)
        self.weights = Weights(service)

    async def registered(self, user: str, spec: JobSpec, training: Registered | None) -> JobSpec:
        """See `Datasets.registered`."""
        return await self.datasets.registered(user, spec, training)
