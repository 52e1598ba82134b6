"""The catalogue of a service: data sets, models and weights."""

from __future__ import annotations

from edt_server.catalogue.datasets import Datasets
from edt_server.catalogue.models import Models
from edt_server.catalogue.shelf import JobService
from edt_server.catalogue.weights import Weights


class Catalogue:
    """Data sets, models and weights under names."""

    def __init__(self, service: JobService) -> None:
        self.datasets = Datasets(service)
        self.models = Models(service)
        self.weights = Weights(service)
