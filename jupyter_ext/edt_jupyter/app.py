"""The extension as Jupyter sees it: settings with help, start and stop, and `jupyter edt` to run it alone.

Owns the life of the service and none of its work. The service runs while this server holds the lease of the store
(`LeaderElection`). While another server holds it, that server is asked. In client mode a remote server always is
(`Remote`). The Jupyter Server must start even when the service cannot (a damaged store): then every route answers why.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
from contextlib import AsyncExitStack
from dataclasses import fields
from datetime import UTC, datetime
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from jupyter_core.paths import jupyter_data_dir, jupyter_runtime_dir
from jupyter_core.utils import ensure_async
from jupyter_server.extension.application import ExtensionApp
from traitlets import Bool, Callable, Dict, Enum, Float, Int, List, Set, Unicode, default

from edt_jupyter import front_ends
from edt_jupyter.api import API, handlers, kernels_of
from edt_jupyter.group_setting import GroupSettings
from edt_jupyter.http import state_events
from edt_jupyter.http.forwarding import Peer, introduction
from edt_jupyter.http.identity import hub_service, identifies, several_people
from edt_jupyter.http.job_server import REFUSED, JobServer
from edt_jupyter.http.remote import Remote
from edt_sdk.schemas.errors import EdtError, ServerUnreachable
from edt_sdk.schemas.job import DEFAULT_INSTANCE_GROUP, JobState
from edt_sdk.schemas.plan import DEFAULT_RESOURCE_GROUP
from edt_sdk.schemas.wire.control import HOST_SILENT, SAME
from edt_server.fleet import interface_of
from edt_server.leadership import MANY_HOSTS, ONE_HOST, LeaderElection, shared_secret
from edt_server.service import Service, configured_plan, open_service, owner_name
from edt_server.settings import Settings
from edt_server.store import JobRow, Store, StoreUnavailable
from edt_server.system.isolation import KINDS, OPEN, isolation
from edt_server.system.processes import identify
from edt_server.system.runtime import leave_runtime_dir, runtime_dir

_ALIVE = 10.0
_STORE_AWAY = 1.0
_SECRET_FILE = "forwarding.key"


class EdtApp(ExtensionApp):
    """Elastic distributed training: the scheduler and its REST interface."""

    name = "edt"
    description = """Elastic distributed training in a Jupyter Server.

    `jupyter edt` is a whole Jupyter Server for one person. `jupyter edt serve` serves jobs alone, for several people or
    as a service of a JupyterHub: no kernels, no terminals, no files.
    """
    extension_url = f"{API}/"
    # `jupyter edt` is a server for jobs. Lab and its companions have their own commands.
    load_other_extensions = False
    serverapp_config = {"open_browser": False}

    data_dir = Unicode(help="Folder of jobs, results and the job store. Default: `edt` in Jupyter's data folder.").tag(
        config=True
    )
    remote_url = Unicode(
        "",
        help="Address of another server that runs the jobs, such as https://hub/services/edt/. This server runs none.",
    ).tag(config=True)
    remote_token = Unicode(
        "",
        help="Token that identifies this server's user to the server at `remote_url`. Empty for JupyterHub's token.",
    ).tag(config=True)
    db_url = Unicode(
        "",
        help="SQLAlchemy URL of the job store, such as postgresql+psycopg://host/edt. Empty for SQLite in `data_dir`.",
    ).tag(config=True)
    local_slots = Int(
        0,
        min=-1,
        help="Slots this machine offers: 0 for one per GPU, or one per usable core where there is no GPU. -1 for none, "
        "where other machines join; see `fleet_listen`.",
    ).tag(config=True)
    local_hosts = Dict(
        value_trait=Int(min=1),
        key_trait=Unicode(),
        help="Named hosts that this machine is divided into, with the slots of each, such as {'a': 4, 'b': 4}. A host "
        "can be lost with everything on it, and jobs go on on the others. Empty for one host; see `local_slots`.",
    ).tag(config=True)
    fleet_listen = Unicode(
        "",
        help="Address and port at which other machines join as hosts, such as '0.0.0.0:8790', see `edt host token`. "
        "Empty for none.",
    ).tag(config=True)
    fleet_addresses = List(
        Unicode(),
        help="Addresses with port at which such machines reach this one, such as ['train.example.org:8790']. Default: "
        "that of `fleet_listen`, or this machine's name and addresses.",
    ).tag(config=True)
    host_silent = Float(
        HOST_SILENT,
        min=1.0,
        help="Seconds without a word after which a machine gets no new jobs, and others go on without it. After 2.5 "
        "times as many it is lost. 2 is enough in a local network that loses no packets.",
    ).tag(config=True)
    host_dataset_bytes = Int(
        2 << 30,
        min=0,
        help="Most bytes of the server's copy of a data set that are sent to a host for a job. A job with a larger one "
        "is refused there.",
    ).tag(config=True)
    providers = Dict(
        value_trait=Dict(),
        key_trait=Unicode(),
        help="Engines that machines are asked of when jobs need more slots, such as {'ray': {'address': 'auto', "
        "'max_hosts': 8}}. See docs/providers.md.",
    ).tag(config=True)
    threads_per_slot = Int(
        0,
        min=0,
        help="Default threads of a worker: 0 for usable cores ÷ slots. They affect the bits of a job's result.",
    ).tag(config=True)
    python = Unicode(
        "",
        help="Interpreter of jobs when their own does not exist here. Empty for the server's. Needs jupyter-edt.",
    ).tag(config=True)
    interpreters = List(
        Unicode(),
        help="Interpreters that users of a shared server may choose, besides its own and those of its kernels: paths, "
        "or folders of environments such as ['/opt/envs']. Users who cannot write there cannot add one. On one "
        "person's own server any interpreter may be chosen.",
    ).tag(config=True)
    max_upload_bytes = Int(512 << 20, min=1, help="Maximum bytes of a submitted package as sent.").tag(config=True)
    max_package_files = Int(20_000, min=1, help="Maximum files and folders of a submitted package.").tag(config=True)
    max_package_bytes = Int(4 << 30, min=1, help="Maximum bytes of a submitted package, unpacked.").tag(config=True)
    worker_interface = Unicode(
        "",
        help="Address of this machine that workers and the control channel listen on. Default: loopback, or that of "
        "`fleet_listen`.",
    ).tag(config=True)
    instance_groups = GroupSettings(
        DEFAULT_INSTANCE_GROUP,
        help="Queues of a new store: names, or settings as `edt plan` shows them. Later: `edt group`.",
    ).tag(config=True)
    resource_groups = GroupSettings(
        DEFAULT_RESOURCE_GROUP,
        help="Groups of hosts of a new store, with the slots a host offers. Later: `edt resource`.",
    ).tag(config=True)
    admins = Set(
        Unicode(),
        help="Users who may change the plan, where the identity provider distinguishes users. Default: the owner of a "
        "JupyterHub user's own server, and no user elsewhere.",
    ).tag(config=True)
    data_fs = Unicode(
        "", help="Folder of shared data sets: DLI_DATA_FS of every job, and DATA_DIR where the job sets none."
    ).tag(config=True)
    checkpoint_interval = Float(
        30.0,
        min=0.1,
        help="Seconds between rolling checkpoints: the work that is recomputed when all workers of a training die.",
    ).tag(config=True)
    hang_timeout = Float(
        60.0,
        min=1.0,
        help="Minimum seconds without a heartbeat or progress before a worker is replaced. The third time in a row "
        "at the same update the job fails, and its message shows where it hung.",
    ).tag(config=True)
    warm_workers = Int(
        1,
        min=0,
        help="Supervisors kept ready for jobs to come, so that workers start at once. With 0 the first job waits for "
        "the import of torch, which later ones share.",
    ).tag(config=True)
    standby_workers = Int(
        2,
        min=0,
        help="Workers that a training with fewer CPU slots than it asks for keeps ready for its next ones, while a "
        "fifth of the memory stays free. 0 for none.",
    ).tag(config=True)
    serve_host = Unicode(
        "127.0.0.1",
        help="Address of this machine at which deployments are called with a key, past Jupyter Server. A proxy in "
        "front brings TLS and limits of rate.",
    ).tag(config=True)
    serve_port = Int(
        0,
        min=0,
        max=65535,
        help="Port of `serve_host`. 0 for a free one, which later starts use again.",
    ).tag(config=True)
    retention_days = Float(
        0.0,
        min=0.0,
        help="Days after its end until a job is removed with its results. 0 for never.",
    ).tag(config=True)
    retention_bytes = Int(
        0,
        min=0,
        help="Maximum bytes of ended jobs on disk: the oldest are removed above it. 0 for no limit.",
    ).tag(config=True)
    pass_environment = List(
        Unicode(),
        help="Names of environment variables of this server that its jobs see too, such as ['WANDB_*']. Without them "
        "jobs see PATH, HOME, locale, proxies and what Python, CUDA and the numeric libraries read.",
    ).tag(config=True)
    isolation = Enum(
        ["", *KINDS],
        "",
        help="How jobs are kept apart: 'same' runs them as this server's account, 'sandbox' shows each its own files "
        "only (bubblewrap), 'account' runs them there as the system accounts of their owners (the server is root). "
        "Default: 'same' for one person. Several people have to choose; see docs/security.md.",
    ).tag(config=True)
    account_of = Callable(
        None,
        allow_none=True,
        help="Which system account a user's jobs run as with isolation 'account': a function of the user's name that "
        "returns the name of an account, or None for none. A uid instead of a name may also be below 1000. Default: "
        "the account with the user's name.",
    ).tag(config=True)
    sandbox_paths = List(
        Unicode(),
        help="Files and folders that jobs in a sandbox see too, read-only, such as ['/srv/models'].",
    ).tag(config=True)
    sandbox_network = Bool(
        True,
        help="Jobs in a sandbox have the network of this machine. Without it they reach nothing but each other.",
    ).tag(config=True)
    keep_server_alive = Bool(
        True,
        help="Jobs that have not ended count as activity, so that neither the server nor JupyterHub culls them idle.",
    ).tag(config=True)

    _service: Service | None = None
    _member: LeaderElection | None = None
    _remote: Remote | None = None
    _store: Store | None = None
    _secret = ""
    _trouble: EdtError | None = None
    _tasks: set[asyncio.Task[None]]

    @default("data_dir")
    def _default_data_dir(self) -> str:
        return str(Path(jupyter_data_dir()) / "edt")

    @default("admins")
    def _default_admins(self) -> set[str]:
        # The Hub names the account of a service there too, and a service has many users.
        owner = "" if "JUPYTERHUB_SERVICE_NAME" in os.environ else os.environ.get("JUPYTERHUB_USER", "")
        return {owner} if owner else set()

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._tasks = set()
        self._serving = AsyncExitStack()

    # --- what handlers use --------------------------------------------------------------------------------------------

    @property
    def service(self) -> Service:
        """Return the running service. Raises: the error that explains why there is none."""
        # The lease is checked when a request arrives (`elsewhere`) and again by each write. A request in progress is
        # not refused because a renewal is late.
        if self._service is None or self._member is None:
            raise self._trouble or ServerUnreachable("jupyter-edt is starting.", hint="Try again in a moment.")
        return self._service

    @property
    def secret(self) -> str:
        """Return the secret that servers over one data folder share, "" before it is known."""
        return self._secret

    @property
    def leads(self) -> bool:
        """Return True while this server runs the jobs."""
        return self._member is not None and self._member.leads

    async def still_leads(self) -> bool:
        """Return whether this server still leads, asking the store: the process may have been stopped for a while."""
        try:
            return self._member is not None and await self._member.leader() is None
        except EdtError:
            return False

    async def elsewhere(self, user: str) -> Peer | None:
        """Return the server that answers `user`, None for this one, or where `service` raises the reason."""
        if self._remote is not None:
            return self._remote.peer()
        member = self._member
        leader = None if member is None else await member.leader()
        if member is None or leader is None:
            return None
        return Peer(leader.url, introduction(self._secret, user), partial(member.succeeded, leader))

    # --- Jupyter's hooks ----------------------------------------------------------------------------------------------

    def initialize_handlers(self) -> None:
        """Add the routes, WMLA's only in a build that has them. A server that must not be a Hub's service ends here."""
        if hub_service() and not isinstance(self.serverapp, JobServer):
            self.log.critical(REFUSED)
            self.exit(1)
        self.handlers.extend(handlers())
        # WMLA's sessions are valid only on the server that gave them, so its clients log on where the jobs run.
        if not self.remote_url and find_spec("edt_jupyter.wmla") is not None:
            from edt_jupyter import wmla

            self.handlers.extend(wmla.handlers())

    async def _start_jupyter_server_extension(self, serverapp: Any) -> None:
        # What the service logs goes to the Jupyter Server's log, with its level and handlers.
        logging.getLogger("edt_server").parent = self.log if isinstance(self.log, logging.Logger) else None
        state_events.register(serverapp.event_logger)
        for sentence in front_ends.too_old(front_ends.installed()):
            self.log.warning("edt | %s", sentence)
        await self._try_to_start()
        if isinstance(self._trouble, StoreUnavailable):
            self._spawn(self._start_later(), "edt start")
        self._spawn(self._show_activity(), "edt activity")

    async def stop_extension(self) -> None:
        """Stop the service. Jobs continue, and the log says so."""
        working = 0 if self._service is None else self._service.working
        if working:
            go_on = "1 training goes on" if working == 1 else f"{working} trainings go on"
            self.log.info("edt | %s without this server. Start it again to see or stop them.", go_on)
        tasks, self._tasks = self._tasks, set()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._trouble is None:
            self._trouble = ServerUnreachable("The server is stopping.", hint="Its jobs go on; try again later.")
        member, self._member = self._member, None
        if member is not None:
            await member.stop()
        if self._store is not None:
            await asyncio.to_thread(self._store.close)

    def current_activity(self) -> bool:
        """Return True while jobs run: the server must not be culled as idle."""
        return self.keep_server_alive and self._service is not None and self._service.busy

    # --- starting -----------------------------------------------------------------------------------------------------

    async def _try_to_start(self) -> None:
        try:
            if self.remote_url:
                self._begin_asking(Remote(self.remote_url, self.remote_token))
                return
            settings = await asyncio.to_thread(self._settings)
            self._secret = await asyncio.to_thread(shared_secret, settings.control_dir / _SECRET_FILE)
            open_store = partial(Store.open, settings.store_url, backups=settings.data_dir)
            self._store = await asyncio.to_thread(open_store)
            # SQLite means one host, where a dead or stopped leader is seen at once and the lease may be long
            # (docs/decisions/034).
            pace = ONE_HOST if settings.store_url.startswith("sqlite") else MANY_HOSTS
            url = "" if self.serverapp is None else self.serverapp.connection_url
            self._member = LeaderElection(self._store, identify(os.getpid()), url, pace, self._lead, self._lead_no_more)
            await self._member.start()
        except (EdtError, OSError) as error:
            self._member = None
            trouble = error if isinstance(error, EdtError) else EdtError(f"jupyter-edt could not start: {error}.")
            if str(trouble) != str(self._trouble):
                self.log.error("edt | %s", trouble)
            self._trouble = trouble
            store, self._store = self._store, None
            if store is not None:
                await asyncio.to_thread(store.close)
        else:
            self._trouble = None

    def _begin_asking(self, remote: Remote) -> None:
        self._remote = remote
        self.log.info("edt | %s is answered by %s", f"{API}/", remote.url)
        if self.serverapp is not None and self.serverapp.event_logger is not None:
            tell = partial(state_events.tell, self.serverapp.event_logger)
            self._spawn(remote.hear(tell, logging.getLogger("edt_server")), "edt events")

    async def _start_later(self) -> None:
        """Start once the store, which is unavailable now, can be used."""
        while isinstance(self._trouble, StoreUnavailable):
            await asyncio.sleep(_STORE_AWAY)
            await self._try_to_start()

    async def _lead(self, store: Store) -> None:
        settings = await asyncio.to_thread(self._settings)
        server = self.serverapp
        for warning in settings.warnings:
            self.log.warning("edt | %s", warning)
        listed = partial(self._listed_interpreters, server.kernel_spec_manager) if server and self._shared else None
        opening = open_service(settings, on_state=self._on_state, store=store, listed=listed)
        self._service = await self._serving.enter_async_context(opening)
        self.log.info("edt | %s, data in %s", f"{API}/ is ready", settings.data_dir)

    async def _lead_no_more(self) -> None:
        service, self._service = self._service, None
        if service is not None:
            await self._serving.aclose()
            await asyncio.to_thread(leave_runtime_dir, service.settings.runtime_dir)

    def _settings(self) -> Settings:
        data_dir = Path(self.data_dir).expanduser().absolute()
        given = {field.name: getattr(self, field.name) for field in fields(Settings) if self.has_trait(field.name)}
        given["data_dir"], given["runtime_dir"] = data_dir, runtime_dir(Path(jupyter_runtime_dir()), data_dir)
        # Jupyter's own provider knows one user only, who is the account and the admin.
        several = self.serverapp is not None and identifies(self.serverapp.identity_provider)
        given["admins"] = frozenset(map(owner_name, self.admins)) if several else None
        given["worker_interface"] = self.worker_interface or interface_of(self.fleet_listen)
        kept_apart = given["isolation"] = isolation(
            self.isolation,
            several=self._shared,
            hosts=bool(self.local_hosts or self.fleet_listen),
            readable=[os.path.abspath(os.path.expanduser(path)) for path in self.sandbox_paths],
            network=self.sandbox_network,
        )
        given["warnings"] = (OPEN,) if self._shared and kept_apart.kind == SAME else ()
        given["plan"] = configured_plan(self.instance_groups, self.resource_groups)
        return Settings(**given)

    @property
    def _shared(self) -> bool:
        return self.serverapp is not None and several_people(self.serverapp.identity_provider)

    async def _listed_interpreters(self, kernels: Any) -> list[str]:
        # Asked for each submission: a kernel may have been installed since.
        specs = await ensure_async(kernels.get_all_specs())
        return [*kernels_of(specs), *self.interpreters]

    # --- events -------------------------------------------------------------------------------------------------------

    def _on_state(self, row: JobRow, before: JobState | None) -> None:
        if self.serverapp is not None and self.serverapp.event_logger is not None:
            state_events.emit(self.serverapp.event_logger, row, before)
        self._touch()

    async def _show_activity(self) -> None:
        while True:
            if self.current_activity():
                self._touch()
            await asyncio.sleep(_ALIVE)

    def _touch(self) -> None:
        # JupyterHub reads every setting with this name. The time needs a time zone.
        if self.keep_server_alive and self.serverapp is not None:
            self.serverapp.web_app.settings["edt_last_activity"] = datetime.now(UTC)

    def _spawn(self, work: Any, name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


class EdtService(EdtApp):
    """Elastic distributed training for several people: the scheduler and its REST interface, and nothing else."""

    description = "Serve jobs alone, to several people: no kernels, no terminals, no files of this server."
    serverapp_class = JobServer


def main() -> None:
    """Run `jupyter edt` or `jupyter edt serve`."""
    words = sys.argv[1:]
    with contextlib.suppress(KeyboardInterrupt):
        # Not a subcommand of traitlets: the extension reads its options from the command lines of other programs too.
        if words[:1] == ["serve"]:
            EdtService.launch_instance(words[1:])  # type: ignore[no-untyped-call]
        else:
            EdtApp.launch_instance(words)  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    main()
