"""The server dies under load and comes back: nothing is lost or run twice. `make chaos-server` does it 50 times."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.server_kills import kill_again_and_again
from tests.chaos.victims import ServerVictim


@pytest.mark.long  # server/service/test_next_server.py, e2e/test_isolation.py kills it under a training
def test_killed_twice_under_load_the_server_knows_every_job(tmp_path: Path) -> None:
    print(kill_again_and_again(tmp_path, kills=2, seed=4, victim=ServerVictim()))
