"""Run the zygote: import once what every driver and worker imports, and fork them instead of starting them.

The supervisor starts one for each job as `python -u -m edt_sdk.training.zygote`. Its stdin is its socket
(`edt_sdk.schemas.wire.zygote`). It stays single-threaded, runs no user code, computes nothing and never touches CUDA,
so that a forked process is what a started one would be. A process is forked twice, so that the supervisor, which adopts
orphans, becomes its parent. A zygote ends when its socket is closed, and first ends what its bound programs have left.

It also forks heirs: zygotes with sockets of their own, which wait until the zygote before them has died and the
supervisor asks them. So the imports survive the death of a zygote.

A template is a zygote that the server or an agent has started. It forks families: the zygote of a job and its
supervisor, which leaves the imported modules behind by `exec` (decision 045). And it forks branches: templates of one
search each, which go on to import what the script of its trials imports (decision 053).
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import importlib.util
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, ModuleType

from edt_sdk.schemas.wire import zygote as wire
from edt_sdk.schemas.wire.context import JOB_VARIABLE, end_processes
from edt_sdk.training.member import leaving
from edt_sdk.training.namespaces import enter
from edt_sdk.training.user.imports import can_fork, import_ahead

PROGRAMS = ("edt_sdk.training.driver", "edt_sdk.training.worker")
# The first optimizer of a process imports torch._dynamo, which takes as long as torch.
_MORE = ("edt_sdk.fabric.fabric", "torch._dynamo")
# The name that `ps` shows. Driver and worker have names of the same length, which are written in its place.
_NAME = b"edt_sdk.training.zygote"
_MOST_DESCRIPTORS = 64
# Gate, request, stdout and stderr of a program. It inherits the others.
_OWN_DESCRIPTORS = 4
_PR_SET_PDEATHSIG = 1
# The word with which a forked process says that it leads its session.
_LEADS = b"."
# The files that `import_all` has imported, as they were then.
_imported: dict[str, wire.Stamp] = {}
# EDT_JOB of the bound programs that were forked, and the descriptors that they inherited.
_bound: dict[bytes, Sequence[int]] = {}


@dataclass(frozen=True, slots=True)
class Birth:
    """Holds a request to run a program, in the process that was forked for it."""

    fork: wire.Fork
    stdout: int
    stderr: int
    inherited: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Heir:
    """Holds the socket of a new zygote, in the process that was forked for it.

    `greets` is True where the other end of the socket does not know yet what the zygote has imported. With a `script`
    it first imports what that needs.
    """

    connection: socket.socket
    greets: bool = False
    script: str = ""


def main() -> int:
    """Run as a zygote, or as what was forked from it. Return the exit code."""
    connection = _take_socket()
    path = sys.path[:]
    only = os.environ.get(wire.ONLY_VARIABLE)
    import_all(*([only] if only else PROGRAMS))
    try:
        _greet(connection, path)
        while isinstance(birth := serve(connection), Heir):
            # The supervisor sees the end of the former zygote by this socket, so no other process may hold it.
            connection.close()
            connection = birth.connection
            if birth.script:
                _import_of(birth.script)
            if birth.greets:
                _greet(connection, path)
    except ConnectionError:
        birth = None  # the supervisor is gone
    if birth is None:
        # The kernel has killed the bound programs themselves, but not what these have started.
        for mark in _bound:
            end_processes(mark)
        # Exit handlers of the imported modules have nothing to do here.
        os._exit(0)
    connection.close()
    become(birth, path)
    run(birth.fork.module, afresh=birth.fork.afresh)
    return 0


def _greet(connection: socket.socket, path: Sequence[str]) -> None:
    ready = wire.Ready(files=_imported, places=_places(path), families=True, branches=True, adopted=True)
    connection.send(wire.encode(ready))


def import_all(*programs: str) -> None:
    """Import what these programs import, for driver and worker also what the first optimizer imports."""
    # Imports leave almost no garbage, and collections take a fifth of the time.
    gc.disable()
    for name in (*programs, *(_MORE if programs == PROGRAMS else ())):
        importlib.import_module(name)
    for name in programs:
        # Each program runs as `__main__`, as with `python -m`, and must not exist a second time under its own name.
        package, _, child = name.rpartition(".")
        del sys.modules[name]
        delattr(sys.modules[package], child)
    _imported.update(_files())
    leaving.prepare_to_fork()
    gc.enable()


def _import_of(script: str) -> None:
    """Import what a script of the user imports from installed modules. End where that forbids a fork."""
    gc.disable()
    _imported.update(_stamps(import_ahead(Path(script))))
    if not can_fork():
        os._exit(1)  # trials do without this template
    leaving.prepare_to_fork()
    gc.enable()


def serve(connection: socket.socket) -> Birth | Heir | None:
    """Fork on request. Return in each forked process what it is to run, and None in the zygote at its end."""
    while True:
        message, descriptors, _, _ = socket.recv_fds(connection, 1, _MOST_DESCRIPTORS, socket.MSG_CMSG_CLOEXEC)
        if not message:
            return None
        answer: Birth | Heir | wire.Answer
        try:
            match message:
                case wire.FAMILY:
                    answer = _fork_leader(_become_supervisor, *descriptors)
                case wire.BRANCH:
                    answer = _fork_leader(_become_branch, *descriptors)
                case _:
                    answer = fork(message, descriptors)
        except OSError as wrong:
            answer = wire.NotForked(why=f"{type(wrong).__name__}: {wrong.strerror}")
        if isinstance(answer, Birth | Heir):
            return answer
        for descriptor in _not_kept(message, descriptors):
            os.close(descriptor)
        connection.send(wire.encode(answer))


def _not_kept(request: bytes, descriptors: Sequence[int]) -> Sequence[int]:
    """Return the descriptors of a request that this process needs no more.

    Of a bound program it keeps those that the program inherits, among them the lock of the attempt. The next attempt
    starts nothing while this process holds the lock, so that nothing of that attempt can be taken for a leftover.
    """
    if request != wire.PROGRAM:
        return descriptors
    _, body, *_ = descriptors
    asked = _read_fork(body)
    mark = wire.from_wire(asked.environ).get(JOB_VARIABLE.encode())
    if not asked.bound or mark is None or mark in _bound:
        return descriptors
    kept = _bound[mark] = descriptors[_OWN_DESCRIPTORS:]
    return descriptors[: len(descriptors) - len(kept)]


def fork(request: bytes, descriptors: Sequence[int]) -> Birth | Heir | wire.Answer:
    """Fork twice. Return in the new process what it is to run, once the supervisor has opened the gate."""
    gate, *given = descriptors
    # The pid comes back through a pipe, because the process that made the second fork ends at once.
    read, write = os.pipe()
    between = os.fork()
    if between == 0:
        try:
            os.close(read)
            if request == wire.PROGRAM:
                _enter_namespaces(given)
            # The process in between says the pid, because in another pid namespace the new one has another number.
            if pid := os.fork():
                os.write(write, str(pid).encode())
                os._exit(0)
            # The process leads its own session and blocks at the gate until the supervisor has registered it. Otherwise
            # the supervisor could reap or kill it as a stranger (decision 011).
            os.setsid()
            os.write(write, _LEADS)
            os.close(write)
            _pass(gate)
            match request:
                case wire.HEIR:
                    return Heir(socket.socket(fileno=given[0]))
                case wire.ADOPTED:
                    return _become_supervisor(*given)
            return _birth(given)
        except OSError:
            os._exit(1)  # it must not go on as a second zygote
    os.close(write)
    with open(read, "rb") as pipe:
        # After the end of the process in between, the supervisor is the parent of the new one.
        status = os.waitpid(between, 0)[1]
        said = pipe.read()
    if status == 0 and _LEADS in said:
        return wire.Forked(pid=int(said.replace(_LEADS, b"")))
    return wire.NotForked(why="the second fork, or entering its sandbox, failed")


def _fork_leader(become: Callable[..., Heir], gate: int, *given: int) -> Heir | wire.Answer:
    """Fork a supervisor or a branch, which becomes what it is once the server has opened the gate.

    Return in the zygote that it has forked then, or is.
    """
    # The kernel reaps them, because they are children of this process. A template forks nothing else.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    read, write = os.pipe()
    leader = os.fork()
    if leader == 0:
        try:
            os.close(read)
            os.setsid()
            os.write(write, _LEADS)
            os.close(write)
            _pass(gate)
            return become(*given)
        except OSError:
            os._exit(1)  # it must not go on as a second template
    os.close(write)
    with open(read, "rb") as pipe:
        leads = pipe.read() == _LEADS
    return wire.Forked(pid=leader) if leads else wire.NotForked(why="the new process could not lead a session")


def _enter_namespaces(given: list[int]) -> None:
    """Enter the namespaces of a request, and take their descriptors out of `given`."""
    asked = _read_fork(given[0])
    if asked.namespaces:
        enter(given[1 : 1 + asked.namespaces], asked.account)
        del given[1 : 1 + asked.namespaces]


def _pass(gate: int) -> None:
    if os.read(gate, 1) != wire.PASS:
        os._exit(0)  # the supervisor has cancelled the request
    os.close(gate)


def _become_branch(body: int, connection: int, said: int) -> Heir:
    """Be another template, which has a script to import for."""
    for number in (1, 2):
        os.dup2(said, number)
    script = _read(body).decode()
    for descriptor in (body, said):
        os.close(descriptor)
    return Heir(socket.socket(fileno=connection), greets=True, script=script)


def _become_supervisor(body: int, stdin: int, log: int) -> Heir:
    """Fork the zygote of a family, and execute its supervisor. Return in the zygote only."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    said = os.memfd_create("zygote-output", os.MFD_CLOEXEC)
    zygote = os.fork()
    streams = (stdin, log, log) if zygote else (0, said, said)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    if zygote == 0:
        os.setsid()
        ours.close()
        for descriptor in (body, stdin, log, said):
            os.close(descriptor)
        theirs.send(_LEADS)
        return Heir(theirs, greets=True)
    # The supervisor ends its zygote as a group of processes, so it must not exist before that group does.
    theirs.close()
    ours.recv(1)
    for descriptor in (ours.fileno(), said):
        os.set_inheritable(descriptor, True)
    family = wire.decode_family(_read(body))
    os.chdir(family.directory)
    given = [wire.ZYGOTE_OPTION, *map(str, (ours.fileno(), zygote, said))]
    os.execve(family.command[0], [*family.command, *given, *family.arguments], wire.from_wire(family.environ))


def _birth(given: Sequence[int]) -> Birth:
    # The request lies in a memory file, because an environment may exceed the size of a datagram.
    request, stdout, stderr, *inherited = given
    try:
        return Birth(_read_fork(request), stdout, stderr, tuple(inherited))
    finally:
        os.close(request)


def _read_fork(request: int) -> wire.Fork:
    return wire.decode_fork(_read(request))


def _read(body: int) -> bytes:
    # Without a change of the offset, which the zygote and its programs share.
    return os.pread(body, os.fstat(body).st_size, 0)


def become(birth: Birth, path: Sequence[str]) -> None:
    """Make this process what a started one would be before its first line.

    `path` is the zygote's `sys.path` at its own start.
    """
    for descriptor, number in ((birth.stdout, 1), (birth.stderr, 2)):
        os.dup2(descriptor, number)
        os.close(descriptor)
    for descriptor in birth.inherited:
        os.set_inheritable(descriptor, True)
    if birth.fork.bound:
        die_with(birth.fork.bound)
    os.umask(birth.fork.umask)
    os.chdir(birth.fork.directory)
    before = os.environ.get("PYTHONPATH", "")
    os.environb.clear()
    os.environb.update(wire.from_wire(birth.fork.environ))
    # The C library has cached the zygote's TZ.
    time.tzset()
    _show(birth.fork.module)
    sys.path[:] = _path(path, before, os.environ.get("PYTHONPATH", ""))
    # Folders may have new files since the zygote listed them.
    importlib.invalidate_caches()
    _forget_the_zygote()
    _set_threads(os.environ)


def die_with(parent: int) -> None:
    """Have the kernel kill this process when `parent`, which must be its parent, ends."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != parent:
        os._exit(1)  # it had ended before


def run(module: str, *, afresh: bool = False) -> None:
    """Run `module` as `python -m` does: as the new `__main__`, with which the process ends, or `afresh` by `exec`."""
    spec = importlib.util.find_spec(module)
    if spec is None or spec.loader is None or spec.origin is None:
        raise ModuleNotFoundError(f"No module named {module!r}.", name=module)
    code: CodeType = spec.loader.get_code(module)  # type: ignore[attr-defined]
    main = ModuleType("__main__")
    main.__dict__.update(
        __file__=spec.origin,
        __cached__=spec.cached,
        __loader__=spec.loader,
        __package__=spec.parent,
        __spec__=spec,
        __builtins__=__builtins__,
    )
    sys.modules["__main__"] = main
    sys.argv[:] = [spec.origin]
    sys.orig_argv[-1:] = [module]
    if afresh or any(wire.stamp(path) != stamp for path, stamp in _imported.items()):
        # An upgrade has replaced files: the new program must not run among the modules of the old one.
        os.execv(sys.executable, sys.orig_argv)
    exec(code, main.__dict__)


def _take_socket() -> socket.socket:
    """Return the socket that is stdin, and make stdin /dev/null."""
    connection = socket.socket(fileno=os.dup(0))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    return connection


def _files() -> dict[str, wire.Stamp]:
    """Return the files of torch and edt_sdk with their stamps, which show a changed installation."""
    torch = Path(sys.modules["torch"].__file__ or "").parent if "torch" in sys.modules else None
    folder = Path(sys.modules["edt_sdk"].__file__ or "").parent
    found = [*([torch / "__init__.py", torch / "version.py"] if torch else []), *folder.rglob("*.py")]
    return _stamps(map(str, found))


def _stamps(paths: Iterable[str]) -> dict[str, wire.Stamp]:
    return {path: stamp for path in paths if (stamp := wire.stamp(path)) is not None}


def _places(path: Sequence[str]) -> tuple[str, ...]:
    """Return the folders of this interpreter and of what it can import. `path` is its `sys.path` at its start."""
    # The first entry is the working directory, which is not the interpreter's.
    own = path if sys.flags.safe_path else path[1:]
    executable, sdk = os.path.realpath(sys.executable), sys.modules["edt_sdk"].__file__ or ""
    named = [sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix, os.path.dirname(sys.executable)]
    named += [os.path.dirname(executable), os.path.dirname(os.path.dirname(sdk)), *own]
    return tuple(dict.fromkeys(os.path.abspath(each) for each in named if os.path.exists(each)))


def _path(zygote: Sequence[str], before: str, now: str) -> list[str]:
    """Return `sys.path` as this interpreter would make it here, with PYTHONPATH `now` instead of `before`."""
    rest = list(zygote)
    if not sys.flags.safe_path:
        # The first entry is the zygote's own working directory.
        del rest[0]
    if not sys.flags.ignore_environment:
        removed = {os.path.abspath(entry) for entry in before.split(os.pathsep)} if before else set()
        added = [os.path.abspath(entry) for entry in now.split(os.pathsep)] if now else []
        # An entry of both is found at its place among the new ones.
        rest = list(dict.fromkeys([*added, *(entry for entry in rest if entry not in removed)]))
    return rest if sys.flags.safe_path else [os.getcwd(), *rest]


def _forget_the_zygote() -> None:
    """Renew what all forked processes would otherwise share: secrets, random states, cached folders.

    The module `random` does this by itself.
    """
    import multiprocessing
    import tempfile

    multiprocessing.current_process().authkey = os.urandom(32)
    tempfile.tempdir = None
    if "torch" in sys.modules:
        import numpy as np
        import torch

        torch.default_generator.seed()
        np.random.seed()


def _set_threads(environ: Mapping[str, str]) -> None:
    """Set the threads of an imported torch by this process's variables. It was loaded with those of the zygote."""
    if "torch" not in sys.modules:
        return
    import torch

    named = (environ.get("OMP_NUM_THREADS") or environ.get("MKL_NUM_THREADS") or "").split(",")[0].strip()
    threads = int(named) if named.isdecimal() and int(named) > 0 else _cores(torch.backends.mkl.is_available())  # type: ignore[no-untyped-call]
    if torch.get_num_threads() != threads:
        torch.set_num_threads(threads)  # starts some


def _cores(physical: bool) -> int:
    """Return the cores this process may use. With `physical`, threads of a core count once, as MKL counts them."""
    usable = os.sched_getaffinity(0)
    if not physical:
        return len(usable)
    siblings = set()
    for cpu in usable:
        try:
            siblings.add(Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings").read_text())
        except OSError:
            return len(usable)
    return len(siblings)


def _show(module: str) -> None:
    """Show in `ps` and /proc what this process is and which job it belongs to."""
    # The reserved memory is limited, so the job's own variables come first.
    ours = sorted(os.environb.items(), key=lambda item: not item[0].startswith((b"EDT_", b"RESULT_DIR")))
    text = b"\0".join(name + b"=" + value for name, value in ours)
    mark = wire.ROOM_VARIABLE.encode() + b"="
    with contextlib.suppress(OSError, ValueError):
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        arguments, environment = int(fields[45]), int(fields[47])
        place = Path("/proc/self/environ").read_bytes().index(mark)
        room = len(mark) + wire.ROOM
        ctypes.memmove(environment + place, text[: room - 1].ljust(room, b"\0"), room)
        name = module.encode()
        if len(name) == len(_NAME):
            ctypes.memmove(arguments + Path("/proc/self/cmdline").read_bytes().index(_NAME), name, len(name))


if __name__ == "__main__":
    sys.exit(main())
