"""What the tests of starting supervisors share, and those of a ledger without any."""

from __future__ import annotations

import os
import sys

import pytest

from edt_sdk.schemas.job import JobSpec, JobState
from edt_sdk.schemas.wire.control import Launch
from edt_server.ledger.ledger import Ledger
from edt_server.messaging import key_pair
from tests.clocks import Clocks
from tests.server.ledger_play import Play


@pytest.fixture
def clocks(monkeypatch):
    return Clocks(monkeypatch)


@pytest.fixture
def orders(tmp_path):
    """A job of nobody's server."""
    public, secret = key_pair()
    return Launch(
        job_id=f"job-{os.getpid()}",  # it has a folder in memory, which all of this account see
        owner="ann",
        attempt=1,
        spec=JobSpec(name="n", main="train.py", max_workers=1),
        data_dir=str(tmp_path / "data"),
        runtime_dir=str(tmp_path / "run"),
        control_file=str(tmp_path / "nowhere.json"),
        public_key=public,
        secret_key=secret,
        interpreter=sys.executable,
        threads_per_slot=1,
    )


@pytest.fixture
def play(tmp_path):
    made = Play(tmp_path)
    yield made
    digest = made.ledger.core.digest()
    assert Ledger(made.ledger.store, made.ledger._plan).core.digest() == digest, "replay"
    made.ledger.close()


@pytest.fixture
def trained(play):
    """Job "a" trains on all three slots."""
    play.submit("a")
    play.train("a")
    assert play.state("a") is JobState.RUNNING
    return play
