"""What every backend of the store must do: each test here runs on each of them, on an empty database."""

from __future__ import annotations

import pytest

from edt_server.store import Store


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request, tmp_path):
    """Names an empty database."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'edt.db'}"
    return request.getfixturevalue("cluster").new_database()


@pytest.fixture
def store(url):
    made = Store.open(url)
    yield made
    made.close()
