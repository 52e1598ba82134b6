"""The scheduler's requests of dlicmd and of 2.x's notebooks: applications, their logs, instance groups, pods.

dlicmd reads the tree of instance groups as resource plans.
"""

from __future__ import annotations

import asyncio
import time

from edt_jupyter.wmla.base import WmlaHandler
from edt_sdk.schemas.errors import InvalidRequest, NotFound
from edt_sdk.schemas.plan import InstanceGroup
from edt_server.wmla import ids, log_files
from edt_server.wmla.applications import application_detail, engine_application, parallel_job
from edt_server.wmla.execs import Described, ExecQuery, choice, chosen
from edt_server.wmla.plan_tree import node, parents, tree
from edt_server.wmla.states import SCHEDULER


class _ApplicationsHandler(WmlaHandler, path="/scheduler/applications", resource="edt:jobs"):
    async def get(self) -> None:
        """Return the user's applications that the query selects."""
        query, now = self.query, time.time()
        wanted = choice(query, SCHEDULER)
        found = []
        for job in await self._candidates(query, wanted):
            seen, driven = await asyncio.to_thread(_processes, job)
            found.append(application_detail(job, seen, driven, now))
        for name in ("applicationname", "sigId"):
            if value := query.get(name):
                found = [each for each in found if each[name] == value]
        if part := query.get("search"):
            found = [each for each in found if part in each["applicationid"] or part in each["applicationname"]]
        self.reply(chosen(found, wanted))

    async def _candidates(self, query: dict[str, str], wanted: ExecQuery) -> list[Described]:
        identifier = query.get("applicationid") or query.get("driverid")
        if not identifier:
            return await self.all_described(ExecQuery(wanted.states))  # the other filters are by name, in `get`
        try:
            job = await self.described(identifier)
        except NotFound:
            return []
        return [job] if wanted.states is None or job.view.state in wanted.states else []


class _ApplicationStopHandler(WmlaHandler, path="/scheduler/applications/{id}/stop", resource="edt:jobs"):
    async def put(self, job: str) -> None:
        """Stop the application: accepted now, done when its processes have ended."""
        found = await self.described(job)
        await self.service.stop_job(self.user, found.view.id)
        self.reply({"message": f"Application {found.view.id} is being stopped."})


class _ApplicationDriverLogHandler(
    WmlaHandler, path="/scheduler/applications/{id}/driver/logs/{kind}", resource="edt:logs"
):
    async def get(self, job: str, kind: str) -> None:
        """Return the driver's output. The launcher's log is the story of how the job came to run."""
        found, count = await self.described(job), last_lines(self)
        if kind == "launcherlog":
            self.text(await self.launcher_log(found.view.id, count))
        else:
            self.text(await asyncio.to_thread(log_files.driver_log, found.paths, kind, count))


class _ApplicationExecutorLogHandler(
    WmlaHandler, path="/scheduler/applications/{id}/executor/{n}/logs/{kind}", resource="edt:logs"
):
    async def get(self, job: str, number: str, kind: str) -> None:
        """Return the output of a worker. `number` counts from 1."""
        found, count = await self.described(job), last_lines(self)
        worker = await asyncio.to_thread(log_files.nth_executor, found.paths, int(number))
        if worker is None:
            raise NotFound(f"{job} has no executor {number} yet.", hint="They count from 1; ask again when it runs.")
        if kind == "launcherlog":
            self.text(await self.launcher_log(found.view.id, count))
        else:
            self.text(await asyncio.to_thread(log_files.worker_log, found.paths, worker, kind, count))


class _EngineApplicationsHandler(WmlaHandler, path="/scheduler/engine/applications", resource="edt:jobs"):
    async def get(self) -> None:
        """Return the user's applications, as dlicmd lists them."""
        wanted = choice(self.query, SCHEDULER)
        found = [engine_view(self, job) for job in await self.all_described(wanted)]
        self.reply(chosen(found, wanted))


class _EngineApplicationHandler(WmlaHandler, path="/scheduler/engine/applications/{id}", resource="edt:jobs"):
    async def get(self, job: str) -> None:
        """Return a list with the application, empty when it does not exist: dlicmd reports that then."""
        try:
            found = [engine_view(self, await self.described(job))]
        except NotFound:
            found = []
        self.reply(found)


class _InstancesHandler(WmlaHandler, path="/scheduler/instances", resource="edt:plan"):
    async def get(self) -> None:
        """Return the instance groups that jobs may be in."""
        address, user = self.base_address, self.user
        self.reply(
            [
                {
                    "uuid": ids.sig_id(group.name),
                    "name": group.name,
                    "version": "",
                    "masterUrl": address,
                    "executionUser": user,
                    "state": "STARTED",
                    "historyServerUrl": "",
                }
                for group in self.service.sharing.plan.leaves()
            ]
        )


class _KubernetesObjectsHandler(WmlaHandler, path="/scheduler/kubernetesobjects", resource="edt:jobs"):
    async def get(self) -> None:
        """Return an empty list of a type, or the named job as a parallel job. There are no pods here."""
        kind, name = self.get_query_argument("type", ""), self.get_query_argument("name", "")
        if not kind:
            raise InvalidRequest("The query has no type.", hint="Say type=pod or type=paralleljob.", field="type")
        if not name:
            # dlicmd asks for pods with each of its lists. An empty list is enough for it to print the jobs without
            # nodes.
            self.reply({"items": []})
        elif kind != "paralleljob":
            raise NotFound(f"There is no {kind} {name}: there is no Kubernetes here.")
        else:
            self.reply(parallel_job(await self.described(name)))


class _PlanTreeHandler(WmlaHandler, path="/resplans/resplantree", resource="edt:plan"):
    async def get(self) -> None:
        """Return the whole tree."""
        self.reply(tree(self.service.sharing.plan))


class _ResourcePlanHandler(WmlaHandler, path="/resplans/resplan/{name}", resource="edt:plan"):
    async def get(self, name: str) -> None:
        """Return one group with its settings."""
        self.reply(node(self.service.sharing.plan, name))

    async def delete(self, name: str) -> None:
        """Remove the group. Refused while jobs are in it."""
        group = str(node(self.service.sharing.plan, name)["id"])
        await self.service.sharing.remove(self.user, InstanceGroup, group)
        self.reply({"message": f"Resource plan {group} is deleted."})


def engine_view(handler: WmlaHandler, job: Described) -> dict[str, object]:
    """Return the job as the engine's requests show it."""
    sharing = handler.service.sharing
    return engine_application(job, parents(sharing.plan), gpus=sharing.has_gpus)


def last_lines(handler: WmlaHandler) -> int | None:
    """Return `lastlines`, None for all. InvalidRequest for text that is no number."""
    return handler.number("lastlines", 0, high=10**9) if handler.get_query_argument("lastlines", "") else None


def _processes(job: Described) -> tuple[int, bool]:
    return len(log_files.workers_seen(job.paths)), log_files.has_driver(job.paths)
