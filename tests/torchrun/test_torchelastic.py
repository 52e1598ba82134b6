"""Old-style scripts of PyTorch Elastic: what they import, and how they were started."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

COMPAT = Path(__file__).parents[2] / "edt_sdk" / "compat" / "job"
OLD_STYLE = """\
import os, sys
import torchelastic.rendezvous
import torchelastic.rendezvous.api as api
import torchelastic.agent.server.api
import torchelastic.distributed.launch
from torchelastic.utils.data import ElasticDistributedSampler
from torchelastic.multiprocessing import Std
from torchelastic.events import Event
import torch.distributed.elastic.rendezvous.api as new
import torch.distributed.elastic

assert api is new and api.__spec__.name == "torch.distributed.elastic.rendezvous.api", api.__spec__
assert issubclass(torchelastic.rendezvous.RendezvousHandler, new.RendezvousHandler)
try:
    import torchelastic.never_was
except ModuleNotFoundError as error:
    assert error.name == "torchelastic.never_was"
else:
    raise AssertionError("there is no such module")
print("rank", os.environ.get("RANK"), "argv", sys.argv[1:])
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "old_style.py"
    path.write_text(OLD_STYLE)
    return path


def run(*words: str | Path) -> str:
    environment = {**os.environ, "PYTHONPATH": str(COMPAT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, *map(str, words)], capture_output=True, text=True, env=environment, timeout=240
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_modules_are_there_under_their_old_names(script: Path):
    assert run(script, "a") == "rank None argv ['a']\n"


def test_the_old_launcher_starts_an_old_style_script(script: Path):
    launcher = ("-m", "torchelastic.distributed.launch")
    options = ("--nnodes=1", "--nproc_per_node=1", "--with_etcd", "--rdzv_backend=c10d", "--rdzv_endpoint=127.0.0.1:0")
    assert "rank 0 argv ['a']" in run(*launcher, *options, script, "a")
