"""`told`: what a surface says is compared with the table, and each test is held to the cells that it covers."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.failures import matrix

WRITES = bool(os.environ.get("EDT_WRITE_FAILURES"))


@pytest.fixture(autouse=True)
def jp_asyncio_loop() -> None:
    """No loop of pytest-jupyter's: the servers here are processes."""


@pytest.fixture(autouse=True)
def jp_server_cleanup() -> None:
    """Nothing to clean up, for the same reason."""


@pytest.fixture
def told(request: pytest.FixtureRequest) -> Iterator[matrix.Told]:
    """Called with surface, failure and what is read there."""
    covered: set[tuple[str, str]] = getattr(request.function, "covered", set())
    known = matrix.load()
    found: dict[tuple[str, str], str] = {}

    def tell(surface: str, failure: str, text: str) -> None:
        said = matrix.plain(text)
        print(f"{surface} × {failure}: {said}")
        assert (surface, failure) in covered, "the test covers more than it says"
        assert said, f"{surface} says nothing when: {matrix.FAILURES[failure]}"
        found[surface, failure] = said
        if not WRITES:
            assert said == known.get((surface, failure)), "python -m tests.failures writes the table anew"

    yield tell
    if WRITES:
        matrix.save({**matrix.load(), **found})
    rep = getattr(request.node, "outcome_of_call", None)
    if rep is not None and rep.passed:
        assert set(found) == covered


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Keeps how the test itself went, for `told`."""
    outcome = yield
    report = outcome.get_result()
    if report.when == "call":
        item.outcome_of_call = report
