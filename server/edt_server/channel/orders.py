"""Make the orders of a supervisor from the job's row, and check a hello against the row (fencing)."""

from __future__ import annotations

from pathlib import Path

import msgspec

from edt_sdk.schemas.wire.control import PROTOCOL, Launch, SupervisorHello
from edt_sdk.schemas.wire.paths import JobPaths
from edt_server.catalogue.places import copy_of
from edt_server.catalogue.training import console_arguments
from edt_server.files import job_files
from edt_server.settings import Settings
from edt_server.store import JobRow


def orders_of(row: JobRow, settings: Settings, control_file: Path, secret: str, *, host: str, hosts_dir: str) -> Launch:
    """Make the orders of the supervisor of the row's attempt.

    Args:
        row: as it was committed for this attempt.
        settings: of the service.
        control_file: where it finds the server.
        secret: its half of the row's public key.
        host: the named host it runs on, "" for this machine.
        hosts_dir: where the addresses of hosts' agents are, "" without any.
    """
    paths = JobPaths(settings.data_dir, row.owner, row.id)
    warm_start = job_files.warm_start(paths, row.spec)
    return Launch(
        job_id=row.id,
        owner=row.owner,
        attempt=row.attempt,
        spec=msgspec.structs.replace(row.spec, args=console_arguments(row.spec, paths, warm_start)),
        data_dir=str(settings.data_dir),
        runtime_dir=str(settings.runtime_dir / row.id),
        control_file=str(control_file),
        public_key=row.public_key,
        secret_key=secret,
        interpreter=row.interpreter,
        threads_per_slot=row.threads_per_slot,
        data_fs=settings.data_fs,
        checkpoint_interval=settings.checkpoint_interval,
        hang_timeout=settings.hang_timeout,
        warm_start=warm_start,
        dataset_dir=copy_of(settings.data_dir, row.owner, row.spec),
        host=host,
        hosts_dir=hosts_dir,
        standbys=settings.standby_workers,
    )


def refusal(row: JobRow | None, hello: SupervisorHello) -> str | None:
    """Return why the server refuses this supervisor, None when it accepts it."""
    if row is None:
        return "The job was deleted."
    if hello.protocol != PROTOCOL:
        return f"The server speaks protocol {PROTOCOL}, not {hello.protocol}."
    if hello.attempt != row.attempt:
        return f"Attempt {row.attempt} has taken the place of attempt {hello.attempt}."
    if row.supervisor is not None and row.supervisor != hello.identity:
        return "Another process is this job's supervisor."
    return None
