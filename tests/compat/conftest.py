"""The job-side modules as a job sees them: top-level names, found through its path only."""

import importlib
import sys
import time
from pathlib import Path

import pytest

JOB_MODULES = Path(__file__).parents[2] / "edt_sdk" / "compat" / "job"
NAMES = ("emetrics", "elog", "callbacks", "edtcallback", "pth_parameter_mgr", "monitor_pth")


class _Modules:
    """Imports a module when it is asked for: emetrics and elog must work without `callbacks`."""

    def __getattr__(self, name):
        return importlib.import_module(name)


@pytest.fixture
def job(monkeypatch, tmp_path):
    """emetrics, elog, callbacks and edtcallback as attributes, in an environment with LOG_DIR and RESULT_DIR."""
    for name in NAMES:
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.syspath_prepend(str(JOB_MODULES))
    for variable in ("TRAINING_ID", "DLI_EXECID", "JOB_STATE_DIR"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("LOG_DIR", str(tmp_path / "log"))
    (tmp_path / "result").mkdir()
    monkeypatch.setenv("RESULT_DIR", str(tmp_path / "result"))
    yield _Modules()
    for name in NAMES:
        sys.modules.pop(name, None)


@pytest.fixture
def noon():
    """The clock stands at 2021-03-04 12:00:00.25 local time, five hours west of Greenwich."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", "EST5")
        time.tzset()
        patch.setattr(time, "time", lambda: 1614877200.25)
        yield 1614877200
    time.tzset()


@pytest.fixture
def lines(tmp_path):
    """Lines of a file in the log folder, without their ends."""
    return lambda name: (tmp_path / "log" / name).read_bytes().decode().split("\n")[:-1]
