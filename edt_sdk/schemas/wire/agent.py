"""The messages between a host agent, the server, and the supervisors that run on other hosts.

An agent dials the server's control channel, under a key of its own, and the server sends it orders there as values. So
a host needs no port that the server reaches, and no file of it. For the supervisors of other hosts the agent listens
itself (ZeroMQ ROUTER with CURVE): it admits the keys of the hosts that the server names, and only for jobs whose orders
it has from the server.

Messages are JSON. One that carries the bytes of a file has them in a frame of their own behind it. A supervisor's
message begins with a frame for the id of its job, and the agent forwards it to the job's *outpost*, the process below
the agent that has forked the job's workers on this host.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from edt_sdk.schemas.wire.control import Launch, ProcessIdentity, Slot
from edt_sdk.schemas.wire.link import Downward, Upward
from edt_sdk.schemas.wire.task import Task

# An agent of this machine with another number is replaced, which costs its jobs the loss of a host
# (docs/decisions/019). One of another machine is refused.
AGENT_PROTOCOL = 2
# The bytes of a file that one message carries, and how many such messages may be unanswered.
PART = 1 << 20
WINDOW = 8
# The names under which the control channel knows the keys of hosts and of tokens. No job has a colon in its id.
HOST_KEY, TOKEN_KEY = "host:", "token:"
MACHINE = ""
"""The name under which orders know the server's own machine."""


class AgentAddress(msgspec.Struct, frozen=True, kw_only=True):
    """The address of a host's agent, in `control/hosts/<name>.json` (0600) of the folder of those who talk with it.

    `client_public` and `client_secret` are the key pair by which the agent knows them (Z85). `shared` tells that the
    host has the files of their folder.
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
    shared: bool = True


class AgentOrders(msgspec.Struct, frozen=True, kw_only=True):
    """The orders of a host agent, a file (0600) that outlives it.

    Attributes:
        host: its name.
        data_dir: where the files of jobs are. With `shared` it is the server's own, and nothing is copied.
        runtime_dir: a short 0700 folder of this machine, with one sub-folder per job.
        public_key, secret_key: the host's CURVE pair (Z85).
        servers: endpoints of the control channel, tried in turn. With `shared` the server's address file counts.
        server_key: the server's public key.
        interface: address that the agent and the host's workers listen at, "" for the one by which the host reaches
            the server.
        slots: what the host offers, 0 for its GPUs or cores.
        data_fs: DLI_DATA_FS of jobs on this host, "" for the server's path.
        provider, provider_id: who has started the machine, and its name there. Both are "" for a person.
        idle: seconds without a server and without work after which the agent ends, None for never.
        cache_bytes: most bytes of files that are kept for later jobs.
    """

    host: str
    data_dir: str
    runtime_dir: str
    public_key: str
    secret_key: str
    servers: tuple[str, ...] = ()
    server_key: str = ""
    shared: bool = False
    interface: str = ""
    slots: int = 0
    data_fs: str = ""
    provider: str = ""
    provider_id: str = ""
    idle: float | None = None
    cache_bytes: int = 20 << 30


class JobFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file of a job: its path below the data folder, its size in bytes and its permissions.

    `digest` is the SHA-256 of the content, "" for a file that the host does not need.
    """

    path: str
    size: int
    mode: int
    digest: str = ""


# --- from an agent to the server --------------------------------------------------------------------------------------


class Join(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A machine asks to become a host, under a token's key. Answered by HostJoined, or by HostRefused.

    `name` may be taken by another host: then the answer has a free one. Later connections use `public_key`.
    """

    protocol: int
    name: str
    public_key: str
    provider: str = ""
    provider_id: str = ""


class Below(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt of a job with processes on the host. `supervises` where its supervisor is one of them."""

    job: str
    attempt: int
    supervises: bool


class HostHello(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The first message of every connection. Answered by HostWelcome, or by HostRefused.

    Attributes:
        wheel: version of the package there.
        identity: the agent's process. Another one means that all below the last is gone.
        endpoint: where it listens for supervisors.
        cores, gpus, offers: as in `slots.Host`.
        memory: bytes of the machine.
        kind: what its results depend on, "" where it has no torch (`edt_sdk.training.update.kind`).
        portable_kind: the same for portable jobs, which use the lowest instructions.
        below: what runs there.
        jobs: jobs with files there, and the owner of each.
        sandbox: why the host cannot run jobs in a sandbox, in sentences, "" where it can. None from a version that
            would run workers without one.
        connection: which one of its agent's this is. The greeting of an earlier one may arrive after it.
    """

    protocol: int
    wheel: str
    identity: ProcessIdentity
    endpoint: str
    cores: int
    gpus: tuple[int, ...]
    offers: int
    memory: int
    kind: str
    below: tuple[Below, ...]
    jobs: tuple[tuple[str, str], ...] = ()
    sandbox: str | None = None
    portable_kind: str = ""
    connection: int = 0


class HostBeat(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The host lives: processes that want to run, bytes of memory and of disk that are free. Answered by Heard.

    `round_trip` is the seconds from the last beat to its answer, None before the first. `unreached` are the hosts that
    did not answer when this one last tried to reach them.
    """

    load: float
    memory_free: int
    disk_free: int
    round_trip: float | None = None
    unreached: tuple[str, ...] = ()


class HostNotice(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The machine will be taken away, so its slots are withdrawn. The agent ends when nothing runs there.

    `seconds` is how long it has at most, and `why` a sentence.
    """

    seconds: float
    why: str


class SupervisorStarted(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The supervisor's process runs, or, with `identity` None, could not be started. `why` is the reason then.

    `errno` is the system's number of the reason, 0 where it has none: a disk that is full has room again later.
    """

    job: str
    attempt: int
    identity: ProcessIdentity | None
    why: str = ""
    errno: int = 0


class SupervisorEnded(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The supervisor's process has ended and is reaped."""

    job: str
    attempt: int
    code: int


class Want(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The agent asks for the bytes of a file of a Prepare from `offset` on. Answered by Chunk."""

    job: str
    path: str
    offset: int


class FilePart(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Bytes of a file of a job that has grown or is new on the host. Answered by Taken.

    With `whole` the file is replaced once its `last` part has come, else the bytes go to `offset` of the present one.
    """

    job: str
    attempt: int
    path: str
    offset: int
    mode: int
    whole: bool
    last: bool


class Gone(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A file that the server has was removed on the host. Answered by Taken."""

    job: str
    attempt: int
    path: str


class FilesCollected(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The server has every file of the job as it was when Collect arrived."""

    job: str
    attempt: int


class Compare(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The agent does not know which files of a job the server has. Answered by another Collect, with all of them."""

    job: str
    attempt: int
    end: bool


# --- from the server to an agent --------------------------------------------------------------------------------------


class HostJoined(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The machine is the host of this name from now on."""

    host: str


class HostRefused(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The server refuses this host or this token. `why` and `hint` are sentences."""

    why: str
    hint: str = ""


class HostWelcome(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The host is up. `outdated` attempts have successors elsewhere: the agent ends what it has of them.

    A beat is due every `beat` seconds.
    """

    outdated: tuple[Below, ...]
    beat: float


class Heard(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The server has heard a beat. The host tries to reach the hosts `probe`, and tells in its next beats."""

    probe: tuple[str, ...] = ()


class HostPeer(msgspec.Struct, frozen=True, kw_only=True):
    """Another host, or the server's own machine with the endpoint "" where nothing listens."""

    host: str
    endpoint: str
    identity: ProcessIdentity
    public_key: str


class HostPeers(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """All hosts that are up: whose supervisors may ask for outposts here, and where those of this host may ask."""

    peers: tuple[HostPeer, ...]


class Prepare(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A job comes to this host: its orders, and the files it needs, which the agent asks for.

    With `supervises` the agent then starts the supervisor, and answers SupervisorStarted. Otherwise it lets the
    supervisor, on the host `launch.host`, have an outpost. `refused` is why the job cannot be on this host.
    """

    launch: Launch
    supervises: bool
    files: tuple[JobFile, ...]
    refused: str = ""


class Chunk(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The bytes of a file from `offset` on, which are fewer than a part at its end. `lost` where it cannot be read."""

    job: str
    path: str
    offset: int
    lost: str = ""


class Taken(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The server has the part on its disk, or refuses it, and then all of this attempt, for the reason `refused`.

    With `again` the file has to be sent as a whole.
    """

    job: str
    attempt: int
    path: str
    refused: str = ""
    again: bool = False


class Collect(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The server asks for every file of an attempt that it does not have yet. Answered by FilesCollected or Compare.

    With `end` the attempt is over: first its processes there write what only they have, and end. `files` are those that
    the server has, None where the agent should know.
    """

    job: str
    owner: str
    attempt: int
    end: bool
    files: tuple[JobFile, ...] | None = None


class Forget(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The job is over, or goes on elsewhere: the host needs none of its files."""

    job: str
    owner: str


class Retire(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The host is not needed any more: its agent ends as soon as nothing runs there, or with all of it `at_once`."""

    at_once: bool = False


# --- between a supervisor and an agent --------------------------------------------------------------------------------


class StartOutpost(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A supervisor asks for its outpost here, in place of any other outpost of the job.

    The agent answers OutpostStarted once it has the job's orders and files from the server.

    Attributes:
        number: counts the outposts of this attempt, and is part of the name of the socket.
        supervisor: the process that asks. The outpost ends together with it.
    """

    attempt: int
    number: int
    supervisor: ProcessIdentity


class OutpostStarted(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The outpost's process runs, or, with `pid` 0, could not be started. `why` is the reason then."""

    pid: int
    why: str = ""


class OutpostEnded(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The outpost has ended, and all its processes are gone or about to be."""

    code: int


class PutFile(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The supervisor gives the host bytes of a file in the job's own folder, in order. Answered by FilePut."""

    name: str
    offset: int
    last: bool


class FilePut(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The host has this part of the file. `why` says why not."""

    name: str
    offset: int
    why: str = ""


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
    # From a host with files of its own, where the supervisor cannot read them.
    words: tuple[str, str] | None = None


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


ToServer = (
    Join
    | HostHello
    | HostBeat
    | HostNotice
    | SupervisorStarted
    | SupervisorEnded
    | Want
    | FilePart
    | Gone
    | FilesCollected
    | Compare
)
ToHost = (
    HostJoined | HostRefused | HostWelcome | Heard | HostPeers | Prepare | Chunk | Taken | Collect | Forget | Retire
)
ToAgent = StartOutpost | PutFile
FromAgent = OutpostStarted | OutpostEnded | FilePut
ToOutpost = StartProcess | EndProcess | KillProcess | TellProcess | LookAtWorkers | Farewell
FromOutpost = ProcessStarted | ProcessNotStarted | ProcessSaid | ProcessSilent | ProcessExited | Seen

encode: Callable[[Any], bytes] = msgspec.json.encode
# All raise msgspec.MsgspecError for a malformed message.
decode_to_server: Callable[[bytes], ToServer] = msgspec.json.Decoder(ToServer).decode
decode_to_host: Callable[[bytes], ToHost] = msgspec.json.Decoder(ToHost).decode
decode_to_agent: Callable[[bytes], ToAgent | ToOutpost] = msgspec.json.Decoder(ToAgent | ToOutpost).decode
decode_to_client: Callable[[bytes], FromAgent | FromOutpost] = msgspec.json.Decoder(FromAgent | FromOutpost).decode
