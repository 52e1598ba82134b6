"""Templates: real ones, from which real supervisors are forked with their zygotes.

They leave torch out, which changes nothing here. `tests/e2e/test_template.py` has templates with torch.
"""

import asyncio
import contextlib
import os
import signal
import socket
import sys
import wave
from dataclasses import replace

import msgspec
import psutil
import pytest
import pytest_asyncio

from edt_sdk.schemas.wire.paths import JobPaths
from edt_sdk.schemas.wire.zygote import ONLY_VARIABLE
from edt_server.channel.launcher import launch, wait_gone
from edt_server.channel.spare_supervisors import SpareSupervisors, start_spare
from edt_server.supervisor import template as module
from edt_server.supervisor.template import Kind, TemplateChild, Templates
from edt_server.system.detached import inherited, open_log
from tests.waiting import until_async

pytestmark = pytest.mark.asyncio
KIND = Kind(sys.executable, 1)
LIGHT = {**inherited(os.environ), ONLY_VARIABLE: "edt_sdk.training.script"}
ZYGOTE = [sys.executable, "-u", "-m", "edt_sdk.training.zygote"]


@pytest_asyncio.fixture
async def templates():
    templates = Templates(LIGHT)
    yield templates
    templates.stop()
    assert all(each.gone for each in templates._templates)


def descriptors(pid):
    found = {}
    for name in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile: a process that imports opens files
            found[int(name)] = os.readlink(f"/proc/{pid}/fd/{name}")
    return found


def named(found):
    """What the descriptors from 3 on are, without the numbers of sockets and the like."""
    return sorted(name.partition(":")[0] for number, name in found.items() if number > 2)


async def executed(identity):
    """The processes of a supervisor and its zygote, once the supervisor runs its own interpreter."""
    supervisor = psutil.Process(identity.pid)
    await until_async(lambda: "edt_server.supervisor" in supervisor.cmdline(), "the supervisor's own program")
    zygotes = await until_async(lambda: [child for child in supervisor.children() if child.cmdline() == ZYGOTE])
    return supervisor, zygotes[0]


async def test_a_job_gets_supervisor_and_zygote_and_nothing_else_of_this_process(orders, tmp_path, templates):
    ours, theirs = socket.socketpair()
    secret = os.open(tmp_path / "secret", os.O_WRONLY | os.O_CREAT)
    # Even what another library forgot to close on exec.
    os.set_inheritable(secret, True)
    with ours, theirs:
        template = await templates.ready(KIND)
        identity = launch(orders, {"PATH": os.environ["PATH"], "MARK": "mine"}, template=template)
        supervisor, zygote = await executed(identity)
        try:
            paths = JobPaths(tmp_path / "data", "ann", orders.job_id)
            assert supervisor.ppid() == template.pid
            assert supervisor.cmdline()[:4] == [sys.executable, "-P", "-m", "edt_server.supervisor"]
            assert supervisor.cmdline()[-1] == str(paths.launch_file)
            assert supervisor.environ() == {"PATH": os.environ["PATH"], "MARK": "mine"}
            assert supervisor.cwd() == str(paths.job_dir)
            # Its own socket alone, once it has closed what it had from its birth.
            await until_async(lambda: named(descriptors(zygote.pid)) == ["socket"], "the zygote's one socket")
            for process in (supervisor, zygote):
                assert os.getsid(process.pid) == process.pid
                assert str(tmp_path / "secret") not in descriptors(process.pid).values()
            log = str(paths.supervisor_log)
            assert [descriptors(supervisor.pid)[number] for number in (0, 1, 2)] == ["/dev/null", log, log]
            said = "/memfd:zygote-output (deleted)"
            assert [descriptors(zygote.pid)[number] for number in (0, 1, 2)] == ["/dev/null", said, said]
        finally:
            supervisor.kill()
            os.close(secret)
    await asyncio.wait_for(wait_gone(identity), 180)
    await until_async(lambda: not zygote.is_running() or zygote.status() == psutil.STATUS_ZOMBIE)
    assert not psutil.pid_exists(identity.pid), "the template leaves no zombie"
    assert psutil.Process(template.pid).children() == []


async def test_a_spare_of_a_template_becomes_a_supervisor_or_ends_with_its_server(orders, tmp_path, templates):
    template = await templates.ready(KIND)
    spare, other = (start_spare(KIND, tmp_path, inherited(os.environ), template) for _ in range(2))
    _, orphan = await executed(other.process.identity)
    other.connection.close()
    assert await asyncio.to_thread(other.process.wait, 20) == 0
    await until_async(lambda: not orphan.is_running() or orphan.status() == psutil.STATUS_ZOMBIE)
    await until_async(lambda: spare.fits(KIND) and spare.files is not None)
    identity = launch(orders, {}, spare)
    assert identity.pid == spare.process.pid
    assert not spare.fits(Kind(sys.executable, 2))
    spare.process.kill()
    await asyncio.wait_for(wait_gone(identity), 180)
    assert not spare.fits(KIND)


async def test_the_supervisors_of_a_template_go_on_after_it_and_the_next_job_gets_another(orders, templates):
    template = await templates.ready(KIND)
    identity = launch(orders, inherited(os.environ), template=template)
    supervisor, zygote = await executed(identity)
    try:
        os.kill(template.pid, signal.SIGKILL)
        await until_async(lambda: template.gone)
        assert not psutil.pid_exists(template.pid)
        assert template.fork([], folder="/", log="/dev/null", environ={}, stdin=0) is None
        assert supervisor.is_running()
        assert zygote.is_running()
        second, again = await asyncio.gather(templates.ready(KIND), templates.ready(KIND))
        assert second is again
        assert second.pid != template.pid
    finally:
        supervisor.kill()
    await asyncio.wait_for(wait_gone(identity), 180)


@pytest.mark.parametrize("dies", [True, False], ids=["killed", "hung"])
async def test_a_template_that_ends_during_a_request_costs_the_job_only_its_warm_start(
    orders, templates, monkeypatch, dies
):
    if not dies:
        monkeypatch.setattr(module, "ANSWER_PATIENCE", 0.0)
    template = await templates.ready(KIND)
    os.kill(template.pid, signal.SIGSTOP)
    launching = asyncio.create_task(asyncio.to_thread(launch, orders, inherited(os.environ), None, template))
    if dies:
        await until_async(template._asking.locked)
        os.kill(template.pid, signal.SIGKILL)
    identity = await launching
    try:
        supervisor = await until_async(lambda: psutil.Process(identity.pid))
        assert supervisor.ppid() == os.getpid()
        await until_async(lambda: template.gone)
        assert not template.socket.fileno() >= 0
    finally:
        os.kill(identity.pid, signal.SIGKILL)
    await asyncio.wait_for(wait_gone(identity), 180)


async def test_what_is_forked_when_its_starter_is_gone_never_runs(tmp_path, templates):
    template = await templates.ready(KIND)
    gate, opens = os.pipe()
    family = module.wire.Family(command=("/bin/sh",), arguments=("-c", "echo ran"), environ={}, directory="/")
    log = open_log(tmp_path / "log")
    template.ask_for_family(family, gate, 0, log)
    os.close(log)
    module._readable(20, template.socket.fileno())
    answer = template.hear()
    assert psutil.Process(answer.pid).ppid() == template.pid
    os.close(gate)
    os.close(opens)
    await until_async(lambda: not psutil.pid_exists(answer.pid))
    assert (tmp_path / "log").read_bytes() == b""
    with pytest.raises(ProcessLookupError):
        TemplateChild(answer.pid)


def of_search(folder, imports):
    """The kind of the trials of a search whose script has these imports, by the name of the folder."""
    folder.mkdir()
    (folder / "train.py").write_text(imports)
    return replace(KIND, search=folder.name, script=str(folder / "train.py"))


async def test_a_search_has_a_branch_of_the_template_that_has_imported_for_its_script(orders, templates, tmp_path):
    kind = of_search(tmp_path / "a", "import wave\n")
    assert templates.of_search(kind) is None, "its first trial does not wait for it"
    branch = await until_async(lambda: templates.of_search(kind), "the branch")
    plain = await templates.ready(KIND)
    assert psutil.Process(branch.pid).ppid() == plain.pid
    assert branch.ready.files.keys() - plain.ready.files.keys() == {wave.__file__}
    assert templates.of_search(replace(kind, search="b")) is None, "each search has its own"
    plain.close()
    identity = launch(orders, {}, template=branch)
    supervisor, _ = await executed(identity)
    assert supervisor.ppid() == branch.pid
    supervisor.kill()
    await asyncio.wait_for(wait_gone(identity), 180)
    process = psutil.Process(branch.pid)
    branch.close()
    assert not process.is_running() or process.status() == psutil.STATUS_ZOMBIE, "closed only when it has ended"
    assert templates.of_search(kind) is None


async def test_a_third_search_has_the_place_of_one_that_has_started_nothing_for_a_while(
    templates, tmp_path, monkeypatch
):
    first, second, third = (of_search(tmp_path / name, "import wave\n") for name in "abc")
    for kind in (first, second):
        await until_async(lambda: templates.of_search(kind), "the branch")  # noqa: B023
    assert templates.of_search(third) is None
    assert not templates._branching, "both have just started a trial"
    templates.of_search(first)
    unused = templates._of_searches[second.search]
    monkeypatch.setattr(module, "ENOUGH", 0.0)
    branch = await until_async(lambda: templates.of_search(third), "the branch of the third")
    assert unused.gone
    monkeypatch.setattr(module, "ENOUGH", 1e9)
    assert templates.of_search(first), "it stays"
    assert templates.of_search(second) is None
    assert not branch.gone


async def test_a_branch_whose_imports_start_a_thread_ends_itself(tmp_path):
    installed = tmp_path / "installed"
    installed.mkdir()
    starts = "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\n"
    (installed / "starts_a_thread.py").write_text(starts)
    templates = Templates({**LIGHT, "PYTHONPATH": str(installed)})
    try:
        plain = await templates.ready(KIND)
        kind = of_search(tmp_path / "a", "import starts_a_thread\n")
        assert templates.of_search(kind) is None
        branch = await until_async(lambda: templates._of_searches[kind.search], "the branch")
        await until_async(lambda: branch.gone, "its end")
        assert templates.of_search(kind) is None
        assert not plain.gone
    finally:
        templates.stop()


async def test_one_that_imported_what_is_not_installed_any_more_is_replaced(templates, tmp_path):
    template = await templates.ready(KIND)
    installed = tmp_path / "module.py"
    installed.write_text("old")
    template.ready.files[str(installed)] = module.wire.stamp(str(installed))
    assert await templates.ready(KIND) is template
    installed.write_text("newer")
    second = await templates.ready(KIND)
    assert second is not template
    assert template.gone


async def test_the_kinds_used_last_are_kept(templates, monkeypatch):
    monkeypatch.setattr(module, "MOST", 1)
    first = await templates.ready(KIND)
    assert (await templates.ready(Kind(sys.executable, 2))).kind.threads == 2
    assert first.gone


async def test_a_python_that_cannot_serve_gives_none(templates, tmp_path):
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S -I "$@"\n')
    bare.chmod(0o755)
    assert await templates.ready(Kind(str(bare), 1)) is None
    assert await templates.ready(Kind("/no/such/python", 1)) is None


@pytest.mark.parametrize(("said", "stays"), [(b'{"type":"Ready","files":{}}', True), (b"?", False)])
async def test_a_python_with_another_version_gives_none(templates, tmp_path, said, stays):
    """The version before could not fork families. It is not started again for each job."""
    other = tmp_path / "python"
    other.write_text(
        f"#!{sys.executable}\nimport os, socket\nconnection = socket.socket(fileno=0)\n"
        f"connection.send({said!r})\nconnection.recv(1)\n"
    )
    other.chmod(0o755)
    kind = Kind(str(other), 1)
    assert await templates.ready(kind) is None
    (first,) = templates._templates
    assert await templates.ready(kind) is None
    assert (templates._templates == [first]) is stays


async def test_a_server_that_stops_waits_for_no_import(orders, tmp_path):
    spares = SpareSupervisors(0, tmp_path, sys.executable, 1, LIGHT)
    waiting = asyncio.create_task(spares.template(orders))
    (importing,) = await until_async(lambda: spares._templates._templates)
    os.kill(importing.pid, signal.SIGSTOP)
    spares.let_go()
    assert await waiting is None
    await spares.stop()
    assert importing.gone
    assert await spares.template(orders) is None


@pytest.mark.parametrize(
    "own",
    [{"env": {"OMP_NUM_THREADS": "3"}}, {"framework": "PyTorch"}],
    ids=["start-time variables", "without torch"],
)
async def test_a_job_whose_zygote_differs_starts_its_own(orders, tmp_path, own):
    spares = SpareSupervisors(0, tmp_path, sys.executable, 1, LIGHT)
    assert (
        await spares.template(msgspec.structs.replace(orders, spec=msgspec.structs.replace(orders.spec, **own))) is None
    )
    assert spares._templates._templates == []
    await spares.stop()
