"""End to end: a real Jupyter Server, real jobs, real processes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from edt_sdk.testing import LocalServer
from tests.e2e.harness import Jobs


@pytest.fixture(scope="session")
def four_slots(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jobs]:
    """A server with four slots and one thread a slot."""
    with LocalServer(tmp_path_factory.mktemp("four"), slots=4, traits={"EdtApp.threads_per_slot": 1}) as server:
        yield Jobs(server)


@pytest.fixture(scope="session")
def one_slot(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jobs]:
    """A server with one slot and one thread a slot."""
    with LocalServer(tmp_path_factory.mktemp("one"), slots=1, traits={"EdtApp.threads_per_slot": 1}) as server:
        yield Jobs(server)
