"""The server's side with the real process: it is killed at any moment, and ends with the server in every way."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys

import psutil
import pytest
import pytest_asyncio

from edt_server.suggestions import Suggestions
from edt_server.suggestions import suggestions as module
from tests.server.suggestions.asked import Lanes, answered, asking, environ
from tests.waiting import until, until_async


@pytest_asyncio.fixture
async def there():
    found = Suggestions(environ())
    yield found
    await found.close()


async def begun(there, number=12):
    lanes = Lanes()
    for at in range(number):
        (found,) = (await answered(there, asking("tpe", at), lanes.log)).suggestions
        lanes.begin(found)
    return lanes


@pytest.mark.asyncio
async def test_one_process_for_all_searches_kept_between_questions(there):
    assert there.pids == {}
    await answered(there, asking("tpe", 0), [])
    pids = there.pids
    await answered(there, asking("random", 0, search="other"), [])
    assert there.pids == pids == {"": pids[""]}
    await answered(there, asking("gp", 0), [])
    assert there.pids == {**pids, "gp": there.pids["gp"]}, "which takes long, and holds up no other"
    await there.close()
    assert there.pids == {}
    assert not psutil.pid_exists(pids[""])


@pytest.mark.asyncio
async def test_killed_in_the_middle_of_a_question(there):
    lanes = await begun(there)
    question = asking("tpe", 12)
    expected = (await answered(there, question, lanes.log)).suggestions
    for _ in range(3):
        pid = there.pids[""]
        os.kill(pid, signal.SIGSTOP)
        asked = asyncio.create_task(answered(there, question, lanes.log))
        await until_async(lambda: there._samplers._sent == {}, "the question to be sent")
        os.kill(pid, signal.SIGKILL)
        assert (await asked).suggestions == expected
        assert there.pids[""] != pid


@pytest.mark.asyncio
async def test_a_process_that_has_ended_while_it_was_idle_is_no_failure(there, caplog):
    lanes = await begun(there)
    expected = (await answered(there, asking("tpe", 12), lanes.log)).suggestions
    os.kill(there.pids[""], signal.SIGALRM)  # what it sends itself after a long time
    await until_async(lambda: there._samplers.process.returncode is not None, "its end")
    assert (await answered(there, asking("tpe", 12), lanes.log)).suggestions == expected
    assert "the process that suggests" not in caplog.text


@pytest.mark.asyncio
async def test_a_process_that_keeps_too_much_is_started_again(there, monkeypatch):
    lanes = await begun(there)
    expected, pids = (await answered(there, asking("tpe", 12), lanes.log)).suggestions, there.pids
    monkeypatch.setattr(module, "MOST_KEPT", len(lanes.log) - 1)
    assert (await answered(there, asking("tpe", 12), lanes.log)).suggestions == expected
    assert there.pids != pids


@pytest.mark.asyncio
async def test_a_question_that_may_see_less_than_the_one_before_sees_no_more(there):
    lanes, few = await begun(there), {"n_startup_trials": 1}
    expected = (await answered(there, asking("tpe", 12, search="new", options=few), lanes.log[:8])).suggestions
    later = (await answered(there, asking("tpe", 12, search="new", options=few), lanes.log)).suggestions
    assert later != expected, "or the test would prove nothing"
    again = await answered(there, asking("tpe", 12, search="new", options=few), lanes.log[:8])
    assert again.suggestions == expected


@pytest.mark.asyncio
async def test_questions_of_several_searches_at_once(there):
    found = await asyncio.gather(*(answered(there, asking("random", at, search=f"s{at}"), []) for at in range(20)))
    assert [each.suggestions[0].number for each in found] == list(range(20))


_SERVER = """
import asyncio, os, sys
from edt_server.suggestions import Suggestions
from edt_server.suggestions import suggestions as module
from tests.server.suggestions.asked import answered, asking
async def main():
    there = Suggestions(dict(os.environ))
    await answered(there, asking("tpe", 0), [])
    print(there.pids[""], flush=True)
    await asyncio.Event().wait()
asyncio.run(main())
"""


@pytest.mark.parametrize("stopped", [False, True])
def test_it_ends_with_a_server_that_is_killed(stopped):
    """Also when it does not see the end of its stdin, because it is stopped, as one that hangs would not."""
    server = subprocess.Popen([sys.executable, "-c", _SERVER], stdout=subprocess.PIPE, text=True, env=environ())
    pid = int(server.stdout.readline())
    assert psutil.pid_exists(pid)
    if stopped:
        os.kill(pid, signal.SIGSTOP)
    server.kill()
    server.wait()
    server.stdout.close()
    until(lambda: not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE, "its end")
