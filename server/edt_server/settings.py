"""The administrator's settings of the service, as one frozen object that `edt_jupyter` fills from its traitlets."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from edt_sdk.schemas.plan import Plan
from edt_sdk.schemas.wire.control import ACCOUNT, HOST_SILENT, Isolation
from edt_server.store import sqlite_url
from edt_server.system.detached import inherited
from edt_server.system.isolation import AccountOf, account_of


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of one service.

    Attributes:
        data_dir: jobs, results and, by default, the store. Made when missing, 0700.
        runtime_dir: sockets and locks. Short (see `runtime.py`), local to this host, 0700.
        db_url: SQLAlchemy URL of the job store, "" for SQLite in `data_dir`.
        local_slots: slots of this host, 0 for its GPUs, or its CPU when it has none. -1 for none at all, with hosts.
        local_hosts: named hosts that this machine is divided into, with their slots. Empty for the machine itself.
        fleet_listen: address and port at which machines join as hosts, such as "0.0.0.0:8790". "" for none.
        fleet_addresses: addresses with port that such machines dial, "" for those of `fleet_listen`.
        host_silent: seconds without a word after which a host is doubtful. After 2.5 times as many it is lost.
        host_dataset_bytes: most bytes of a data set that are sent to hosts with files of their own.
        providers: engines that machines are asked of, with their settings, see `service.elastic_hosts`.
        threads_per_slot: threads a worker computes with, 0 for cores ÷ slots.
        admins: the users who may change the plan, as owners of jobs are named. None for every user.
        pass_environment: names of the server's variables that jobs see too, with wildcards.
        python: interpreter of jobs that name none that exists here, "" for the server's own.
        max_upload_bytes: most bytes of an upload, as sent.
        max_package_files: most members of a package.
        max_package_bytes: most bytes of a package, unpacked.
        worker_interface: address the control channel listens on. Workers of one host use loopback.
        plan: how the slots are shared in a new store. Later its verbs change it.
        data_fs: DLI_DATA_FS of jobs, "" when there is none.
        checkpoint_interval: seconds between rolling checkpoints of a training.
        hang_timeout: timeout in seconds for a busy worker without any sign of life, at least. It is replaced then.
        warm_workers: spare supervisors kept ready for future jobs. With 0 nothing is started before the first job,
            which waits for the import of torch. Later jobs share it while the server runs.
        standby_workers: workers that a job with fewer slots than it asks for keeps ready for the next, 0 for none.
        retention_days: days after its end that a job is removed with its results, 0 for never.
        retention_bytes: most bytes of ended jobs. The oldest are removed until it holds. 0 for no limit.
        isolation: what the processes of jobs can reach.
        serve_host: address that deployments are called at.
        serve_port: its port, 0 for a free one, which is kept.
        account_of: which system account a user's jobs run as, see `system.isolation.account_of`.
        warnings: sentences on these settings that every admin should read.
    """

    data_dir: Path
    runtime_dir: Path
    db_url: str = ""
    local_slots: int = 0
    local_hosts: Mapping[str, int] = field(default_factory=dict)
    fleet_listen: str = ""
    fleet_addresses: Sequence[str] = ()
    host_silent: float = HOST_SILENT
    host_dataset_bytes: int = 2 << 30
    providers: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    threads_per_slot: int = 0
    admins: Set[str] | None = None
    pass_environment: Sequence[str] = ()
    python: str = ""
    max_upload_bytes: int = 512 << 20
    max_package_files: int = 20_000
    max_package_bytes: int = 4 << 30
    worker_interface: str = "127.0.0.1"
    plan: Plan = field(default_factory=Plan)
    data_fs: str = ""
    checkpoint_interval: float = 30.0
    hang_timeout: float = 60.0
    warm_workers: int = 1
    standby_workers: int = 2
    retention_days: float = 0.0
    retention_bytes: int = 0
    isolation: Isolation = field(default_factory=Isolation)
    account_of: AccountOf | None = None
    serve_host: str = "127.0.0.1"
    serve_port: int = 0
    warnings: Sequence[str] = ()

    def isolation_of(self, owner: str) -> Isolation:
        """Return the isolation of a user's jobs. Unprocessable when there is no account for them. Blocks."""
        if self.isolation.kind != ACCOUNT:
            return self.isolation
        return msgspec.structs.replace(self.isolation, account=account_of(owner, self.account_of))

    @property
    def store_url(self) -> str:
        """The store's URL, whatever was configured."""
        return self.db_url or sqlite_url(self.data_dir / "edt.sqlite")

    @property
    def interpreter(self) -> str:
        """The interpreter of jobs that name none."""
        return self.python or sys.executable

    @property
    def job_environ(self) -> dict[str, str]:
        """The variables of this process that jobs see."""
        return inherited(os.environ, self.pass_environment)

    @property
    def control_dir(self) -> Path:
        """The server's key and endpoint, read by supervisors at every reconnect."""
        return self.data_dir / "control"
