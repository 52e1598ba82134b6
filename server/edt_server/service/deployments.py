"""Deployments: versions of models that answer requests, on replicas that the scheduler gives slots to.

A deployment is an entry of the catalogue. Each of its revisions has a job of the framework `serve`, whose workers are
the replicas. Verbs change records, and `deployment_reconciler.py` does what follows from them.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import secrets
import socket
from importlib.util import find_spec
from typing import TYPE_CHECKING

import msgspec

from edt_sdk.schemas.errors import Conflict, NotFound, ServerUnreachable, Unprocessable
from edt_sdk.schemas.forecast import Forecast
from edt_sdk.schemas.frameworks import Framework
from edt_sdk.schemas.job import JobPatch, JobSpec
from edt_sdk.schemas.registered import PREDICTOR, Registered, Runtime, Serves
from edt_sdk.schemas.serving.deployments import (
    DeploymentKey,
    DeploymentPatch,
    DeploymentState,
    DeploymentView,
    NewDeployment,
    NewKey,
    NewRevision,
    Revision,
)
from edt_sdk.schemas.serving.versions import VersionReference
from edt_server.catalogue.answering import runtime_of
from edt_server.catalogue.records import DEPLOYMENT
from edt_server.catalogue.shelf import Shelf
from edt_server.deployments import (
    INNER_HEADER,
    DeploymentRecord,
    KeyRecord,
    RevisionRecord,
)
from edt_server.ledger import Change
from edt_server.service.deployment_reconciler import DeploymentReconciler, changed, record_of
from edt_server.service.versions import ServableVersion
from edt_server.store import CatalogueRow, StoreError

if TYPE_CHECKING:
    from edt_server.service.service import Service

_MOST_KEYS = 1000


class Deployments:
    """The verbs of a service for deployments.

    Attributes:
        reconciler: does what follows from them.
    """

    def __init__(self, service: Service) -> None:
        self._service = service
        self._shelf = Shelf(service, DEPLOYMENT)
        self.reconciler = DeploymentReconciler(service)
        self._beginning = asyncio.Lock()  # so that two revisions never get one number, nor two deployments one name

    # --- verbs --------------------------------------------------------------------------------------------------------

    async def deploy(self, user: str, new: NewDeployment) -> DeploymentView:
        """Make a deployment and start its first revision.

        Raises Conflict when the name is taken, NotFound for an unknown version, Unprocessable when it cannot be served.
        """
        new.check()
        version = await self._servable(user, new.version, new.instance_group)
        name = new.name or VersionReference.of(version.name).name
        group = self._service.sharing.plan.group(new.instance_group)
        record = DeploymentRecord(instance_group=group.name, settings=new.settings)
        async with self._beginning:
            # Names are part of addresses, so they are unique among all users.
            taken = self.reconciler.rows.get(name)
            if taken is not None:
                whose = "You have" if taken.owner == user else "Another user has"
                raise Conflict(
                    f"{whose} a deployment {name!r} already.",
                    hint=f"Choose another name, or give it this version: edt deployment update {name} {version.name}"
                    if taken.owner == user
                    else "Choose another name.",
                    field="name",
                )
            row = await self._shelf.add(user, name, lambda _: record)
            self.reconciler.rows[name] = row
            try:
                await self._begin(user, row, new.revision, version)
            except BaseException:
                self.reconciler.rows.pop(name, None)
                with contextlib.suppress(StoreError):
                    await self._shelf.remove(row)
                raise
        # So that a request that follows waits for a replica, and is not told that there is no such deployment.
        await self.reconciler.followed()
        return await self.deployment(user, name)

    async def forecast(self, user: str, new: NewDeployment) -> Forecast:
        """Return when such a deployment would answer, and on whose slots. Changes nothing. NotFound for no version."""
        new.check()
        version = await self._servable(user, new.version, new.instance_group, checked=False)
        record = DeploymentRecord(instance_group=new.instance_group, settings=new.settings)
        serves = Serves(deployment=new.name, revision=1, version=version.name, sha256=version.sha256)
        return await self._service.forecast(user, _job_of(version, record, serves)[0])

    async def deployments(self, user: str, space: str | None = None) -> list[DeploymentView]:
        """Return the user's deployments by name, those of a space or all."""
        mine = [row for name, row in sorted(self.reconciler.rows.items()) if row.owner == user]
        return [await self._shown(row) for row in mine if space is None or record_of(row).settings.space == space]

    async def deployment(self, user: str, name: str) -> DeploymentView:
        """Return a deployment as it is now. NotFound when there is none."""
        return await self._shown(self._row(user, name))

    async def change(self, user: str, name: str, patch: DeploymentPatch) -> DeploymentView:
        """Change settings. Its replicas follow."""
        patch.check()
        row = self._row(user, name)
        before = record_of(row).settings
        after = msgspec.structs.replace(before, **patch.changes())
        job = JobPatch(
            max_workers=after.replicas[1] if after.replicas[1] != before.replicas[1] else None,
            priority=after.priority if after.priority != before.priority else None,
        )
        for revision in record_of(row).answering if job.changes() else ():
            with contextlib.suppress(Conflict, NotFound):  # it has ended
                await self._service.change_settings(user, revision.job, job)

        def work(there: DeploymentRecord) -> DeploymentRecord:
            return there.replace(settings=msgspec.structs.replace(there.settings, **patch.changes()))

        await self.reconciler.update(row, work)
        return await self.deployment(user, name)

    async def update(self, user: str, name: str, new: NewRevision) -> DeploymentView:
        """Start another revision, which takes over as soon as it can answer, or answers a part until it is promoted.

        Conflict while another one is about to take over.
        """
        new.check()
        row = self._row(user, name)  # of two mistakes the name is told first
        version = await self._servable(user, new.version, record_of(row).instance_group)
        async with self._beginning:
            row = self._row(user, name)
            record = record_of(row)
            if record.coming:
                raise Conflict(
                    f"Revision {record.coming} of {name} is about to take over.",
                    hint=f"Let it, or stop it first: edt deployment abort {name}",
                )
            if new.canary is not None and not record.active:
                raise Conflict(f"{name} is stopped: no other revision answers the other callers.", field="canary")
            await self._begin(user, row, new, version)
        return await self.deployment(user, name)

    async def promote(self, user: str, name: str) -> DeploymentView:
        """Let the coming revision answer all callers. Conflict when there is none, or it cannot answer yet."""
        row = self._row(user, name)
        coming = self._coming(row)
        if not self.reconciler.counted(coming.job).replicas:
            raise Conflict(f"Revision {coming.number} of {name} has no replica that answers yet.", hint="Wait for it.")
        await self.reconciler.update(row, lambda there: there.promoted(coming.number))
        return await self.deployment(user, name)

    async def abort(self, user: str, name: str) -> DeploymentView:
        """Stop the coming revision. The present one answers all callers. Conflict when there is none."""
        row = self._row(user, name)
        coming = self._coming(row)
        why = f"{user} stopped it before it took over."
        await self.reconciler.update(row, lambda there: there.aborted(coming.number, why))
        return await self.deployment(user, name)

    async def rollback(self, user: str, name: str) -> DeploymentView:
        """Stop the coming revision, or, where there is none, serve again what answered before the present one."""
        row = self._row(user, name)
        record = record_of(row)
        if record.coming:
            return await self.abort(user, name)
        before = record.before
        if before is None:
            raise Conflict(f"{name} has served nothing before {record.last.version if record.last else 'now'}.")
        return await self.update(user, name, before.again)

    async def stop_deployment(self, user: str, name: str) -> DeploymentView:
        """Let it refuse requests from now on and give up its slots."""
        row = self._row(user, name)
        if not record_of(row).active:
            raise Conflict(f"{name} is stopped already.")
        await self.reconciler.update(row, lambda record: record.stopped(f"It answered until it was stopped by {user}."))
        return await self.deployment(user, name)

    async def stop_all(self, user: str) -> None:
        """Stop all deployments of the user."""
        for row in list(self.reconciler.rows.values()):
            if row.owner == user and record_of(row).active:
                with contextlib.suppress(Conflict, NotFound):  # another request has done it
                    await self.stop_deployment(user, row.name)

    async def start(self, user: str, name: str) -> DeploymentView:
        """Let a stopped deployment serve again what it served last. Conflict when it is not stopped."""
        async with self._beginning:
            row = self._row(user, name)
            record = record_of(row)
            last = record.last
            if last is None:
                raise Conflict(f"{name} has served nothing yet.", hint="Let it serve a version first: update().")
            if record.active and not await self._failed(row, record):
                raise Conflict(f"{name} is not stopped.")
            version = await self._servable(user, last.version, record.instance_group)
            if record.active:
                await self.reconciler.update(row, lambda there: there.stopped("It could not be served."))
            await self._begin(user, row, last.again, version, again=last.number)
        await self.reconciler.followed()
        return await self.deployment(user, name)

    async def delete(self, user: str, name: str) -> None:
        """Remove it. Its name answers no more, and its replicas end."""
        row = self._row(user, name)
        await self._shelf.remove(row)
        self.reconciler.rows.pop(name, None)
        self.reconciler.ring()

    async def create_key(self, user: str, name: str, new: NewKey) -> DeploymentKey:
        """Make a key for callers, and return it with the key itself, which is kept nowhere."""
        new.check()
        row = self._row(user, name)
        made = self._service.now()
        identity = secrets.token_hex(4)
        key = f"edtk_{identity}_{secrets.token_urlsafe(32)}"
        record = KeyRecord(
            id=identity,
            name=new.name,
            sha256=hashlib.sha256(key.encode()).hexdigest(),
            created=made,
            expires=None if new.days is None else made + new.days * 86400,
        )

        def added(there: DeploymentRecord) -> DeploymentRecord:
            if len(there.keys) >= _MOST_KEYS:
                raise Conflict(f"{name} has {_MOST_KEYS:,} keys.", hint="Revoke one first.")
            return there.replace(keys=(*there.keys, record))

        await self.reconciler.update(row, added)
        await self.reconciler.followed()
        return msgspec.structs.replace(record.shown, key=key)

    async def revoke_key(self, user: str, name: str, identity: str) -> None:
        """Refuse a key from now on. NotFound when the deployment has none of that id."""
        row = self._row(user, name)
        keys = record_of(row).keys
        if identity not in {each.id for each in keys}:
            known = ", ".join(f"{each.id} ({each.name})" for each in keys)
            raise NotFound(f"{name} has no key {identity!r}.", hint=f"There are {known}." if known else "", field="key")
        await self.reconciler.update(row, lambda there: there.without_key(identity))
        await self.reconciler.followed()

    async def way(self, user: str, name: str) -> tuple[str, dict[str, str]]:
        """Return where the edge takes requests, and the headers with which it asks for no key.

        Conflict when the deployment is stopped, ServerUnreachable while the edge does not run.
        """
        if not record_of(self._row(user, name)).active:
            raise Conflict(f"{name} is stopped.", hint=f"Start it: edt deployment start {name}")
        address = await asyncio.to_thread(lambda: self.reconciler.edge.address)
        if address is None:
            raise ServerUnreachable("Nothing takes requests at this moment.", hint="Try again in a second.")
        key = await asyncio.to_thread(lambda: self.reconciler.edge.inner)
        return address.url, {INNER_HEADER: key, "X-EDT-Caller": user}

    def serving(self, user: str, version: str) -> list[str]:
        """Return the names of the user's deployments that serve this version now."""
        mine = [row for row in self.reconciler.rows.values() if row.owner == user]
        return sorted(row.name for row in mine if any(each.version == version for each in record_of(row).answering))

    # --- revisions ----------------------------------------------------------------------------------------------------

    async def _servable(self, user: str, version: str, instance_group: str, *, checked: bool = True) -> ServableVersion:
        if find_spec("uvicorn") is None or find_spec("starlette") is None:
            raise Unprocessable(
                "This server lacks what answers requests over HTTP.",
                hint="Its administrator installs it: pip install 'jupyter-edt[serve]'",
            )
        settings, plan, own = self._service.settings, self._service.sharing.plan, socket.gethostname()
        if settings.local_hosts:
            raise Unprocessable(
                "Replicas can be reached on the machine as a whole only, and this server divides it into hosts.",
                hint="Deploy on a server without c.EdtApp.local_hosts.",
            )
        pool = plan.group(instance_group).resource_group
        alone = {each.name for each in plan.resource_groups if each.hosts == (own,)}
        if settings.fleet_listen and pool not in alone:
            raise Unprocessable(
                f"This server has several hosts, and replicas can be reached on its own machine {own} only.",
                hint="Deploy in an instance group that has no other one. An admin makes it: "
                f"edt resource create serving --host {own}; edt group create serving --resource-group serving",
                field="instance_group",
            )
        return await self._service.versions.servable(user, VersionReference.of(version), checked=checked)

    async def _begin(
        self, user: str, row: CatalogueRow, new: NewRevision, version: ServableVersion, again: int = 0
    ) -> None:
        """Start a revision: its job and its place in the record are made in one transaction.

        With `again` it is that revision once more.
        """
        record = record_of(row)
        number = again or len(record.revisions) + 1
        names = {file.name for file in await asyncio.to_thread(version.stored.files)}
        runtime = runtime_of(version.spec.main, names, trained=version.stored.kept is not None)
        if runtime is Runtime.SCRIPT and version.spec.framework != Framework.EDT:
            raise Unprocessable(
                f"{version.name} was trained by a script of its own ({version.spec.framework}), so that only the "
                "script knows its model.",
                hint=f"Put a {PREDICTOR} with a class Predictor next to the script, train and register it again.",
                field="version",
            )
        serves = Serves(
            deployment=row.name,
            revision=number,
            version=version.name,
            sha256=version.sha256,
            runtime=runtime,
            calls=version.calls,
            max_batch=new.max_batch,
            exact=new.exact,
            deadline=new.deadline,
            least=record.settings.replicas[0],
        )
        spec, pinned = _job_of(version, record, serves)

        def entered(change: Change, job: str) -> None:
            made = RevisionRecord(
                number=number,
                version=version.name,
                job=job,
                created=change.now,
                by=user,
                max_batch=new.max_batch,
                exact=new.exact,
                deadline=new.deadline,
                canary=new.canary,
            )
            changed(change, row, lambda there: there.restarted(again, job) if again else there.added(made))

        await self._service.submit(
            user,
            spec,
            version.stored.package,
            training=pinned,
            weights=version.stored.kept,
            config=version.stored.config,
            entered=entered,
        )
        await self.reconciler.refresh(row)

    def _coming(self, row: CatalogueRow) -> RevisionRecord:
        record = record_of(row)
        coming = record.revision(record.coming)
        if coming is None:
            hint = f"It serves {record.last.version}." if record.last is not None else ""
            raise Conflict(f"No revision of {row.name} is about to take over.", hint=hint)
        return coming

    # --- rows and views -----------------------------------------------------------------------------------------------

    def _row(self, user: str, name: str) -> CatalogueRow:
        row = self.reconciler.rows.get(name)
        if row is None or row.owner != user:
            mine = sorted(each.name for each in self.reconciler.rows.values() if each.owner == user)
            hint = f"You have {', '.join(mine[:10])}." if mine else "client.deploy() makes the first one."
            raise NotFound(f"There is no deployment {name!r}.", hint=hint, field="name")
        return row

    async def _failed(self, row: CatalogueRow, record: DeploymentRecord) -> bool:
        active = record.revision(record.active)
        job = None if active is None else await self.reconciler.job(row, active)
        return job is not None and job.state.final

    async def _shown(self, row: CatalogueRow) -> DeploymentView:
        record = record_of(row)
        settings, active = record.settings, record.revision(record.active)
        address = await asyncio.to_thread(lambda: self.reconciler.edge.address)
        state, message, slots, wanted = DeploymentState.STOPPED, "", 0, 0
        if active is not None:
            load = self.reconciler.loads.get(active.job)
            wanted = max(1, settings.replicas[0]) if load is None else load.wanted
            state, message, slots = await self._standing(row, active, wanted)
        shares = self.reconciler.shares(record)
        return DeploymentView(
            name=row.name,
            owner=row.owner,
            created=row.created,
            state=state,
            message=message,
            version=record.last.version if record.last is not None else "",
            url="" if address is None else f"{address.url}/predict/{row.name}",
            instance_group=record.instance_group,
            wanted=wanted,
            slots=slots,
            ready=sum(self.reconciler.counted(each.job).replicas for each in record.answering),
            keys=tuple(key.shown for key in record.keys),
            counters={each.number: self.reconciler.counted(each.job) for each in record.answering},
            revisions=tuple(
                Revision(
                    share=shares.get(each.number, 0),
                    **{name: getattr(each, name) for name in _SHOWN_FIELDS},
                )
                for each in reversed(record.revisions)
            ),
            **msgspec.structs.asdict(settings),
        )

    async def _standing(
        self, row: CatalogueRow, active: RevisionRecord, wanted: int
    ) -> tuple[DeploymentState, str, int]:
        """Return the state of a deployment that is not stopped, a sentence on it, and the slots it holds."""
        try:
            view = await self._service.job(row.owner, active.job)
        except NotFound:
            return DeploymentState.FAILED, "Its job was deleted.", 0
        if view.state.final:
            return DeploymentState.FAILED, view.message, 0
        if self.reconciler.counted(active.job).replicas:
            return DeploymentState.READY, "", view.slots
        if wanted == 0:
            return DeploymentState.IDLE, "It holds no slot: no request has come for a while.", view.slots
        if view.reason is not None:
            return DeploymentState.WAITING, view.reason.text, view.slots
        return DeploymentState.STARTING, "Its first replica loads the model.", view.slots


_SHOWN_FIELDS = ("number", "version", "job", "created", "by", "outcome", "max_batch", "exact", "deadline")


def _job_of(version: ServableVersion, record: DeploymentRecord, serves: Serves) -> tuple[JobSpec, Registered]:
    """Return the job of a revision, not checked against the server, and what it serves. Pure."""
    pinned = msgspec.structs.replace(
        version.stored.training or Registered(), weights=bool(version.sha256), validates=None, serves=serves
    )
    spec = msgspec.structs.replace(
        version.spec,
        name=f"{serves.deployment} · {serves.version}",
        framework=Framework.SERVE.value,
        max_workers=record.settings.replicas[1],
        min_workers=1,
        slots_per_unit=1,
        pending_timeout=None,
        priority=record.settings.priority,
        instance_group=record.instance_group,
        warm_start="",
        command=(),
        torchrun=None,
        wmla=None,
        search="",
        notes="",
        tags=(),
        project="",  # it is no run to compare
        experiment="",
        registered=pinned,
    )
    return spec, pinned
