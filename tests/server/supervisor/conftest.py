"""What tests of a supervisor's parts share: this process is its stand-in, and has children of other tests too."""

from __future__ import annotations

import pytest

from edt_server.supervisor import orphans as module


@pytest.fixture(autouse=True)
def orphans(monkeypatch):
    """`orphans` without what this process had started before, such as a database: that is nobody's to reap or kill."""
    real = module.orphans
    others = frozenset(real(()))
    monkeypatch.setattr(module, "orphans", lambda known: real({*others, *known}))
    return module.orphans
