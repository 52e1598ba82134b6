"""Plugins of the whole suite, which pytest takes from the top folder only, and what tests of several folders share."""

import contextlib
import gc
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from multiprocessing import resource_tracker

import pytest
from hypothesis import HealthCheck, settings

from tests import aftermath, deadline, leftovers, processor_time

# How long an example takes is no property of it.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")

# Seconds that processes have to come to their end after the last test: a supervisor without a server tries for 60.
_PATIENCE = 180.0

pytest_plugins = ("pytest_jupyter.jupyter_server",)


# Whatever is imported and collected stays to the end. To look for garbage in it again and again is a fifth of the work.
gc.disable()

_own_folder = pytest.StashKey[str]()
_watcher = pytest.StashKey[subprocess.Popen[bytes]]()


def pytest_configure(config: pytest.Config) -> None:
    """What all tests of this process, and everything they start, take for granted."""
    # A shell lets what it starts in the background ignore Ctrl-C, and all that is started from there inherits it.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ["DO_NOT_TRACK"] = "true"  # no library reports its use to its makers from here
    # What killed processes leave behind goes with this folder. Its name is short: there are sockets in it.
    if hasattr(config, "workerinput") or not config.getoption("numprocesses", None):
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())  # tmp_path stays, as ever
        config.stash[_own_folder] = os.environ["TMPDIR"] = tempfile.tempdir = tempfile.mkdtemp(prefix="t-")
        config.stash[_watcher] = aftermath.watch(os.environ["TMPDIR"])
    if os.environ.get("EDT_LEFTOVERS"):
        config.pluginmanager.register(leftovers)
    if os.environ.get("EDT_TEST_DEADLINE"):
        config.pluginmanager.register(deadline)
    if os.environ.get("EDT_PROCESSOR_TIME"):
        config.pluginmanager.register(processor_time.ProcessorTime(config))


def pytest_collection_finish() -> None:
    """Look for garbage again, among what the tests make."""
    gc.freeze()
    gc.enable()


def pytest_unconfigure(config: pytest.Config) -> None:
    """Take the folder away again."""
    if watcher := config.stash.get(_watcher, None):
        aftermath.dismiss(watcher)


@pytest.fixture(scope="session", autouse=True)
def _nothing_is_left_running(pytestconfig: pytest.Config) -> Iterator[None]:
    """Whatever the tests of this process have started, they have ended; told by the folder in its environment."""
    yield
    folder = pytestconfig.stash[_own_folder]
    deadline = time.monotonic() + _PATIENCE
    while (left := _left_running(folder)) and time.monotonic() < deadline:
        time.sleep(0.1)
    for pid in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    assert not left, f"left running by the tests of this process: {left}"


def _left_running(folder: str) -> dict[int, str]:
    # multiprocessing's helper, which a test of shared memory may have begun, ends with the process it belongs to.
    helper = resource_tracker._resource_tracker._pid
    return {pid: command for pid, command in aftermath.started_with(folder).items() if pid != helper}


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """How many processes `-n auto` means: few, since each starts others, but more than two cores, since tests wait."""
    from edt_server.system.slots import usable_cores

    return min(4, usable_cores() + 1)


_SLOW_TRAINER = """\
import sys, time
from pathlib import Path
import torch
from fabric_model import FabricModel

class Slow(torch.utils.data.Dataset):
    def __len__(self):
        return 8
    def __getitem__(self, index):
        self.read = getattr(self, "read", 0) + 1
        if self.read > 60 and not Path(sys.argv[1]).exists():
            time.sleep(0.25)
        if not Path(sys.argv[1]).exists():
            time.sleep(0.02)
        return torch.full((3,), float(index)), torch.tensor(float(index))

def datasets():
    return Slow(), Slow()

torch.manual_seed(1)
model = torch.nn.Sequential(torch.nn.Linear(3, 1), torch.nn.Flatten(0))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
fabric = FabricModel(model, datasets, torch.nn.functional.mse_loss, optimizer)
fabric.train(100, 2, 2, checkpoint_freq=1, validation_freq=100)
"""


@pytest.fixture(scope="session")
def slow_trainer() -> str:
    """A main script that trains slowly until the file named by its argument is there: time to act in the middle.

    After thirty updates very slowly: on a busy machine it must not have ended before somebody acts.
    """
    return _SLOW_TRAINER
