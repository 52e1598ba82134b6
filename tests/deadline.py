"""`EDT_TEST_DEADLINE=T make test`: a run that ends in time on a machine of any speed, and says what it did not come to.

CI ends a run after 90 minutes and then knows nothing of it. On a machine seven times slower than usual the tests take
longer than that. With this plugin no test begins behind T, in seconds since 1970; what is left out is skipped, and
named by file at the end. So that it is the least important, tests of the engine and the server begin, and those that
need a browser or a whole training come last. Where there is time for all, all run.
"""

from __future__ import annotations

import os
import time
from collections import Counter

import pytest

# What begins: the engine and the scheduler with all that is below the server, and then what both promise, as a whole.
_FIRST = ("training", "server")
_PROMISES = ("test_equal_bits.py", "test_client_mode.py", "test_isolation.py", "test_recovery.py")
# Folders that begin last, in this order.
_LAST = ("e2e", "failures", "benchmarks", "browser")
_REASON = "the time of this run is over (EDT_TEST_DEADLINE)"
_left_out: Counter[str] = Counter()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the folders of whole journeys behind the others; within a folder the order stays."""
    items.sort(key=lambda item: _rank(item.nodeid.partition("::")[0].split("/")))


def _rank(path: list[str]) -> int:
    """Return when a file begins, 0 for first."""
    for at, folder in enumerate(_LAST):
        if folder in path:
            return 1 if path[-1] in _PROMISES else 3 + at
    return 0 if not set(_FIRST).isdisjoint(path) else 2


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Begin no test when the time is over."""
    if time.time() > float(os.environ["EDT_TEST_DEADLINE"]):
        pytest.skip(_REASON)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Count what is left out; with several processes this is the one that all reports come to."""
    if report.skipped and isinstance(report.longrepr, tuple) and _REASON in report.longrepr[2]:
        _left_out[report.nodeid.partition("::")[0]] += 1


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name the files, with how many of their tests were left out."""
    if _left_out:
        terminalreporter.section(f"{_left_out.total()} tests did not run: {_REASON}")
        for file, count in sorted(_left_out.items()):
            terminalreporter.write_line(f"{count:5}  {file}")
