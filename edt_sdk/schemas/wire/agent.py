"""The messages between a host agent, the server, and the supervisors that run on other hosts.

ZeroMQ DEALER (server, supervisor) and ROUTER (agent) with CURVE. The agent writes its `AgentAddress` into a folder that
every process of the account can read (0600): its endpoint, its key, and the one key pair that its clients use. Read
access to that file is the permission to command the agent. A message has two frames: the id of its job ("" for the
agent itself) and JSON.

The agent forwards a supervisor's message to the job's *outpost* and the answers back, without a look at the content.
The outpost is the process below the agent that has forked the job's workers on this host.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from edt_sdk.schemas.wire.control import ProcessIdentity, Slot
from edt_sdk.schemas.wire.link import Downward, Upward
from edt_sdk.schemas.wire.task import Task

# An agent with another number is replaced, which costs its jobs the loss of a host (docs/decisions/019).
AGENT_PROTOCOL = 1


class AgentAddress(msgspec.Struct, frozen=True, kw_only=True):
    """The address of a host's agent, in `<data_dir>/control/hosts/<name>.json` (0600). Keys are Z85.

    `client_public` and `client_secret` are the key pair that every client of the agent uses.
    """

    # Every version's file has its protocol and its identity. Of an agent with another protocol only these two are read,
    # in order to end it (docs/decisions/019).
    protocol: int
    host: str
    endpoint: str
    identity: ProcessIdentity
    public_key: str
    client_public: str
    client_secret: str

    @property
    def interface(self) -> str:
        """The address of the host at which its agent listens, and its workers."""
        return self.endpoint.removeprefix("tcp://").rpartition(":")[0].strip("[]")


class AgentOrders(msgspec.Struct, frozen=True, kw_only=True):
    """The orders of a host agent, as JSON on its command line.

    `runtime_dir` is a short 0700 folder of this machine, with one sub-folder per job.
    """

    host: str
    address_file: str
    runtime_dir: str
    interface: str


# --- to the agent itself ----------------------------------------------------------------------------------------------


class Ping(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The server sends this heartbeat about once a second, and the agent answers Pong.

    An agent without a server and without work ends.
    """


class StartSupervisor(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The server asks for the supervisor that follows these orders. The agent answers SupervisorStarted."""

    launch_file: str


class StartOutpost(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A supervisor asks for its outpost here, in place of any other outpost of the job.

    The agent answers OutpostStarted.

    Attributes:
        number: counts the outposts of this attempt, and is part of the name of the socket.
        supervisor: the process that asks. The outpost ends together with it.
    """

    launch_file: str
    attempt: int
    number: int
    supervisor: ProcessIdentity


class Retire(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The server's configuration names this host no more: the agent ends as soon as nothing runs there."""


# --- from the agent itself --------------------------------------------------------------------------------------------


class Pong(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The agent is alive."""


class SupervisorStarted(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The supervisor's process runs, or, with `identity` None, could not be started. `why` is the reason then."""

    identity: ProcessIdentity | None
    why: str = ""


class OutpostStarted(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The outpost's process runs, or, with `pid` 0, could not be started. `why` is the reason then."""

    pid: int
    why: str = ""


class OutpostEnded(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The outpost has ended, and all its processes are gone or about to be."""

    code: int


# --- from a supervisor to its outpost ---------------------------------------------------------------------------------


class StartProcess(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Start a worker, or, with a task, a process of a plain job.

    The outpost answers ProcessStarted or ProcessNotStarted.
    """

    worker: int
    slot: Slot
    task: Task | None = None


class EndProcess(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """End a process, see `supervisor.events.End`."""

    worker: int
    patience: float


class KillProcess(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Kill a process, see `supervisor.events.Kill`."""

    worker: int
    patience: float
    stack: bool = False


class TellProcess(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Send a message over the worker's link."""

    worker: int
    message: Downward


# The tag keeps the former name, because both ends may be of different versions.
class LookAtWorkers(msgspec.Struct, frozen=True, kw_only=True, tag="Look"):
    """Ask for the vital signs of the workers, twice a second.

    `taking_part` are the workers that should make progress.
    """

    taking_part: tuple[int, ...]


class Farewell(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The supervisor needs this outpost no more. With `over` the job has ended, so its folder in memory goes too."""

    over: bool


# --- from an outpost to its supervisor --------------------------------------------------------------------------------


class ProcessStarted(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The worker's process runs."""

    worker: int
    pid: int


class ProcessNotStarted(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The worker's process could not be started. `why` is a sentence."""

    worker: int
    why: str


class ProcessSaid(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The worker sent a message over its link."""

    worker: int
    message: Upward


class ProcessSilent(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The worker's link is closed."""

    worker: int
    why: str


class ProcessExited(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The worker has ended and is reaped. The fields are those in `supervisor.events.Exited`."""

    worker: int
    code: int
    signals: tuple[int, ...]
    updates: int | None


class Vital(msgspec.Struct, frozen=True, kw_only=True):
    """The vital signs of a worker.

    Attributes:
        phase, updates, age: its newest heartbeat (`pulse.Phase`) and the seconds since then. The phase is None before
            the first heartbeat.
        state: state of its process, as in /proc/<pid>/stat.
        used: seconds of processor time, None where they were not looked up.
    """

    worker: int
    phase: int | None
    updates: int
    # An age and not a time, because the monotonic clocks of two hosts have nothing in common.
    age: float
    state: str
    used: float | None


class Seen(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The outpost answers LookAtWorkers with the vital signs of the workers."""

    vitals: tuple[Vital, ...]


ToAgent = Ping | StartSupervisor | StartOutpost | Retire
FromAgent = Pong | SupervisorStarted | OutpostStarted | OutpostEnded
ToOutpost = StartProcess | EndProcess | KillProcess | TellProcess | LookAtWorkers | Farewell
FromOutpost = ProcessStarted | ProcessNotStarted | ProcessSaid | ProcessSilent | ProcessExited | Seen

encode: Callable[[AgentAddress | AgentOrders | ToAgent | FromAgent | ToOutpost | FromOutpost], bytes]
encode = msgspec.json.encode
# Both raise msgspec.MsgspecError for a malformed message.
decode_to_agent: Callable[[bytes], ToAgent | ToOutpost] = msgspec.json.Decoder(ToAgent | ToOutpost).decode
decode_to_client: Callable[[bytes], FromAgent | FromOutpost] = msgspec.json.Decoder(FromAgent | FromOutpost).decode
