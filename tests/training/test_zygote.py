"""A forked process finds what a started one finds."""

import ctypes
import json
import os
import select
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import torch

from edt_sdk.schemas.wire.context import JobContext, to_environ
from edt_sdk.schemas.wire.paths import JobPaths
from edt_sdk.schemas.wire.zygote import PASS, ROOM_VARIABLE, Family, Fork, Forked, Ready, to_wire
from edt_server.supervisor.processes.zygote import Zygote, ZygoteProcess
from edt_server.supervisor.programs.environment import zygote_environment

PR_SET_CHILD_SUBREAPER = 36

LOOKS_AROUND = """
import atexit, json, locale, logging, multiprocessing, os, random, resource, signal, sys, tempfile, threading, time
main = sys.modules["__main__"]
mask = os.umask(0)
found = {
    "path": sys.path, "argv": sys.argv, "orig_argv": sys.orig_argv[1:], "flags": str(sys.flags),
    "directory": os.getcwd(), "umask": mask, "environ": dict(os.environ),
    "descriptors": sorted(int(name) for name in os.listdir("/proc/self/fd")),
    "streams": [os.readlink(f"/proc/self/fd/{number}") for number in (0, 1, 2)],
    "appends": [os.get_inheritable(number) for number in (0, 1, 2)],
    "leads": os.getsid(0) == os.getpgid(0) == os.getpid(),
    "handlers": [str(signal.getsignal(number)) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGPIPE)],
    "limits": [resource.getrlimit(number) for number in range(10)], "nice": os.nice(0),
    "threads": [threading.active_count(), threading.current_thread().name],
    "main": [main.__name__, main.__file__, main.__spec__.name, main.__package__, main.__builtins__.__name__],
    "names": sorted(name for name in globals() if not name.startswith("__")),
    "encodings": [sys.stdout.encoding, sys.stderr.encoding, sys.getfilesystemencoding(), locale.getpreferredencoding()],
    "buffering": [sys.stdout.line_buffering, sys.stdout.write_through, sys.stderr.write_through],
    "temporary": tempfile.gettempdir(), "zone": time.tzname, "hash": hash("abc"),
    "method": multiprocessing.get_start_method(), "process": multiprocessing.current_process().name,
    "logging": [logging.getLogger().level, len(logging.getLogger().handlers)],
}
command = open("/proc/self/cmdline").read().split(chr(0))[1:]
import numpy, torch
found["torch"] = [torch.get_num_threads(), torch.get_num_interop_threads(),
                  torch.are_deterministic_algorithms_enabled(), str(torch.get_default_dtype()),
                  torch.cuda.is_initialized(), torch.is_grad_enabled()]
status = dict(line.rstrip().split(":", 1) for line in open("/proc/self/status"))
# Without the two signals that the C library uses itself once there was a thread.
found["signals"] = [int(status[name], 16) & ~(3 << 31) for name in ("SigBlk", "SigIgn", "SigCgt")]
if torch.get_num_threads() == 1:  # others have started some, in both cases
    found["tasks"] = len(os.listdir("/proc/self/task"))
own = [random.random(), torch.initial_seed(), numpy.random.rand(), multiprocessing.current_process().authkey.hex()]
atexit.register(print, "at exit", file=sys.stderr)
print(json.dumps({"found": found, "own": own, "command": command}))
sys.exit(7)
"""


HANDS_OVER = """
import socket, sys
_, option, connection, pid, said, last = sys.argv
assert (option, last) == ("--zygote", "last")
socket.send_fds(socket.socket(fileno=0), [pid.encode()], [int(connection), int(said)])
"""


class Nursery:
    """Starts and forks the same program, and reaps it."""

    def __init__(self, folder, zygote):
        self.folder = folder
        self.zygote = self.first = zygote
        self.directory = folder / "work"
        self.directory.mkdir()

    def environment(self, **more):
        kept = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
        # As the supervisor makes it: twice the same folder, one that is not there, a relative one.
        path = [str(self.directory), "/no/such/folder", "relative", str(self.directory)]
        return {
            **kept, "PYTHONUNBUFFERED": "1", "PYTHONHASHSEED": "0", "PYTHONPATH": os.pathsep.join(path),
            "TZ": "Asia/Tokyo", "TMPDIR": str(self.folder), "BYTES": os.fsdecode(b"\xff\x00"[:1]), **more,
        }  # fmt: skip

    def program(self, source):
        (self.directory / "looks_around.py").write_text(source)

    def heir(self):
        """Have the zygote fork an heir."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        read, write = os.pipe()
        self.zygote.ask_for_heir(read, theirs.fileno())
        os.close(read)
        theirs.close()
        answer = self.answer()
        assert isinstance(answer, Forked), answer
        heir = self.zygote.heir(answer.pid, ours)
        os.write(write, PASS)
        os.close(write)
        return heir

    def stream(self, name):
        return os.open(self.folder / name, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_TRUNC, 0o600)

    def spawn(self, environment):
        out, err = self.stream("out"), self.stream("err")
        process = subprocess.run(
            [sys.executable, "-u", "-m", "looks_around"], stdin=subprocess.DEVNULL, stdout=out, stderr=err,
            cwd=self.directory, env=environment, start_new_session=True, umask=0o027, check=False,
        )  # fmt: skip
        return self.result(process.returncode, out, err)

    def fork(self, environment, directory=None, module="looks_around"):
        out, err = self.stream("out"), self.stream("err")
        read, write = os.pipe()
        where = str(directory or self.directory)
        wanted = Fork(module=module, environ=to_wire(environment), directory=where, umask=0o027)
        self.zygote.ask(wanted, read, (out, err))
        os.close(read)
        answer = self.answer()
        assert isinstance(answer, Forked), answer
        os.write(write, PASS)
        os.close(write)
        _, status = os.waitpid(answer.pid, 0)
        return self.result(os.waitstatus_to_exitcode(status), out, err)

    def answer(self):
        while (answer := self.zygote.hear()) is None:
            assert not self.zygote.silent, self.zygote.words()
            select.select([self.zygote.socket], [], [])
        return answer

    def result(self, code, out, err):
        os.close(out)
        os.close(err)
        return code, (self.folder / "out").read_text(), (self.folder / "err").read_text()


@pytest.fixture(scope="module")
def zygote():
    """A zygote whose children come to this process, as they come to a supervisor."""
    libc = ctypes.CDLL(None)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    # With the same library path as what is forked from it, as in a cold start.
    zygote = ZygoteProcess(sys.executable, zygote_environment(os.environ, 1))
    yield zygote
    zygote.end()
    zygote.forget()
    libc.prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


@pytest.fixture
def nursery(zygote):
    with tempfile.TemporaryDirectory() as folder:
        nursery = Nursery(Path(folder), zygote)
        if zygote.ready is None:
            assert isinstance(nursery.answer(), Ready)
        yield nursery


@pytest.mark.parametrize("more", [{}, {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}], ids=["driver", "worker"])
def test_forked_and_started_find_the_same(nursery, more):
    same(nursery, more)


def test_forked_by_the_heir_of_an_heir_and_started_find_the_same(nursery, zygote):
    nursery.zygote = heir = nursery.heir()
    nursery.zygote = second = nursery.heir()
    heir.end()
    heir.forget()
    same(nursery, {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"})
    assert second.words() == zygote.words() == ""
    second.socket.shutdown(2)
    select.select([second.ended], [], [])
    assert second.end() == 0
    second.forget()


def test_forked_by_the_zygote_of_a_family_and_started_find_the_same(nursery):
    nursery.zygote = template = nursery.heir()
    ours, theirs = socket.socketpair()
    read, write = os.pipe()
    # Its "supervisor" hands the zygote over to this process and ends, so that this one becomes the zygote's parent.
    family = Family(
        command=(sys.executable, "-c", HANDS_OVER), arguments=("last",), environ=to_wire(os.environ), directory="/"
    )
    template.ask_for_family(family, read, theirs.fileno(), theirs.fileno())
    theirs.close()
    os.close(read)
    ended = os.pidfd_open(nursery.answer().pid)
    os.write(write, PASS)
    os.close(write)
    pid, (connection, said), *_ = socket.recv_fds(ours, 64, 2)
    ours.close()
    select.select([ended], [], [])
    os.close(ended)
    nursery.zygote = zygote = Zygote.given(connection, int(pid), said)
    assert isinstance(nursery.answer(), Ready)
    assert zygote.ready.files == nursery.first.ready.files
    same(nursery, {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"})
    assert zygote.words() == ""
    for each in (zygote, template):
        each.end()
        each.forget()


def same(nursery, more):
    nursery.program(LOOKS_AROUND)
    environment = nursery.environment(**more)
    code, out, err = nursery.spawn(environment)
    assert (code, err) == (7, "at exit\n")
    started = json.loads(out)
    own = []
    for _ in range(2):
        code, out, err = nursery.fork(environment)
        assert (code, err) == (7, "at exit\n")
        forked = json.loads(out)
        for name, value in started["found"].items():
            assert forked["found"][name] == value, name
        assert ROOM_VARIABLE not in forked["found"]["environ"]
        own.append(forked["own"])
    assert all(first != second for first, second in zip(*own, strict=True)), "random states and secrets are its own"


def test_what_only_clients_need_is_not_in_it(nursery):
    """Each job's zygote takes half a second less for it."""
    nursery.program(
        "import sys\nprint([name for name in ('edt_sdk.client.client', 'requests') if name in sys.modules])"
    )
    assert nursery.fork(nursery.environment())[:2] == (0, "[]\n")


def test_ps_shows_the_job_and_not_what_it_was_forked_from(nursery):
    nursery.program("import os\nprint(open('/proc/self/environ', errors='replace').read())\nos.kill(os.getpid(), 9)")
    code, out, _ = nursery.fork(nursery.environment(EDT_JOB="the job", EDT_WORKER="and the worker"))
    assert code == -9
    assert "EDT_JOB=the job" in out
    assert "EDT_WORKER=and the worker" in out


def test_ps_tells_a_driver_from_what_it_was_forked_from(nursery):
    code = JobPaths(nursery.folder, "ann", "job-1").code_dir("")
    code.mkdir(parents=True)
    (code / "main.py").write_text("print(open('/proc/self/cmdline').read().split(chr(0)))")
    job = JobContext(
        job_id="job-1", owner="ann", data_dir=str(nursery.folder), link=str(nursery.folder / "link"), main="main.py",
        code_dir="", args=(), seed=0, mode="exact", threads_per_slot=1, max_workers=1,
    )  # fmt: skip
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(job.link)
        listening.listen()
        code, out, err = nursery.fork(nursery.environment(**to_environ(job)), module="edt_sdk.training.driver")
    assert code == 1
    assert "without calling" in err
    assert out == f"{[sys.executable, '-u', '-m', 'edt_sdk.training.driver', '']}\n"


def test_what_it_raises_ends_it_as_it_ends_a_started_one(nursery):
    nursery.program("import neighbour")
    spawned, forked = (start(nursery.environment()) for start in (nursery.spawn, nursery.fork))
    assert spawned[0] == forked[0] == 1
    assert (
        spawned[2].splitlines()[-1] == forked[2].splitlines()[-1] == "ModuleNotFoundError: No module named 'neighbour'"
    )
    nursery.program("raise SystemExit('a sentence')")
    assert nursery.fork(nursery.environment()) == nursery.spawn(nursery.environment()) == (1, "", "a sentence\n")


def test_a_folder_that_is_gone_ends_only_the_process_that_wanted_it(nursery, zygote):
    nursery.program("print('here')")
    code, _, err = nursery.fork(nursery.environment(), nursery.folder / "missing")
    assert code == 1
    assert "FileNotFoundError" in err
    assert nursery.fork(nursery.environment()) == (0, "here\n", "")


def test_the_users_modules_are_found_and_never_by_the_zygote(nursery):
    (nursery.directory / "callbacks.py").write_text("print('mine')")
    nursery.program("import callbacks, fabric_model; print(fabric_model.FabricModel.__module__)")
    environment = nursery.environment()
    assert nursery.fork(environment) == nursery.spawn(environment) == (0, "mine\nedt_sdk.fabric.fabric\n", "")


def test_a_child_that_nobody_lets_pass_ends(nursery, zygote):
    nursery.program("print('never')")
    out, err = nursery.stream("out"), nursery.stream("err")
    read, write = os.pipe()
    wanted = Fork(module="looks_around", environ=to_wire(nursery.environment()), directory="/", umask=0o022)
    zygote.ask(wanted, read, (out, err))
    answer = nursery.answer()
    assert os.getsid(answer.pid) == answer.pid
    assert os.waitpid(answer.pid, os.WNOHANG) == (0, 0)
    os.close(read)
    os.close(write)
    _, status = os.waitpid(answer.pid, 0)
    assert nursery.result(os.waitstatus_to_exitcode(status), out, err) == (0, "", "")


def test_it_says_which_files_it_has_imported_and_has_one_thread(nursery, zygote):
    assert any(path.endswith("/torch/version.py") for path in zygote.ready.files)
    assert any(path.endswith("/edt_sdk/training/worker.py") for path in zygote.ready.files)
    for path in (torch.__file__, torch.version.__file__):
        assert zygote.ready.files[path] == (os.stat(path).st_mtime_ns, os.stat(path).st_size)
    assert len(os.listdir(f"/proc/{zygote.pid}/task")) == 1


def test_it_ends_with_its_supervisor():
    zygote = ZygoteProcess(sys.executable, zygote_environment(os.environ, 1))
    zygote.socket.shutdown(2)
    select.select([zygote.ended], [], [])
    assert zygote.words() == ""
    assert zygote.end() == 0
    zygote.forget()


@pytest.mark.parametrize("replaced", [False, True])
def test_a_program_never_runs_among_the_modules_of_a_version_that_was_replaced(tmp_path, replaced):
    module = tmp_path / "imported.py"
    module.touch()
    (tmp_path / "program.py").write_text("import os, sys; print(os.getpid(), 'edt_sdk' in sys.modules)")
    (tmp_path / "forked.py").write_text(
        "import os, pathlib, sys; from edt_sdk.training import zygote; print(os.getpid(), flush=True)\n"
        f"module = pathlib.Path({str(module)!r}); zygote._imported[str(module)] = zygote.wire.stamp(module)\n"
        f"{'module.unlink()' if replaced else ''}\n"
        "zygote.run('program')"
    )
    done = subprocess.run([sys.executable, "-m", "forked"], cwd=tmp_path, capture_output=True, text=True, check=True)
    before, after, shares_modules = done.stdout.split()
    assert before == after
    assert shares_modules == str(not replaced)
