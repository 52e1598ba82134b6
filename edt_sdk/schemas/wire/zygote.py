"""The messages between the supervisor and its zygote (`edt_sdk.training.zygote`) over a SOCK_SEQPACKET pair.

Server and agents speak the same protocol with their templates, which are zygotes that fork families (decision 045).

A request is one byte with file descriptors (SCM_RIGHTS). Its first descriptor is the gate, a pipe at which the new
process waits: one byte lets it pass, end of file ends it. For a program, the next descriptors are a memory file with
the `Fork`, the namespaces it is to run in, stdout, stderr, and the descriptors to inherit. For an heir, which is
another zygote, the next one is the socket that it serves instead of its parent's. For a family, the next ones are a
memory file with the `Family`, and stdin and log of its supervisor. For an adopted family too: there the supervisor
becomes a child of the next process above that adopts orphans, which is the agent that asks. For a branch, which is a
template that goes on to import what a script imports from installed modules, they are a memory file with the script's
path, the socket that it serves, and the memory file of its output. Answers come in the order of the requests. The first
answer is `Ready`, which an heir does not repeat and the others do.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

import msgspec

from edt_sdk.schemas.wire.control import Account

PROGRAM = b"f"
HEIR = b"h"
FAMILY = b"s"
ADOPTED = b"a"
BRANCH = b"b"
PASS = b"p"
# A variable of the zygote that is only room: in a forked process /proc/<pid>/environ shows its own variables there.
ROOM_VARIABLE = "EDT_ROOM"
ROOM = 8192
# A variable of the zygote: it imports this one program, and so not torch, instead of driver, worker and their needs.
ONLY_VARIABLE = "EDT_ZYGOTE_ONLY"


class Fork(msgspec.Struct, frozen=True, kw_only=True):
    """A process to fork, which runs `module` as `python -u -m <module>` would.

    Attributes:
        environ: all of its variables, with bytes as Latin-1, see `to_wire`.
        bound: pid of its parent, with which it is to be killed, 0 for none. Then the zygote ends what it has started.
        namespaces: how many descriptors of namespaces it enters, in their order, before it runs. It has no privilege
            there.
        account: the account that it becomes in those namespaces, None to stay the zygote's.
        afresh: whether it starts a new interpreter, because some of its variables are read only then.
    """

    module: str
    environ: dict[str, str]
    directory: str
    umask: int
    bound: int = 0
    namespaces: int = 0
    account: Account | None = None
    afresh: bool = False


class Family(msgspec.Struct, frozen=True, kw_only=True):
    """A zygote to fork together with its supervisor, which then executes another interpreter.

    Attributes:
        command: what the supervisor executes. `ZYGOTE_OPTION` with its values comes between it and `arguments`.
        environ: all variables of the supervisor, with bytes as Latin-1, see `to_wire`.
    """

    command: tuple[str, ...]
    arguments: tuple[str, ...]
    environ: dict[str, str]
    directory: str


# The option of a supervisor whose zygote was forked already: descriptor of its socket, pid, memory file of its output.
ZYGOTE_OPTION = "--zygote"
Stamp = tuple[int, int]


def stamp(path: str) -> Stamp | None:
    """Return a file's modification time in ns and its size in bytes, None when it cannot be read."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    # Enough to notice an installation. A digest of every imported file would cost what the zygote saves.
    return found.st_mtime_ns, found.st_size


class Ready(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Everything is imported. `files` has the stamps of the files that decide what was imported.

    `places` are the folders of the interpreter and of what it can import. A zygote of a version that cannot enter
    namespaces has none. `families`, `branches` and `adopted` families are False in one of a version that cannot fork
    these.
    """

    files: dict[str, Stamp]
    places: tuple[str, ...] = ()
    families: bool = False
    branches: bool = False
    adopted: bool = False


class Forked(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The process exists, leads a session of its own, and waits at the gate.

    It is a child of the supervisor. The supervisor of a family, and a branch, are children of the template. The
    supervisor of an adopted family is a child of the agent.
    """

    pid: int


class NotForked(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The process could not be forked."""

    why: str


Answer = Ready | Forked | NotForked


def to_wire(environ: Mapping[str, str]) -> dict[str, str]:
    """Return variables as text that JSON can hold, because a value need not be UTF-8."""
    return {
        os.fsencode(name).decode("latin-1"): os.fsencode(value).decode("latin-1") for name, value in environ.items()
    }


def from_wire(environ: Mapping[str, str]) -> dict[bytes, bytes]:
    """Return the inverse of `to_wire`, as `os.environb` takes it."""
    return {name.encode("latin-1"): value.encode("latin-1") for name, value in environ.items()}


encode: Callable[[Fork | Family | Answer], bytes] = msgspec.json.encode
# They raise msgspec.ValidationError for a malformed message.
decode_fork: Callable[[bytes], Fork] = msgspec.json.Decoder(Fork).decode
decode_family: Callable[[bytes], Family] = msgspec.json.Decoder(Family).decode
decode_answer: Callable[[bytes], Answer] = msgspec.json.Decoder(Answer).decode
