"""A job's processes as another account: what they get, what they cannot, and what root does in their folders."""

import os
import pwd
import shutil
import stat
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio

from edt_sdk.schemas.errors import EdtError
from edt_sdk.schemas.wire.control import Isolation
from edt_sdk.schemas.wire.regular import append_regular, make_folder
from edt_server.supervisor.processes.memory import sweep
from edt_server.supervisor.processes.orphans import adopt_orphans
from edt_server.supervisor.processes.sandbox import JobSandbox
from edt_server.system.isolation import account_of
from tests.sandboxes import needs_bubblewrap
from tests.server.supervisor.test_sandbox import House
from tests.waiting import until_async

DAEMON = pwd.getpwnam("daemon")
OWNER = (DAEMON.pw_uid, DAEMON.pw_gid)


@pytest.fixture
def isolation():
    needs_bubblewrap(users=False)
    return Isolation(kind="account", account=account_of("ann", lambda _: DAEMON.pw_uid))


@pytest_asyncio.fixture
async def house(orders, isolation, tmp_path):
    adopt_orphans()
    memory = tmp_path / "memory"
    memory.mkdir(mode=0o700)
    house = House(orders, isolation, str(memory))
    house.sandbox.hand_over()
    yield house
    house.children.kill_all()
    house.sandbox.close()


def owner(path):
    found = path.lstat()
    return found.st_uid, found.st_gid


TRIES = """
import os, pathlib, socket
def attempt(what, act):
    try: print(what, act() is not False, flush=True)
    except OSError as wrong: print(what, False, flush=True)
job, memory = pathlib.Path(JOB), pathlib.Path(MEMORY)
print(os.getresuid(), os.getresgid(), os.getgroups(), flush=True)
attempt("results", lambda: pathlib.Path(RESULT, "x").touch())
attempt("machinery", lambda: (job / "training-0.payload").touch())
attempt("memory", lambda: (memory / "own" / "x").touch())
attempt("temporary", lambda: pathlib.Path("/tmp/x").touch())
attempt("shared", lambda: pathlib.Path("/dev/shm/x").touch())
attempt("pulse", lambda: pathlib.Path(RUNTIME, "worker-0.pulse").touch())
attempt("stdout", lambda: open("/dev/stdout", "a"))
attempt("itself", lambda: os.listdir("/proc/self/fd"))
attempt("home", lambda: pathlib.Path(HOME, "x").touch())
attempt("first process", lambda: os.kill(1, 9))
attempt("its files", lambda: os.listdir("/proc/1/root"))
attempt("key", lambda: (job / "launch.json").read_bytes() != b"")
attempt("another key", lambda: (job / "launch.json").rename(job / "x"))
attempt("package", lambda: (job / "package").unlink())
attempt("streams", lambda: (job / "streams").rename(job / "y"))
attempt("no folder of all", lambda: (memory / "y").touch())
attempt("root again", lambda: os.setuid(0))
attempt("shadow", lambda: open("/etc/shadow"))
"""


@pytest.mark.asyncio
async def test_what_its_processes_can_do(house):
    (house.paths.job_dir / "package").write_text("as it was sent")
    place = {"JOB": house.paths.job_dir, "RESULT": house.paths.result_dir, "RUNTIME": house.orders.runtime_dir}
    place |= {"MEMORY": Path(house.sandbox.memory_dir).parent, "HOME": DAEMON.pw_dir}
    await house.start(1, "".join(f"{name} = {str(path)!r}\n" for name, path in place.items()) + TRIES)
    await until_async(lambda: house.ended == {1: 0})
    who, *said = (house.paths.streams_dir / "p1.stdout").read_text().splitlines()
    uid, gid = OWNER
    assert who == f"{(uid,) * 3} {(gid,) * 3} {sorted(os.getgrouplist('daemon', gid))}"
    can = ["results", "machinery", "memory", "temporary", "shared", "pulse", "stdout", "itself"]
    assert [line.rpartition(" ")[0] for line in said if line.endswith("True")] == can
    assert len(said) == TRIES.count("attempt(") - 1
    assert owner(house.paths.result_dir / "x") == OWNER
    assert house.paths.launch_file.read_text() == "a key"


@pytest.mark.asyncio
async def test_its_workers_open_each_other_s_memory(house):
    source = "import os, time; print(os.getpid(), os.memfd_create('window'), flush=True); time.sleep(600)"
    await house.start(1, source)
    await house.said(1, "\n")
    pid, window = (house.paths.streams_dir / "p1.stdout").read_text().split()
    await house.start(2, f"open('/proc/{pid}/fd/{window}', 'rb').close()")
    await until_async(lambda: house.ended == {2: 0})


@pytest.fixture
def home():
    """A home folder below folders of root, which a temporary folder is not."""
    folder = Path(f"/srv/edt-home-{os.getpid()}")
    (folder / "ann").mkdir(parents=True)
    os.chown(folder / "ann", *OWNER)
    yield folder / "ann"
    shutil.rmtree(folder)


@pytest.mark.asyncio
@pytest.mark.parametrize("replaceable", [False, True])
async def test_a_home_folder_is_there_if_its_owner_cannot_replace_it(house, home, replaceable):
    if replaceable:
        os.chown(home.parent, *OWNER)
    house.sandbox.account = msgspec.structs.replace(house.sandbox.account, home=str(home))
    await house.start(1, f"open({str(home / 'cache')!r}, 'w').close()")
    await until_async(lambda: house.ended == {1: int(replaceable)})
    assert replaceable or owner(home / "cache") == OWNER


def test_weights_with_other_names_are_copied_and_their_owner_stays(orders, isolation, tmp_path):
    others = tmp_path / "model_epoch_final.pth"
    others.write_text("weights")
    house = House(orders, isolation)
    kept = [house.paths.job_dir / "warm_start.pth", house.paths.result_dir / "weights" / "final.pth"]
    kept[1].parent.mkdir()
    for path in kept:
        os.link(others, path)
    house.sandbox._orders = msgspec.structs.replace(house.orders, warm_start=str(kept[0]))
    house.sandbox.hand_over()
    assert owner(others) == (os.geteuid(), os.getegid())
    assert others.stat().st_nlink == 1
    assert [(owner(path), path.read_text()) for path in kept] == [(OWNER, "weights")] * 2
    assert stat.S_IMODE(house.paths.result_dir.stat().st_mode) == 0o700


def test_what_the_account_has_planted_is_not_followed(orders, isolation, tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("only root's")
    house = House(orders, isolation)
    house.sandbox.hand_over()
    planted = [house.paths.resume_from, house.paths.result_dir / "log", house.paths.streams_dir / "p1.stdout"]
    for path in planted:
        path.symlink_to(victim)
        os.chown(path, *OWNER, follow_symlinks=False)
    # The next attempt.
    sandbox = JobSandbox(house.orders, "")
    sandbox.hand_over()
    sandbox.give(house.paths.resume_from)
    with pytest.raises(NotADirectoryError):
        make_folder(house.paths.result_dir / "log" / "driver", within=house.paths.result_dir, owner=OWNER)
    with pytest.raises(OSError, match=r"p1\.stdout"):
        append_regular(house.paths.streams_dir / "p1.stdout")
    assert owner(victim) == (os.geteuid(), os.getegid())
    make_folder(house.paths.result_dir / "model" / "train", within=house.paths.result_dir, owner=OWNER)
    assert owner(house.paths.result_dir / "model" / "train") == owner(house.paths.result_dir / "model") == OWNER


def test_the_results_of_another_account_are_refused(orders, isolation):
    house = House(orders, isolation)
    os.chown(house.paths.result_dir, pwd.getpwnam("games").pw_uid, -1)
    with pytest.raises(EdtError, match=r"belong to the account 5, and its owner's is daemon \(1\)"):
        house.sandbox.hand_over()


def test_a_python_that_the_account_may_not_read_is_named(orders, isolation, tmp_path):
    house = House(orders, isolation)
    (tmp_path / "python").mkdir(mode=0o750)
    with pytest.raises(EdtError, match=f"The account daemon may not read {tmp_path}/python"):
        house.sandbox.namespaces([str(tmp_path / "python")])


def test_memory_of_an_account_is_swept_with_the_service_s(tmp_path, monkeypatch):
    monkeypatch.setattr("edt_server.supervisor.processes.memory._is_tmpfs", lambda root: True)
    folder = tmp_path / f"edt-{os.getuid()}-job"
    victim = tmp_path / "victim"
    (folder / "own").mkdir(mode=0o700, parents=True)
    folder.chmod(0o700)
    victim.mkdir()
    (victim / "file").touch()
    (folder / "alive").touch()
    (folder / "own" / "link").symlink_to(victim)
    assert sweep(tmp_path, 0.0) == []
    assert sweep(tmp_path, 0.0) == [folder]
    assert not folder.exists()
    assert (victim / "file").exists()
