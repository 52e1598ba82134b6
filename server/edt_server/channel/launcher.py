"""Make the orders of supervisors and start them, detached from the server, which only reaps them while it lives.

A supervisor has its own session and no terminal, writes to a log file of its job and holds none of the server's
descriptors. The end, Ctrl-C or restart of the server therefore does not reach it. Messages are in `control.py`.
"""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Mapping
from pathlib import Path

import msgspec

from edt_sdk.schemas.errors import Unprocessable
from edt_sdk.schemas.plan import PORTABLE
from edt_sdk.schemas.wire.control import Launch, ProcessIdentity, encode
from edt_sdk.schemas.wire.paths import JobPaths
from edt_server.catalogue.places import copy_of
from edt_server.catalogue.training import console_arguments
from edt_server.channel.spare_supervisors import Spare
from edt_server.files import job_files
from edt_server.fleet import Fleet
from edt_server.messaging import read_struct
from edt_server.settings import Settings
from edt_server.store import JobRow
from edt_server.supervisor.template import Template, TemplateChild, start_supervisor
from edt_server.system.private_files import make_private_dir, write_private
from edt_server.system.processes import ended, identify

_started: dict[ProcessIdentity, subprocess.Popen[bytes] | TemplateChild] = {}


def orders_of(
    row: JobRow, settings: Settings, control_file: Path, secret: str, host: str, fleet: Fleet | None, *, portable: bool
) -> Launch:
    """Make the orders of the supervisor of an attempt from the row that was committed for it. Blocks.

    Unprocessable when the owner has no account for it.

    `secret` is its half of the row's public key, and `host` the host of the fleet it runs on, "" for this machine.
    A `portable` job starts with the variables for that.
    """
    paths = JobPaths(settings.data_dir, row.owner, row.id)
    before = read_struct(paths.launch_file, Launch)
    env = row.spec.env | PORTABLE if portable else row.spec.env
    warm_start = job_files.warm_start(paths, row.spec)
    return Launch(
        job_id=row.id,
        owner=row.owner,
        attempt=row.attempt,
        spec=msgspec.structs.replace(row.spec, args=console_arguments(row.spec, paths, warm_start), env=env),
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
        hosts_dir="" if fleet is None else str(fleet.addresses_dir),
        standbys=settings.standby_workers,
        isolation=settings.isolation_of(row.owner),
        interface=settings.worker_interface,
        host_silent=settings.host_silent,
        spreads=fleet is not None and fleet.spreads,
        kind="" if fleet is None else (before and before.kind) or fleet.kind_of(host, portable=portable),
        portable=portable if before is None else before.portable,
    )


def launch(
    orders: Launch, environ: Mapping[str, str], spare: Spare | None = None, template: Template | None = None
) -> ProcessIdentity:
    """Write the orders and start the supervisor that follows them.

    It is the spare, if there is one and it still lives. Else it is forked from the template, or started from nothing.

    Unprocessable when the job's interpreter is not there. (A missing edt_sdk shows only when the driver starts, and the
    supervisor reports it as ERROR.)
    """
    try:
        paths = write_orders(orders)
    except OSError:
        if spare is not None:
            spare.end()
        raise
    if spare is not None and spare.hand_over(paths.launch_file):
        process = spare.process
    else:
        arguments = [str(paths.launch_file)]
        process = start_supervisor(arguments, template, folder=paths.job_dir, log=paths.supervisor_log, environ=environ)
    # One that another process reaps may be gone already, and then has no entry in /proc.
    identity = process.identity if isinstance(process, TemplateChild) else identify(process.pid)
    _started[identity] = process
    # A supervisor that ends must be reaped, or it stays a zombie for as long as this server lives.
    threading.Thread(target=_reap, args=(identity,), name=f"reap {process.pid}", daemon=True).start()
    return identity


def write_orders(orders: Launch) -> JobPaths:
    """Write the orders and make their folders. Unprocessable when the interpreter is not there."""
    if not (os.path.isfile(orders.interpreter) and os.access(orders.interpreter, os.X_OK)):
        raise Unprocessable(
            f"The job's Python {orders.interpreter} does not exist or cannot be run.",
            hint="Submit from a kernel whose environment still exists, or give another interpreter.",
            job=orders.job_id,
            field="python",
        )
    paths = JobPaths(Path(orders.data_dir), orders.owner, orders.job_id)
    for folder in (paths.job_dir, Path(orders.runtime_dir)):
        # One that is there an account may use already, and workers of an earlier attempt may still do so.
        if orders.isolation.account is None or not folder.exists():
            make_private_dir(folder)
    write_private(paths.launch_file, encode(orders))
    return paths


async def wait_gone(identity: ProcessIdentity) -> None:
    """Return when the process has ended. A process that was started here has then been reaped."""
    await ended(identity)
    process = _started.get(identity)
    if process is not None:
        process.wait()  # returns at once: the process has ended, and only the reaping thread may be late


def _reap(identity: ProcessIdentity) -> None:
    _started[identity].wait()
    del _started[identity]
