"""Host agents: what the server and the supervisors of other hosts say to the one agent of a host, and it to them.

ZeroMQ DEALER (server, supervisor) and ROUTER (agent) with CURVE. The agent writes its `AgentAddress` where all of the
account can read it (0600): its endpoint, its key, and the one pair that its clients use; whoever can read the file may
command the agent, nobody else. A message is two frames: the job it is about ("" for the agent itself) and JSON.

What a supervisor says about its job is passed on to the job's *outpost*, the process below the agent that has forked
the job's workers there, and back; the agent does not look into it.
"""

from __future__ import annotations

import msgspec

from edt_sdk.schemas.wire.control import ProcessIdentity, Slot
from edt_sdk.schemas.wire.link import Downward, Upward
from edt_sdk.schemas.wire.task import Task

AGENT_PROTOCOL = 1


class AgentAddress(msgspec.Struct, frozen=True, kw_only=True):
    """`<data_dir>/control/hosts/<name>.json` (0600). Keys are Z85.

    Attributes:
        identity: the agent's process.
        public_key: the agent's.
        client_public, client_secret: the pair with which to speak to it.
    """

    protocol: int
    host: str
    endpoint: str
    identity: ProcessIdentity
    public_key: str
    client_public: str
    client_secret: str


class AgentOrders(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent is told when it is started, as JSON on its command line.

    Attributes:
        host: its name.
        address_file: where it writes its `AgentAddress`.
        runtime_dir: short 0700 folder of this machine, with one of each job.
        interface: address that it listens on.
    """

    host: str
    address_file: str
    runtime_dir: str
    interface: str


# --- to the agent itself ----------------------------------------------------------------------------------------------


class Ping(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """From the server, about once a second; answered by Pong. An agent without a server and without work ends."""


class StartSupervisor(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """From the server: start the supervisor that follows these orders. Answered by SupervisorStarted."""

    launch_file: str


class StartOutpost(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """From a supervisor: start its outpost here, in place of any other of the job. Answered by OutpostStarted.

    Attributes:
        number: of this attempt's outposts; part of the name of its socket.
        supervisor: who asks, and with whom the outpost ends.
    """

    launch_file: str
    attempt: int
    number: int
    supervisor: ProcessIdentity


class Retire(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """From the server: the configuration does not name this host any more. End as soon as nothing runs there."""


# --- from the agent itself --------------------------------------------------------------------------------------------


class Pong(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Alive."""


class SupervisorStarted(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The supervisor's process runs; or, with `identity` None, `why` it does not."""

    identity: ProcessIdentity | None
    why: str = ""


class OutpostStarted(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The outpost's process runs; or, with `pid` 0, `why` it does not."""

    pid: int
    why: str = ""


class OutpostEnded(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The outpost has ended, and all its processes are gone or about to be."""

    code: int


# --- from a supervisor to its outpost ---------------------------------------------------------------------------------


class StartProcess(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Start a worker, or with a task a process of a plain job. Answered by ProcessStarted or ProcessNotStarted."""

    worker: int
    slot: Slot
    task: Task | None = None


class EndProcess(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """As `supervisor.events.End`."""

    worker: int
    patience: float


class KillProcess(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """As `supervisor.events.Kill`."""

    worker: int
    patience: float


class TellProcess(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Send over the worker's link."""

    worker: int
    message: Downward


class LookAtWorkers(msgspec.Struct, frozen=True, kw_only=True, tag="Look"):
    """Twice a second: tell what is seen of the workers. `taking_part`: those that should move."""

    taking_part: tuple[int, ...]


class Farewell(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Nothing is needed there any more; `over`: the job has ended, so its folder in memory goes too."""

    over: bool


# --- from an outpost to its supervisor --------------------------------------------------------------------------------


class ProcessStarted(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The worker's process runs."""

    worker: int
    pid: int


class ProcessNotStarted(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """It could not be started; `why` is a sentence."""

    worker: int
    why: str


class ProcessSaid(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A message of the worker, over its link."""

    worker: int
    message: Upward


class ProcessSilent(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The worker's link is closed."""

    worker: int
    why: str


class ProcessExited(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The worker has ended and is reaped; fields as in `supervisor.events.Exited`."""

    worker: int
    code: int
    signals: tuple[int, ...]
    updates: int | None


class Vital(msgspec.Struct, frozen=True, kw_only=True):
    """What is seen of one worker.

    Attributes:
        phase, updates, age: its newest sign of life (`pulse.Phase`) and how many seconds ago that was; phase None
            before the first.
        state: of its process, as in /proc/<pid>/stat.
        used: seconds of processor time, where that was looked up.
    """

    worker: int
    phase: int | None
    updates: int
    age: float
    state: str
    used: float | None


class Seen(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The answer to Look."""

    vitals: tuple[Vital, ...]


ToAgent = Ping | StartSupervisor | StartOutpost | Retire
FromAgent = Pong | SupervisorStarted | OutpostStarted | OutpostEnded
ToOutpost = StartProcess | EndProcess | KillProcess | TellProcess | LookAtWorkers | Farewell
FromOutpost = ProcessStarted | ProcessNotStarted | ProcessSaid | ProcessSilent | ProcessExited | Seen

_encoder = msgspec.json.Encoder()
_to_agent: msgspec.json.Decoder[ToAgent | ToOutpost] = msgspec.json.Decoder(ToAgent | ToOutpost)
_to_client: msgspec.json.Decoder[FromAgent | FromOutpost] = msgspec.json.Decoder(FromAgent | FromOutpost)


def encode(message: AgentAddress | AgentOrders | ToAgent | FromAgent | ToOutpost | FromOutpost) -> bytes:
    """JSON bytes of one message, without a line break in them."""
    return _encoder.encode(message)


def decode_to_agent(data: bytes) -> ToAgent | ToOutpost:
    """What an agent or an outpost is told; msgspec.MsgspecError when malformed."""
    return _to_agent.decode(data)


def decode_to_client(data: bytes) -> FromAgent | FromOutpost:
    """What an agent or an outpost says; msgspec.MsgspecError when malformed."""
    return _to_client.decode(data)
