"""Reaches for everything that is not this job's: `eve.py targets.json` writes what she got into the result folder.

A second argument is the name of that file.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path

_NEW_USER_NAMESPACE = 0x10000000
targets = json.loads(Path(sys.argv[1]).read_text())
result = Path(os.environ["RESULT_DIR"])
got: dict[str, bool] = {}


def attempt(what: str, act: Callable[[], object]) -> None:
    """Record whether it worked and brought something."""
    got[what] = False
    with contextlib.suppress(OSError):
        got[what] = bool(act())


def environments() -> list[int]:
    """The processes whose environment has one of the secrets in it."""
    found = []
    for name in filter(str.isdecimal, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if any(secret.encode() in Path(f"/proc/{name}/environ").read_bytes() for secret in targets["secrets"]):
                found.append(int(name))
    return found


def write(path: str) -> bool:
    Path(path).write_text("eve was here")
    Path(path).unlink()
    return True


def connect(path: str) -> bool:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        return True


def alive(pid: int) -> bool:
    # Whoever has that number in her own namespace is not the process that is meant.
    os.kill(pid, 0)
    return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[-2].decode() in targets["commands"]


who = {"uid": os.getuid(), "gid": os.getgid(), "groups": os.getgroups(), "home": os.environ.get("HOME", "")}
who |= {name: os.environ.get(name) for name in ("USER", "LOGNAME", "USER_UID")}
(result / "who.json").write_text(json.dumps(who))

for name, path in targets["files"].items():
    attempt(f"read {name}", Path(path).read_bytes)
for name, path in targets["folders"].items():
    # Of the folder of all jobs she sees her own part.
    attempt(f"list {name}", lambda path=path: set(os.listdir(path)) - {result.name})
    attempt(f"write into {name}", lambda path=path: write(f"{path}/eve.txt"))
for name, path in targets["sockets"].items():
    attempt(f"connect to {name}", lambda path=path: connect(path))
for name, pid in targets["pids"].items():
    attempt(f"signal {name}", lambda pid=pid: alive(pid))
attempt("read environments", environments)
attempt("read a server's memory", lambda: os.open(f"/proc/{targets['pids']['the server']}/mem", os.O_RDONLY))
attempt("make a user namespace", lambda: ctypes.CDLL(None).unshare(_NEW_USER_NAMESPACE) == 0)
attempt("write into the interpreter", lambda: write(os.path.join(os.path.dirname(json.__file__), "eve.txt")))
attempt("read the key of her supervisor", (result / "../../../../jobs" / result.name / "launch.json").read_bytes)
# The job's own files are there, and it may fork and signal as always.
own = result / "model" / "own.txt"
own.parent.mkdir(exist_ok=True)
own.write_text("mine")
child = os.fork()
if child == 0:
    signal.pause()
os.kill(child, signal.SIGTERM)
got["end her own child"] = os.waitpid(child, 0)[1] == signal.SIGTERM
Path("/tmp/eve.txt").write_text("temporary")
Path("/dev/shm/eve.txt").write_text("shared")
(result / (sys.argv[2:] or ["got.json"])[0]).write_text(json.dumps(got))
