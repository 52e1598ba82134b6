"""What the edge knows: the file `edge.json` (0600), which the leading server replaces whenever something changes.

The edge reads nothing else, so it goes on while no server runs. It looks for a new file several times a second.
"""

from __future__ import annotations

import msgspec

from edt_sdk.schemas.wire.control import ProcessIdentity


class Key(msgspec.Struct, frozen=True, kw_only=True):
    """A key of a caller. The key itself, `edtk_<id>_<secret>`, is shown once and kept nowhere.

    Attributes:
        id: what people call it by in lists, part of the key.
        sha256: of the whole key, in hexadecimal.
        expires: seconds since the epoch, None for never.
    """

    id: str
    sha256: str
    expires: float | None = None


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """A revision that answers requests of a deployment.

    Attributes:
        job: id of the job whose processes are its replicas.
        revision: its number.
        version: what it serves, such as digits/3.
        socket: where its replicas connect.
        owner: user and group that may connect, None for those of the edge.
        share: percent of the callers that it answers. The shares of a deployment add up to 100.
        reason: why it has no replica now, "" while it has or will have one soon.
        deadline, max_batch: as in `Serves`.
    """

    job: str
    revision: int
    version: str
    socket: str
    owner: tuple[int, int] | None = None
    share: int = 100
    reason: str = ""
    deadline: float = 30.0
    max_batch: int = 32


class EdgeDeployment(msgspec.Struct, frozen=True, kw_only=True):
    """A deployment.

    Attributes:
        name: in the addresses of its routes.
        targets: what answers, empty while it is stopped.
        keys: of its callers.
        public: no key is asked for.
        origins: origins whose pages may call it, "*" for all.
        batch_wait: seconds to wait for more requests when many arrive, before a batch is given away.
        max_queue: most requests that wait.
        max_body: most bytes of a request.
        patience: seconds that a request waits for the first replica.
    """

    name: str
    targets: tuple[Target, ...] = ()
    keys: tuple[Key, ...] = ()
    public: bool = False
    origins: tuple[str, ...] = ()
    batch_wait: float = 0.002
    max_queue: int = 1000
    max_body: int = 16 << 20
    patience: float = 10.0


class EdgeFile(msgspec.Struct, frozen=True, kw_only=True):
    """Everything.

    Attributes:
        deployments: all that are not deleted.
        inner_sha256: of the key by which the server itself calls: it may call every deployment, and read the counters.
        number: grows with every replacement of the file.
    """

    deployments: tuple[EdgeDeployment, ...] = ()
    inner_sha256: str = ""
    number: int = 0


class Counters(msgspec.Struct, frozen=True, kw_only=True):
    """What the edge has counted of a target since it began, and its state now.

    Attributes:
        requests: answers by status of HTTP.
        rows, batches: that the replicas have computed.
        busy: seconds that replicas had a batch, summed.
        latency: answers by upper bound of the time from request to answer, cumulative, as Prometheus counts them.
        latency_sum: seconds, summed.
        queued: requests that wait now.
        waited: seconds that the oldest of them has waited.
        replicas: connected now. `working` are those that compute.
    """

    requests: dict[int, int] = {}
    rows: int = 0
    batches: int = 0
    busy: float = 0.0
    latency: dict[float, int] = {}
    latency_sum: float = 0.0
    queued: int = 0
    waited: float = 0.0
    replicas: int = 0
    working: int = 0


class EdgeState(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of `GET /edt/state`, with the inner key.

    Attributes:
        began: when this process of the edge began, seconds since the epoch.
        number: of the newest `EdgeFile` that it follows.
        targets: counters by job. A target that has left the file stays until its last request is answered.
    """

    began: float
    targets: dict[str, Counters]
    number: int = 0


class EdgeAddress(msgspec.Struct, frozen=True, kw_only=True):
    """Where the edge listens, in `edge-address.json` next to `edge.json` (0600).

    Attributes:
        url: without a slash at its end.
        port: of that address, which the next edge takes too where it is free.
        identity: the process that keeps the edge running.
    """

    url: str
    port: int
    identity: ProcessIdentity
