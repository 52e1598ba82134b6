"""What tests of a supervisor's parts share: this process is its stand-in, and has children of other tests too."""

from __future__ import annotations

import pytest

from edt_server.supervisor.processes import orphans as module
from tests.server.supervisor.story import Story


@pytest.fixture(scope="module", autouse=True)
def strangers():
    """Children of this process that other modules' tests have started, such as a database."""
    return frozenset(module.orphans(()))


@pytest.fixture(autouse=True)
def orphans(monkeypatch, strangers):
    """`orphans` without the strangers, which are nobody's to reap or kill."""
    real = module.orphans
    monkeypatch.setattr(module, "orphans", lambda known, adopter=None: real({*strangers, *known}, adopter))
    return module.orphans


@pytest.fixture
def story():
    """A membership machine, one event at a time."""
    return Story()
