"""User's plug-ins in processes of their own: their contract, their state, and everything that they can do wrong."""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
import sys

import psutil
import pytest
import pytest_asyncio

from edt_sdk.schemas.errors import EdtError, Unprocessable
from edt_sdk.schemas.search.space import Uniform, choice, integer, uniform
from edt_sdk.schemas.search.views import TrialState
from edt_sdk.schemas.wire.control import ACCOUNT, SANDBOX, Account, Isolation
from edt_server.searching import PastTrial
from edt_server.suggestions import Plugin, Suggestions
from tests.sandboxes import needs_bubblewrap
from tests.server.suggestions.asked import answered, asking, environ
from tests.server.suggestions.plugins import GRID, RANDOM, searching
from tests.waiting import until_async

SPACE = {
    "lr": uniform(0.001, 0.1, step=0.002),
    "power": Uniform(-2, 0, base=10.0),
    "depth": integer(1, 6),
    "kind": choice("a", "b"),
}
SMALL = {"x": choice(0.5, 1.5), "n": integer(1, 4)}

pytestmark = pytest.mark.asyncio


@pytest_asyncio.fixture
async def there():
    found = Suggestions(environ(), patience=60.0)
    yield found
    await found.close()


@pytest.fixture
def install(tmp_path):
    def write(source, name="plugin"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "optimizer.py").write_text(source)
        return Plugin(folder, sys.executable)

    return write


def ended(suggested, stage=TrialState.FINISHED):
    return [PastTrial(each.number, each.values, stage, float(each.number)) for each in suggested.suggestions]


async def batches(there, plugin, count=4, size=3, space=SPACE, between=None, **more):
    """The values of some batches, each asked for with the results of the one before."""
    found, history, state = [], [], b""
    for at in range(count):
        numbers = range(at * size, (at + 1) * size)
        said = await answered(there, asking("mine", *numbers, space=space, state=state, **more), history, plugin)
        found += [each.values for each in said.suggestions]
        history, state = ended(said), said.state
        if between is not None:
            await between()
    return found


@pytest.mark.parametrize("options", [{"random_seed": "4"}, {}])
async def test_a_plugin_like_ibms_random_one(there, install, options):
    plugin = install(RANDOM)
    plain = await batches(there, plugin, options=options)
    assert len({str(each) for each in plain}) == len(plain) == 12
    assert all(SPACE[name].fitted(value) == value for each in plain for name, value in each.items())

    async def kill():
        os.kill(there.pids["s"], signal.SIGKILL)

    assert await batches(there, plugin, options=options, between=kill) == plain
    assert (await batches(there, plugin, options=options, seed=8) == plain) == bool(options)


async def test_a_plugin_like_ibms_grid_survives_a_kill_without_a_state_of_its_own(there, install):
    plugin, pids = install(GRID), set()

    async def kill():
        pids.add(there.pids["s"])
        os.kill(there.pids["s"], signal.SIGKILL)

    found = await batches(there, plugin, space=SMALL, between=kill)
    assert found == [{"x": x, "n": n} for n in (1, 2, 3) for x in (0.5, 1.5)], "the last batches are empty"
    assert len(pids) == 4


async def test_what_a_plugin_is_told(there, install):
    source = searching(
        "import json, sys\nprint(json.dumps(last), file=sys.stderr, flush=True)\n"
        "self.last = last\nreturn [{'x': 0.5, 'n': 1 if last is None else len(last) + 1}] * n"
    )
    source += "    def get_state(self):\n        return self.last\n    def set_state(self, state):\n        pass\n"
    plugin = install(source)
    first = await answered(there, asking("mine", 0, 1, space=SMALL), [], plugin)
    assert [each.values["n"] for each in first.suggestions] == [1, 1]
    results = [*ended(first)[:1], PastTrial(1, first.suggestions[1].values, TrialState.FAILED)]
    second = await answered(there, asking("mine", 2, space=SMALL, state=first.state), results, plugin)
    assert [each.values["n"] for each in second.suggestions] == [3]
    values = {"x": 0.5, "n": 1}
    assert pickle.loads(second.state) == [
        {**values, "id": 0, "state": "FINISHED", "metricVal": 0.0, "hyperParams": values},
        {**values, "id": 1, "state": "FAILED", "metricVal": 9999.99, "hyperParams": values},
    ]


async def test_values_are_snapped_and_more_than_asked_are_dropped(there, install):
    plugin = install(
        searching(
            "import numpy as np\nfound = {'lr': np.float64(0.0441635), 'power': -9, 'depth': np.int64(50)}\n"
            "return [found | {'kind': 'b', 'another': 1}] * 5"
        )
    )
    said = await answered(there, asking("mine", 0, 1, space=SPACE), [], plugin)
    assert [each.values for each in said.suggestions] == [{"lr": 0.045, "power": 0.01, "depth": 6, "kind": "b"}] * 2
    assert said.note == "mine returned 5 sets of values for 2 trials. The rest is dropped."


async def test_a_plugin_may_print_read_and_start_what_it_likes(there, install):
    body = "import os, subprocess, sys\nprint('x' * 100000)\nos.write(1, b'raw')\nassert sys.stdin.read() == ''\n"
    body += "subprocess.run(['echo', 'hello'])\nsys.stderr.write('y' * 100000)\nreturn [{'x': 0.5, 'n': 2}]"
    plugin = install(searching(body))
    for number in range(3):
        said = await answered(there, asking("mine", number, space=SMALL), [], plugin)
        assert said.suggestions[0].values == {"x": 0.5, "n": 2}


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        (
            "import skopt_is_not_here",
            "The plug-in mine failed. ModuleNotFoundError: No module named 'skopt_is_not_here'",
        ),
        ("raise SystemExit(3)", "The plug-in mine failed. SystemExit: 3"),
        ("def f(:", "The plug-in mine failed. SyntaxError: invalid syntax"),
        ("x = 1", "AttributeError: module 'optimizer' has no attribute 'PluginOptimizer'"),
        (searching("return ({},)"), "TypeError: search() returned a tuple and no list."),
        (searching("return [3]"), "TypeError: search() returned a list with a int and no dictionary."),
        (searching("return [{'x': 0.5}]"), "ValueError: search() returned a set of values without 'n'."),
        (searching("return [{'x': None, 'n': 1}]"), "TypeError: search() returned a NoneType for 'x'."),
        (
            searching("return [{'x': 0.5, 'n': 'many'}]"),
            "mine suggested for 'n' what it cannot be: 'many' is no finite number.",
        ),
        (
            searching("return [{'x': 0.5, 'n': float('nan')}]"),
            "mine suggested for 'n' what it cannot be: nan is no finite number.",
        ),
        (
            searching("return [{'x': 0.75, 'n': 1}]"),
            "mine suggested for 'x' what it cannot be: 0.75 is none of 0.5, 1.5.",
        ),
        (searching("self.f = lambda: 0\nreturn []"), "pickle"),
        (searching("self.f = bytes(17 << 20)\nreturn []"), "Its state has 17,"),
        (searching("1 / 0"), "The plug-in mine failed. ZeroDivisionError: division by zero"),
    ],
)
async def test_what_a_plugin_does_wrong_is_said_in_a_sentence(there, install, source, sentence):
    with pytest.raises(Unprocessable) as refused:
        await answered(there, asking("mine", 0, space=SMALL), [], install(source))
    assert sentence in refused.value.message


async def test_a_plugin_that_hangs_is_started_again_twice_and_then_given_up(install, tmp_path):
    body = f"import time\nopen({str(tmp_path / 'tries')!r}, 'a').write('x')\n"
    body += "print('waiting for godot', flush=True)\nwhile True: time.sleep(60)"
    there = Suggestions(environ(), patience=8.0)
    with pytest.raises(EdtError, match=r"gave no answer in 8 s, 3 times .*Its last words: waiting for godot"):
        await answered(there, asking("mine", 0, space=SMALL), [], install(searching(body)))
    assert (tmp_path / "tries").read_text() == "xxx"
    assert there.pids == {}
    await there.close()


async def test_a_plugin_that_dies_each_time(there, install):
    plugin = install(searching("import os, sys\nprint('out of luck', file=sys.stderr, flush=True)\nos._exit(4)"))
    with pytest.raises(EdtError, match=r"has ended, 3 times .*Its last words: out of luck"):
        await answered(there, asking("mine", 0, space=SMALL), [], plugin)


async def test_a_plugin_that_writes_into_the_protocol(there, install):
    """Its code can find the descriptor. Then it has no answer, and the server does not read what it sends."""
    body = "import os\nfor fd in range(3, 20):\n    try:\n        os.write(fd, b'\\xff' * 100)\n"
    body += "    except OSError:\n        pass\nreturn [{'x': 0.5, 'n': 2}]"
    with pytest.raises(EdtError, match=r"has ended, 3 times"):
        await answered(there, asking("mine", 0, space=SMALL), [], install(searching(body)))


async def test_a_plugin_that_dies_once(there, install, tmp_path):
    mark = str(tmp_path / "died")
    body = f"import os\nif not os.path.exists({mark!r}):\n    open({mark!r}, 'w')\n    os._exit(1)\n"
    plugin = install(searching(body + "return [{'x': 0.5, 'n': 2}]"))
    assert (await answered(there, asking("mine", 0, space=SMALL), [], plugin)).suggestions[0].values == {
        "x": 0.5,
        "n": 2,
    }


async def test_an_interpreter_without_this_package(there, install, tmp_path):
    plugin = install(RANDOM)
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys.base_prefix}/bin/python3 -S "$@"\n')
    bare.chmod(0o755)
    with pytest.raises(EdtError, match=r"No module named '?edt_server"):
        await answered(there, asking("mine", 0, space=SMALL), [], Plugin(plugin.folder, str(bare)))


async def test_an_interpreter_that_does_not_exist_is_an_error_in_words(tmp_path):
    there = Suggestions(environ(), Isolation(kind=SANDBOX), (tmp_path,))
    with pytest.raises(EdtError, match=r"plug-in mine cannot be started: .*/gone"):
        await answered(there, asking("mine", 0, space=SMALL), [], Plugin(tmp_path, str(tmp_path / "gone")))


async def test_each_search_has_a_process_of_its_own_which_ends_with_it(there, install):
    plugin = install(RANDOM)
    for search in ("a", "b"):
        await answered(there, asking("mine", 0, space=SMALL, search=search), [], plugin)
    pids = there.pids
    assert len(set(pids.values())) == 2
    await there.forget("a")
    assert set(there.pids) == {"b"}
    assert not psutil.pid_exists(pids["a"])
    assert psutil.pid_exists(pids["b"])
    await there.forget("a")


async def test_two_first_questions_at_once_share_a_process(there, install):
    plugin = install(RANDOM)
    await asyncio.gather(*(answered(there, asking("mine", at, space=SMALL), [], plugin) for at in range(3)))
    (pid,) = there.pids.values()
    own = psutil.Process(os.getpid()).children()
    assert [each.pid for each in own if "edt_server.suggestions.plugin_host" in each.cmdline()] == [pid]


async def test_what_a_plugin_has_started_ends_with_it(there, install, tmp_path):
    body = "import subprocess\np = subprocess.Popen(['sleep', '600'])\n"
    body += f"open({str(tmp_path / 'pid')!r}, 'w').write(str(p.pid))\nreturn []"
    await answered(there, asking("mine", 0, space=SMALL), [], install(searching(body)))
    child = int((tmp_path / "pid").read_text())
    assert psutil.pid_exists(child)
    await there.close()
    await until_async(lambda: not psutil.pid_exists(child), "the end of the plug-in's child")


async def test_in_a_sandbox_it_sees_its_folder_and_nothing_of_the_server(install, tmp_path):
    needs_bubblewrap()
    private = tmp_path / "data"
    folder = private / "plugins" / "mine"
    folder.mkdir(parents=True)
    (private / "secret").write_text("x")
    body = "import os\n"
    for path in (private / "secret", f"/proc/{os.getpid()}", "/etc/shadow"):
        body += f"assert not os.path.exists({str(path)!r}), {str(path)!r}\n"
    body += "assert os.listdir('.') == ['optimizer.py']\n"
    body += "try:\n    open('x', 'w')\nexcept OSError:\n    return [{'x': 0.5, 'n': 2}]"
    (folder / "optimizer.py").write_text(searching(body))
    there = Suggestions(environ(), Isolation(kind=SANDBOX), (private,))
    try:
        said = await answered(there, asking("mine", 0, space=SMALL), [], Plugin(folder, sys.executable))
        assert said.suggestions[0].values == {"x": 0.5, "n": 2}
        sandbox = there.pids["s"]
        below = [each.pid for each in psutil.Process(sandbox).children(recursive=True)]
        assert below
    finally:
        await there.close()
    await until_async(lambda: not any(map(psutil.pid_exists, below)), "the end of the sandbox")


async def test_as_an_account_it_has_the_rights_of_the_account(tmp_path):
    needs_bubblewrap(users=False)
    account = Account(name="edt-test", uid=54321, gid=54322, groups=(54322, 54323), home="/", shell="/bin/sh")
    folder = tmp_path / "mine"
    folder.mkdir()
    body = "import os\nassert os.getresuid() == (54321,) * 3 and os.getresgid() == (54322,) * 3, os.getresuid()\n"
    body += "assert set(os.getgroups()) == {54322, 54323}\nstatus = open('/proc/self/status').read().split()\n"
    body += "for each in ('Eff', 'Prm', 'Inh', 'Bnd', 'Amb'):\n"
    body += "    assert int(status[status.index(f'Cap{each}:') + 1], 16) == 0, each\n"
    body += "assert status[status.index('NoNewPrivs:') + 1] == '1'\nreturn [{'x': 0.5, 'n': 2}]"
    (folder / "optimizer.py").write_text(searching(body))
    there = Suggestions(environ(), Isolation(kind=ACCOUNT), (tmp_path,))
    try:
        said = await answered(
            there, asking("mine", 0, space=SMALL), [], Plugin(folder, sys.executable, account=account)
        )
        assert said.suggestions[0].values == {"x": 0.5, "n": 2}
    finally:
        await there.close()


async def test_a_question_that_is_cancelled_does_not_answer_the_next_one(there, install, tmp_path):
    marks = str(tmp_path / "asked")
    body = f"import os, time\nopen({marks!r}, 'a').write('x')\n"
    body += f"while os.path.getsize({marks!r}) == 1: time.sleep(0.01)\nreturn [{{'x': 0.5, 'n': 2}}]"
    plugin = install(searching(body))
    first = asyncio.create_task(answered(there, asking("mine", 0, space=SMALL), [], plugin))
    await until_async(lambda: os.path.exists(marks), "the question to arrive")
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    assert first.cancelled()
    said = await answered(there, asking("mine", 5, space=SMALL), [], plugin)
    assert [each.number for each in said.suggestions] == [5]
