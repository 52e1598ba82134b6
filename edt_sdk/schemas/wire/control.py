"""The control channel: messages between the server and the supervisors, and the supervisor's orders on disk.

ZeroMQ ROUTER (server) and DEALER (supervisor) with CURVE. The server knows the sender's job from the client key (ZAP),
never from a message. The supervisor numbers its reports and repeats them until they are acknowledged, so nothing is
lost when a server dies between receiving and committing. The server ignores numbers it has. Allocations are levels, not
edges: each carries all slots the job holds now, so the newest one is always enough.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from edt_sdk.schemas.job import JobProgress, JobSpec, JobState

# Raised only for a change that old supervisors cannot read. A supervisor with another number is refused.
PROTOCOL = 1
# Seconds without a word after which a host counts as silent, where the server does not say otherwise.
HOST_SILENT = 6.0
# The kinds of `Isolation`.
SAME, SANDBOX, ACCOUNT = "same", "sandbox", "account"


class Slot(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """One unit of allocation. `device` is "cpu" or "cuda:<index>"."""

    id: int
    host: str
    device: str = "cpu"


class ProcessIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """The identity of a process. A pid alone is not enough, because another process may have it by now."""

    host: str
    # `start_ticks` counts from the boot, and a pid is unique only within its namespace. Without these two a process of
    # another container, or of the time before a reboot, could be taken for this one.
    boot_id: str
    pid_namespace: str
    pid: int
    start_ticks: int


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """The system account that a job's processes run as, as the server has looked it up."""

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]
    home: str
    shell: str


class Isolation(msgspec.Struct, frozen=True, kw_only=True):
    """How a job's processes are kept apart from the server and from other people's jobs.

    Attributes:
        kind: SAME for plain processes of the server's account, SANDBOX for namespaces of their own, ACCOUNT for
            namespaces and the account of the job's owner.
        readable: files and folders of the machine that a sandbox shows too, read-only.
        network: whether a sandbox has the machine's network.
        account: for ACCOUNT, and only in a job's orders.
    """

    kind: str = SAME
    readable: tuple[str, ...] = ()
    network: bool = True
    account: Account | None = None


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """The supervisor's orders, `launch.json` (0600).

    Attributes:
        attempt: fencing token. The server refuses reports of an older attempt.
        interpreter: absolute path of the Python that runs driver and workers.
        threads_per_slot: resolved, ≥ 1.
        runtime_dir: short 0700 folder for the link's socket.
        control_file: file with the server's `ServerAddress` as JSON, read again at every (re)connect.
        public_key, secret_key: this supervisor's CURVE pair (Z85).
        data_fs: DLI_DATA_FS / DATA_DIR for the user's code, "" when not configured.
        checkpoint_interval: seconds between rolling checkpoints.
        hang_timeout: least seconds without a heartbeat before a worker that should compute is replaced.
        warm_start: absolute path of the `.pth` file with the weights to start with, "" for the script's own.
        dataset_dir: the job's DATA_DIR where that is the catalogue's copy of a data set, "" for a folder below
            `data_fs`.
        host: name of the host that the supervisor runs on, "" where the machine is the only one.
        hosts_dir: folder of the addresses of host agents (`agent.AgentAddress`), for slots of other hosts.
        standbys: workers that may be kept ready ahead of their slots, 0 for none.
        isolation: what the job's processes can reach.
        interface: address of this host at which its workers listen, "" for loopback.
        spreads: whether workers may be on hosts with files of their own. Then rank 0, which writes the job's files,
            has to be on the supervisor's host.
        kind: of the host that the job began on, "" where that is not known.
        portable: whether the job began as a portable one.
        host_silent: seconds without a word after which another host counts as silent.
    """

    job_id: str
    owner: str
    attempt: int
    spec: JobSpec
    data_dir: str
    runtime_dir: str
    control_file: str
    public_key: str
    secret_key: str
    interpreter: str
    threads_per_slot: int
    # Fields from here on have a default, because orders written before an upgrade may lack them. In the other direction
    # msgspec ignores a field that the reader does not know.
    data_fs: str = ""
    checkpoint_interval: float = 30.0
    hang_timeout: float = 60.0
    warm_start: str = ""
    dataset_dir: str = ""
    host: str = ""
    hosts_dir: str = ""
    standbys: int = 0
    isolation: Isolation = Isolation()
    interface: str = ""
    spreads: bool = False
    kind: str = ""
    portable: bool = False
    host_silent: float = HOST_SILENT


class ServerAddress(msgspec.Struct, frozen=True, kw_only=True):
    """The server's address, in `<data_dir>/control/server.json` (0600)."""

    endpoint: str
    public_key: str


# --- supervisor → server ----------------------------------------------------------------------------------------------


class SupervisorHello(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The supervisor sends this as the first message of every connection."""

    protocol: int
    attempt: int
    identity: ProcessIdentity
    holding: tuple[int, ...]
    last_report: int


class DriverStarted(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The driver's process runs."""

    pid: int


class TrainingStarted(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """`train()` was called: the job can use up to `shards` slots."""

    training: int
    shards: int
    epochs: int


class TrainingScaled(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The script wants at most `workers` workers for its training from now on. V does not change."""

    training: int
    workers: int


class SizeHeld(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A change of size would start the script of a torchrun job from nothing, or give its training another meaning.

    It keeps its `workers` slots and gets no more until it is changed on request. `why` is the sentence for people, ""
    when its size may change again.
    """

    workers: int
    why: str


class TrainingEnded(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """`train()` is over and its workers are gone: until the next one the job can use no slot."""

    training: int
    updates: int


class EpochValidated(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A validation after `epoch` epochs of a job with a budget: means over the test data. Once for each epoch."""

    training: int
    epoch: int
    loss: float | None
    accuracy: float | None
    metrics: dict[str, float | None]


class BudgetReached(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The training has done `epoch` of its `epochs` epochs and waits: its budget is used up."""

    training: int
    epoch: int
    epochs: int


class WorkerStarted(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A worker's process runs in a slot."""

    worker: int
    slot: int
    pid: int


# Of the replicas of a deployment.
NO_TRAINING = -1


class GenerationFormed(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Every member has joined the group. The tuples are in rank order.

    `training` is NO_TRAINING for replicas, which have no group: these are the ones that answer from now on. `update`
    updates were committed before. It is None where only the job's script knows how far it is.
    """

    training: int
    number: int
    workers: tuple[int, ...]
    slots: tuple[int, ...]
    pids: tuple[int, ...]
    update: int | None


class WorkerLost(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A worker ended too early. The job goes on, and the supervisor fills the slot again.

    `member` is True when the worker took part in the training, which recovers now. `update` updates are known to be
    committed, None where only the script knows.
    `why` is the sentence for people ("Worker 3 (rank 1, slot 7) was killed by SIGKILL.").
    """

    worker: int
    slot: int
    pid: int | None
    exit_code: int
    member: bool
    update: int | None
    why: str


class DriverLost(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The driver was killed. Its main script is run again and attaches to the trainings there are."""

    pid: int | None
    exit_code: int
    why: str


class RunStarted(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """All processes of a job that is not elastic run.

    The tuples are in rank order, `slots` has each process's first slot.

    `number` counts from 1: every run starts from the beginning.
    """

    number: int
    workers: tuple[int, ...]
    slots: tuple[int, ...]
    pids: tuple[int, ...]


class RunStopped(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Run `number` was ended early, with all its processes. The job is not over. `why` is a sentence."""

    number: int
    why: str


class Relocated(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The job has no slot left on `host`, where its files are written. Its workers have left with their state on disk.

    The supervisor exits when this is acknowledged, and the next one goes on where the job has slots.
    """

    host: str


# The tag keeps the former name, because both ends, and a journal, may be of different versions.
class SlotReturned(msgspec.Struct, frozen=True, kw_only=True, tag="SlotReleased"):
    """The worker of this slot is gone (or none was ever started): the slot is free for others."""

    # Only this report frees a slot, and never the allocation that revoked it, so that no slot is assigned twice
    # (docs/decisions/003).
    slot: int
    worker: int | None
    exit_code: int | None


class JobEnded(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Driver and workers are gone, and every slot still held is free.

    The supervisor exits when this is acknowledged.

    `state` is FINISHED, KILLED, FAILED or ERROR. `message` is one sentence, followed for failures by the last log lines
    of the process that failed. `progress` is the last one, None where this supervisor has seen none.
    """

    state: JobState
    message: str
    # In this report too, because a progress report is never repeated: one sent while no server ran is lost.
    progress: JobProgress | None = None


Report = (
    DriverStarted
    | DriverLost
    | TrainingStarted
    | TrainingScaled
    | SizeHeld
    | TrainingEnded
    | EpochValidated
    | BudgetReached
    | WorkerStarted
    | WorkerLost
    | GenerationFormed
    | RunStarted
    | RunStopped
    | Relocated
    | SlotReturned
    | JobEnded
)


# Numbers make a report idempotent, and the supervisor's clock dates it even when a server reads it much later
# (docs/decisions/003).
class Numbered(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A report with its number (from 1, without gaps) and the supervisor's clock (seconds since the epoch)."""

    number: int
    time: float
    report: Report


class ProgressReport(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A report without a number, because only the newest matters."""

    progress: JobProgress


# --- server → supervisor ----------------------------------------------------------------------------------------------


class Welcome(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The server answers the hello: reports up to `acknowledged` are committed."""

    protocol: int
    acknowledged: int


class Refused(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The server refuses this supervisor (older attempt, other protocol, job over), which then ends everything."""

    why: str


class Ack(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The server has committed the reports up to `number`."""

    number: int


class Allocation(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """All slots the job may use from now on. `version` grows, and the supervisor ignores an older one.

    `asked` is the number of slots the job would have if all of its resource group were free, 0 where that is not known.
    Each training of the job holds after `budget` epochs. None is no bound. Workers on the hosts `apart` and the others
    do not reach each other: none waits for them any more.
    """

    # A duplicate, or an older allocation that arrives late, changes nothing. So the server sends the newest one after
    # every reconnect (docs/decisions/003).
    version: int
    slots: tuple[Slot, ...]
    # With defaults, so that the message of an older server can still be read.
    asked: int = 0
    budget: int | None = None
    apart: tuple[str, ...] = ()


class StopJob(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The server ends the job as KILLED. `why` goes into the job's message."""

    why: str


ToServer = SupervisorHello | Numbered | ProgressReport
ToSupervisor = Welcome | Refused | Ack | Allocation | StopJob

encode: Callable[[ToServer | ToSupervisor | Launch | ServerAddress], bytes] = msgspec.json.encode
# Both raise msgspec.ValidationError for a malformed message.
decode_to_server: Callable[[bytes], ToServer] = msgspec.json.Decoder(ToServer).decode
decode_to_supervisor: Callable[[bytes], ToSupervisor] = msgspec.json.Decoder(ToSupervisor).decode
