"""The zygote: imports once what every driver and worker imports, and then forks them instead of starting them.

Started by the supervisor as `python -u -m edt_sdk.training.zygote`, one a job; stdin is its socket
(`edt_sdk.schemas.wire.zygote`). It stays single-threaded, runs no code of the user's, computes nothing and never
touches CUDA: a forked process finds what a started one would have found, only sooner. It is forked twice, so that its
parent is the supervisor, which adopts orphans. A zygote ends when its socket does.

It forks heirs too: zygotes with sockets of their own, which wait there in silence until they are asked for something,
because the one before them has died. What was imported lives on in them.
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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, ModuleType

from edt_sdk.schemas.wire import zygote as wire

PROGRAMS = ("edt_sdk.training.driver", "edt_sdk.training.worker")
# The first optimizer of a process imports torch._dynamo, which takes as long as torch.
_MORE = ("edt_sdk.fabric.fabric", "torch._dynamo")
# What shows in `ps`: the same length, so that it can be written in place.
_NAME = b"edt_sdk.training.zygote"
_MOST_DESCRIPTORS = 64
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, slots=True)
class Birth:
    """A request, in the process that was forked for it."""

    fork: wire.Fork
    stdout: int
    stderr: int
    inherited: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Heir:
    """A zygote, in the process that was forked to be one: the socket that it serves."""

    connection: socket.socket


def main() -> int:
    """Be a zygote, or what was forked from it; the exit code."""
    connection = _take_socket()
    path = sys.path[:]
    only = os.environ.get(wire.ONLY_VARIABLE)
    import_all(*([only] if only else PROGRAMS))
    try:
        connection.send(wire.encode(wire.Ready(files=_files())))
        while isinstance(birth := serve(connection), Heir):
            # Only the zygote before it may hold that one: its end has to be seen.
            connection.close()
            connection = birth.connection
    except ConnectionError:
        birth = None  # the supervisor is gone
    if birth is None:
        # Nothing that was registered to run at exit has anything to do here.
        os._exit(0)
    connection.close()
    become(birth, path)
    run(birth.fork.module)
    return 0


def import_all(*programs: str) -> None:
    """Import what these programs import, and for driver and worker what they need with the first optimizer."""
    # Next to nothing of it is garbage: looking for some takes a fifth of the time.
    gc.disable()
    for name in (*programs, *(_MORE if programs == PROGRAMS else ())):
        importlib.import_module(name)
    for name in programs:
        # Each runs as `__main__`, as with `python -m`, and must not exist twice.
        package, _, child = name.rpartition(".")
        del sys.modules[name]
        delattr(sys.modules[package], child)
    # A collection in a forked process must not write to, and so copy, everything that was imported here.
    gc.freeze()
    gc.enable()


def serve(connection: socket.socket) -> Birth | Heir | None:
    """Fork on request. Returns in each forked process what it is to be, and None in the zygote, when all is over."""
    while True:
        message, descriptors, _, _ = socket.recv_fds(connection, 1, _MOST_DESCRIPTORS, socket.MSG_CMSG_CLOEXEC)
        if not message:
            return None
        try:
            answer = fork(message, descriptors)
        except OSError as wrong:
            answer = wire.NotForked(why=f"{type(wrong).__name__}: {wrong.strerror}")
        if isinstance(answer, Birth | Heir):
            return answer
        for descriptor in descriptors:
            os.close(descriptor)
        connection.send(wire.encode(answer))


def fork(request: bytes, descriptors: Sequence[int]) -> Birth | Heir | wire.Answer:
    """Fork twice; in the new process, what it is to be, once it was let through the gate."""
    gate, *given = descriptors
    read, write = os.pipe()
    between = os.fork()
    if between == 0:
        try:
            os.close(read)
            if os.fork() != 0:
                os._exit(0)
            os.setsid()
            os.write(write, str(os.getpid()).encode())
            os.close(write)
            _pass(gate)
            return Heir(socket.socket(fileno=given[0])) if request == wire.HEIR else _birth(given)
        except OSError:
            os._exit(1)  # it must not go on as a second zygote
    os.close(write)
    with open(read, "rb") as pipe:
        # When the one between has ended, the supervisor is the parent.
        os.waitpid(between, 0)
        pid = pipe.read()
    return wire.Forked(pid=int(pid)) if pid else wire.NotForked(why="the second fork failed")


def _pass(gate: int) -> None:
    if os.read(gate, 1) != wire.PASS:
        os._exit(0)  # nobody waits for it any more
    os.close(gate)


def _birth(given: Sequence[int]) -> Birth:
    request, stdout, stderr, *inherited = given
    with open(request, "rb") as file:
        file.seek(0)
        return Birth(wire.decode_fork(file.read()), stdout, stderr, tuple(inherited))


def become(birth: Birth, path: Sequence[str]) -> None:
    """Make this process what a started one would be before its first line.

    Args:
        birth: what was asked for.
        path: the zygote's `sys.path` as it was at its own start.
    """
    for descriptor, number in ((birth.stdout, 1), (birth.stderr, 2)):
        os.dup2(descriptor, number)
        os.close(descriptor)
    for descriptor in birth.inherited:
        os.set_inheritable(descriptor, True)
    if birth.fork.bound:
        _die_with(birth.fork.bound)
    os.umask(birth.fork.umask)
    os.chdir(birth.fork.directory)
    before = os.environ.get("PYTHONPATH", "")
    os.environb.clear()
    os.environb.update(wire.from_wire(birth.fork.environ))
    time.tzset()
    _show(birth.fork.module)
    sys.path[:] = _path(path, before, os.environ.get("PYTHONPATH", ""))
    importlib.invalidate_caches()
    _forget_the_zygote()
    _set_threads(os.environ)


def _die_with(parent: int) -> None:
    """Have the kernel kill this process when `parent`, which must be its parent, ends."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != parent:
        os._exit(1)  # it had ended before


def run(module: str) -> None:
    """Run `module` as `python -m` does: as the new `__main__`, whose exit ends the process."""
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
    exec(code, main.__dict__)


def _take_socket() -> socket.socket:
    """The socket that stdin is; stdin is /dev/null from then on."""
    connection = socket.socket(fileno=os.dup(0))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    return connection


def _files() -> dict[str, tuple[int, int]]:
    """The files of torch and edt_sdk by which an installation that has changed is noticed."""
    torch = Path(sys.modules["torch"].__file__ or "").parent if "torch" in sys.modules else None
    folder = Path(sys.modules["edt_sdk"].__file__ or "").parent
    found = [*([torch / "__init__.py", torch / "version.py"] if torch else []), *folder.rglob("*.py")]
    return {str(path): ((stat := path.stat()).st_mtime_ns, stat.st_size) for path in found}


def _path(zygote: Sequence[str], before: str, now: str) -> list[str]:
    """`sys.path` as this interpreter makes it in the working directory, with PYTHONPATH `now` instead of `before`."""
    rest = list(zygote)
    if not sys.flags.safe_path:
        del rest[0]
    if not sys.flags.ignore_environment:
        removed = {os.path.abspath(entry) for entry in before.split(os.pathsep)} if before else set()
        added = [os.path.abspath(entry) for entry in now.split(os.pathsep)] if now else []
        # What stands in both is found again at its place among the new ones.
        rest = list(dict.fromkeys([*added, *(entry for entry in rest if entry not in removed)]))
    return rest if sys.flags.safe_path else [os.getcwd(), *rest]


def _forget_the_zygote() -> None:
    """Give up what all forked processes would otherwise share: secrets, random states, cached folders.

    `random` sees to itself.
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
    """Set the threads of an imported torch by this process's own variables: it has read those of the zygote."""
    if "torch" not in sys.modules:
        return
    import torch

    named = (environ.get("OMP_NUM_THREADS") or environ.get("MKL_NUM_THREADS") or "").split(",")[0].strip()
    threads = int(named) if named.isdecimal() and int(named) > 0 else _cores(torch.backends.mkl.is_available())  # type: ignore[no-untyped-call]
    if torch.get_num_threads() != threads:
        torch.set_num_threads(threads)  # starts some


def _cores(physical: bool) -> int:
    """Cores this process may use; with `physical` hardware threads of one core count once, as MKL counts them."""
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
    """Let `ps` and /proc tell what this process is and which job it belongs to."""
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
