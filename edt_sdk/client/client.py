"""`Client`: a server, seen from a notebook, a script or the command line.

The client is synchronous, and a job is awaitable where an event loop runs. A submission contains the files that are
listed before it is sent, and never the token of the server or the Hub.
"""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict, Unpack, cast

import msgspec

from edt_sdk.client.catalogue import CatalogueClient
from edt_sdk.client.deployments import DeploymentClient
from edt_sdk.client.hosts import HostClient
from edt_sdk.client.job import Job, is_id, weights_named
from edt_sdk.client.plan import PlanClient
from edt_sdk.client.projects import ProjectClient
from edt_sdk.client.search import Search, SearchList, fetch_search, fetch_searches
from edt_sdk.client.timeline import When, read_timeline, timeline_window
from edt_sdk.client.versions import Version, VersionClient
from edt_sdk.display.card import jobs_table, sentence
from edt_sdk.display.cluster_view import Cluster
from edt_sdk.display.picture import Picture, fetch_picture
from edt_sdk.display.readings import Timeline, WhatIfAnswer
from edt_sdk.display.search_view import SearchOutlook
from edt_sdk.formatting.number_words import clock
from edt_sdk.formatting.tables import left_out, note
from edt_sdk.http.connection import Params
from edt_sdk.packing.preflight import PYTHON, check_syntax, check_trains
from edt_sdk.packing.sources import Collected, Source, check_call, collect
from edt_sdk.packing.table import listing
from edt_sdk.packing.upload import QUIET_VARIABLE
from edt_sdk.schemas.errors import InvalidRequest, NotFound
from edt_sdk.schemas.fields import check_names, did_you_mean, names_checked
from edt_sdk.schemas.forecast import Forecast, PackedFile, Preview, more_than_exist
from edt_sdk.schemas.frameworks import SHELL, Framework
from edt_sdk.schemas.job import DEFAULT_PRIORITY, JobSpec, JobState, JobView, convert_change, tags_of
from edt_sdk.schemas.search.space import Parameter, Value
from edt_sdk.schemas.search.spec import SearchSpec, search_of
from edt_sdk.schemas.search.views import SearchView
from edt_sdk.torchrun.command_line.submission import start_of

if TYPE_CHECKING:
    from edt_sdk.monitor import Monitor

# Most jobs that a repr lists: ten thousand lines at the end of a cell cannot be read.
_MOST_LISTED = 100
# Jobs in one request when a job is looked for by its name, which is the most that the server gives. And candidates.
_MOST_SEARCHED, _MOST_CANDIDATES = 10_000, 8
# Names under which tokens of servers travel in the environment of kernels.
_SECRETS = frozenset({"EDT_TOKEN", "JUPYTER_TOKEN", "JPY_API_TOKEN", "JUPYTERHUB_API_TOKEN"})


class JobList(list[Job]):
    """Jobs as they were when they were listed, newest first. `more` is True when the server has older ones."""

    def __init__(self, jobs: Iterable[Job] = (), *, more: bool = False) -> None:
        super().__init__(jobs)
        self.more = more

    def __repr__(self) -> str:
        lines = [sentence(job.view) for job in self[:_MOST_LISTED]]
        return "\n".join(filter(None, [*lines, left_out(len(self), _MOST_LISTED), self._older()])) or "No jobs."

    def _repr_html_(self) -> str:
        """Return the table."""
        return "<br/>".join(filter(None, [jobs_table([job.view for job in self]), note(self._older())]))

    def _older(self) -> str:
        if not (self.more and self):
            return ""
        return (
            f"There are older ones than these {len(self):,}: client.jobs(limit=10_000) lists more at once, "
            f'client.jobs(before="{self[-1].id}") those that come next.'
        )


class Outlook(Forecast, frozen=True, kw_only=True):
    """A `Forecast` with its sentence as its repr. `Forecast` describes its fields."""

    def __repr__(self) -> str:
        return self.text


class PackagePreview(Preview, frozen=True, kw_only=True):
    """A `Preview` with the list of its files and the forecast as its repr. `Preview` describes its fields."""

    def __repr__(self) -> str:
        files = [(file.name, file.size) for file in self.files]
        return f"{listing('Would pack', files, self.main, notes=self.notes)}\n{self.forecast.text}"


class SubmitOptions(TypedDict, total=False):
    """The options of `Client.submit` apart from the source."""

    main: str | None
    tag: str | None
    name: str | None
    max_workers: int
    min_workers: int
    slots_per_unit: int
    pending_timeout: float | None
    priority: int
    instance_group: str
    mode: str
    seed: int
    log: str
    threads_per_slot: int | None
    warm_start: Job | Version | str | None
    framework: str
    command: Sequence[str] | str
    torchrun: Sequence[str] | str
    data_path: str
    dataset: str
    notes: str
    tags: Sequence[str] | str
    project: str
    experiment: str
    args: Sequence[str] | str
    env: Mapping[str, str] | None
    python: str | None


class SearchOptions(SubmitOptions, total=False):
    """The options of `Client.search`. `seed` is that of the search."""

    direction: str
    trials: int
    epochs: int
    min_epochs: int
    eta: float
    algorithm: str
    options: Mapping[str, Value]
    sampler: str
    order: str
    deterministic: bool
    lanes: int
    cost: str
    parallel: int
    job_seed: str
    value: str
    max_time: float | None
    points: Sequence[Mapping[str, Value]]
    resource: str
    fail_fast: bool


_OF_SEARCH = ("source", "metric", "space", *SearchOptions.__annotations__)


@names_checked
class Client(CatalogueClient, VersionClient, ProjectClient, DeploymentClient, PlanClient, HostClient):
    """A connection to a server.

    Args:
        url: its address. By default the server is found by the rules in `edt_sdk/http/discovery.py`.
        token: its token.
        output: where `submit` prints the list of packed files, sys.stdout by default.

    Raises:
        ServerUnreachable: no server found, or it does not answer.
        NotAllowed: it does not accept the token.
    """

    # --- submitting ---------------------------------------------------------------------------------------------------

    def submit(
        self,
        source: Source,
        *,
        main: str | None = None,
        tag: str | None = None,
        name: str | None = None,
        max_workers: int = 1,
        min_workers: int = 1,
        slots_per_unit: int = 1,
        pending_timeout: float | None = None,
        priority: int = DEFAULT_PRIORITY,
        instance_group: str = "",
        mode: str = "exact",
        seed: int = 0,
        log: str = "quiet",
        threads_per_slot: int | None = None,
        warm_start: Job | Version | str | None = None,
        framework: str = Framework.EDT,
        command: Sequence[str] | str = (),
        torchrun: Sequence[str] | str = (),
        data_path: str = "",
        dataset: str = "",
        notes: str = "",
        tags: Sequence[str] | str = (),
        project: str = "",
        experiment: str = "",
        args: Sequence[str] | str = (),
        env: Mapping[str, str] | None = None,
        python: str | None = None,
        progress: bool = True,
    ) -> Job:
        """Pack `source`, send it, and return the job.

        Args:
            source: a folder. Or a `.py` or `.ipynb` file, sent with the modules next to it that it imports. Or code: a
                string with a line break, or a list of notebook cells. Or a function of this notebook, which the job
                calls; what it uses is taken along as with `%%edt_submit`.
            main: main script, relative to the folder. Needed only where the choice is not clear.
            tag: send only the cells of a notebook file with this tag. None for all.
            name: name of the job, taken from the source by default.
            max_workers: most slots it may hold at once. It starts on one.
            min_workers: slots without which it does not run: it waits until it can have as many.
            slots_per_unit: its slots come and go so many at a time. `max_workers` is a multiple, and so is
                `min_workers` unless it is 1 (for one unit).
            pending_timeout: seconds after which it ends with ERROR if it has never got a slot. None for the setting of
                its instance group.
            priority: weight under fair share. Twice the weight gets about twice the slots.
            instance_group: the queue, "" for the server's first.
            mode: "exact" gives equal bits for any number of workers, "fast" the same batches but not the same bits.
            seed: of sample order, dropout and augmentation.
            log: "quiet" prints a line for each epoch, seldom in long trainings. "batches" prints lines for every
                micro-batch, as WMLA does. What the script prints is in the log in any case.
            threads_per_slot: threads of a worker, None for the server's cores ÷ slots.
            warm_start: another job of mine, or its id: the model starts with its final weights, else with those of its
                newest epoch. Or a version, such as "digits@champion". Optimizer and schedule are the script's own.
            framework: what runs the script. "edtPyTorch" is our elastic engine. "PyTorch" runs the script as it is in
                one process with all slots. "distPyTorch" runs the script once for each slot, for torch.distributed.
                "torchrun" runs a PyTorch Elastic script. The middle two get `max_workers` slots at once, and keep that
                number.
            command: run in the folder in place of the script, with a framework other than "edtPyTorch": its words, or a
                string for a shell.
            torchrun: with framework "torchrun" the arguments of `torchrun`, such as "--nnodes=1:4
                --nproc-per-node=2 --max-restarts=3", as text or words, with or without a script. Nodes times processes
                are the slots, and come before `max_workers`, `min_workers` and `slots_per_unit`.
            data_path: the job's DATA_DIR, relative to the server's data folder. "" for that folder itself.
            dataset: a registered data set of mine, used as the job's DATA_DIR. Not with `data_path`.
            notes: text about the job, at most 10,000 characters. It may change later, as `tags` may.
            tags: up to 20 words to find it by, as a sequence or a text with commas.
            project: name of the project it belongs to, see `project()`. It may change later too.
            experiment: name of the experiment in that project, with whose other runs it is compared.
            args: the script's own arguments, as words or as a text such as "--epochs 5", split as a shell splits it.
            env: environment variables of the job. None are taken over from this process.
            python: the Python of the job, a path on the server's machine (`interpreters()` lists them). By default the
                Python of this process where this is the server's machine, else the server's own. Where there is no such
                program the job runs in the server's own, and its story has an event about it.
            progress: print what is packed, unless `EDT_NONINTERACTIVE` is set.

        Raises:
            PackageError: no such source, no such main script, or a file that cannot be packed.
            TooLarge: the package is over the server's limit.
            InvalidRequest, Unprocessable: an argument cannot be used, or `warm_start` has written no weights yet.
            NotFound, NotAllowed: no such `warm_start` job or version, or `dataset`, or the job is another user's.
        """
        given: Mapping[str, Any] = locals()
        spec, collected = self._specified(source, **{name: given[name] for name in SubmitOptions.__annotations__})
        many = more_than_exist(spec.max_workers, self.info.slots) if self.info.slots else ""
        noted = dataclasses.replace(collected, notes=(*collected.notes, many)) if many else collected
        shown = noted if progress and not os.environ.get(QUIET_VARIABLE) else None
        answer = self._post_package("jobs", spec, collected.files, shown)
        return Job(self._connection, msgspec.convert(answer, JobView))

    def preview(self, source: Source, **options: Unpack[SubmitOptions]) -> PackagePreview:
        """Return what `submit` would send, and when the job would start. Nothing is sent or submitted.

        Args:
            source: as for `submit`.
            **options: the other arguments of `submit`, but `progress`.

        Raises:
            EdtError: what `submit` would raise before it sends.
        """
        check_names("preview", options, ("source", *SubmitOptions.__annotations__))
        spec, collected = self._specified(source, **options)
        return PackagePreview(
            name=spec.name,
            main=spec.main,
            files=tuple(PackedFile(name=file.name, size=file.size) for file in collected.listed),
            size=sum(file.size for file in collected.listed),
            notes=collected.notes,
            forecast=self._foretold(spec),
        )

    def forecast(
        self,
        *,
        max_workers: int = 1,
        min_workers: int = 1,
        slots_per_unit: int = 1,
        priority: int = DEFAULT_PRIORITY,
        instance_group: str = "",
        framework: str = Framework.EDT,
        torchrun: Sequence[str] | str = (),
    ) -> Outlook:
        """Return when such a job would start, and on how many slots, or why never. Nothing is submitted.

        The forecast assumes that no other job arrives. Arguments and errors are those of `submit`.
        """
        sizes = {"max_workers": max_workers, "min_workers": min_workers, "slots_per_unit": slots_per_unit}
        start = start_of(framework, torchrun, main="main.py", args=(), **sizes)
        fields = {"priority": priority, "instance_group": instance_group, "framework": str(framework), **start.fields}
        spec = convert_change({"name": "forecast", "main": "main.py", **fields}, JobSpec, InvalidRequest)
        return self._foretold(spec.check())

    def interpreters(self) -> list[dict[str, Any]]:
        """Return the interpreters for jobs: `{"python", "version", "ready", "kernels"}`, the server's default first.

        `ready` is True when it has jupyter-edt. `kernels` has `{"name", "display_name"}` of its kernels.
        """
        return cast("list[dict[str, Any]]", self._connection.json("GET", "interpreters")["interpreters"])

    def _foretold(self, spec: JobSpec) -> Outlook:
        return msgspec.convert(self._connection.json("POST", "forecasts", body=spec), Outlook)

    def _searched(
        self, source: Source, metric: str, space: Mapping[str, Parameter] | str, options: SearchOptions
    ) -> tuple[SearchSpec, Collected]:
        given: Mapping[str, Any] = options
        own = {name: value for name, value in given.items() if name in SearchSpec.__struct_fields__}
        job: Mapping[str, Any] = {name: value for name, value in given.items() if name not in own}
        template, collected = self._specified(source, called=False, **job)
        spec = search_of(template, {**own, "metric": metric, "space": space})
        if callable(source):
            check_call(source, spec.names)
        return spec, dataclasses.replace(collected, notes=(*collected.notes, *spec.notes()))

    def _specified(
        self, source: Source, *, called: bool = True, **options: Unpack[SubmitOptions]
    ) -> tuple[JobSpec, Collected]:
        if called and callable(source):
            check_call(source, ())
        said: dict[str, Any] = {"max_workers": 1, "min_workers": 1, "slots_per_unit": 1, **options}
        python = said.pop("python", None)
        main, name, command = said.pop("main", None), said.pop("name", None), said.pop("command", ())
        framework = str(said.pop("framework", Framework.EDT))
        words = (*SHELL, command) if isinstance(command, str) and command else tuple(command)
        start = start_of(
            framework,
            said.pop("torchrun", ()),
            main=main,
            args=said.pop("args", ()),
            **{size: said.pop(size) for size in ("max_workers", "min_workers", "slots_per_unit")},
        )
        script = not words and not start.named
        collected = collect(source, start.main, script=script, tag=said.pop("tag", None))
        fields = {
            "name": name or collected.name,
            "main": start.named or collected.main,
            "args": start.args,
            **start.fields,
            "env": dict(said.pop("env", None) or {}),
            "warm_start": "" if (weights := said.pop("warm_start", None)) is None else weights_named(weights),
            "tags": tags_of(said.pop("tags", ())),
            # The path has no meaning on another machine. The server then takes its configured interpreter.
            "python": python or (sys.executable if self.server.local else None),
            # With a chosen interpreter the code need not match the version of the present one.
            "python_version": None if python else PYTHON,
            "framework": framework,
            "command": words,
            **said,
        }
        spec = convert_change(fields, JobSpec, InvalidRequest).check()
        self._keep_secrets(spec)
        check_syntax(spec, collected.files, PYTHON if python in (None, sys.executable) else None)
        check_trains(spec, collected.files)
        return spec, collected

    def _keep_secrets(self, spec: JobSpec) -> None:
        for key, value in spec.env.items():
            # By value too: people copy tokens into variables with names of their own.
            if key in _SECRETS or self._connection.holds(value):
                raise InvalidRequest(
                    f"env has {key}, the token of a server; a job must not carry it.",
                    hint="Pass only the variables that the job needs.",
                    field="env",
                )
        for field, words in (("args", spec.args), ("command", spec.command)):
            if any(map(self._connection.holds, words)):
                raise InvalidRequest(f"{field} has the token of the server; a job must not carry it.", field=field)

    # --- searches -----------------------------------------------------------------------------------------------------

    def search(
        self,
        source: Source,
        *,
        metric: str,
        space: Mapping[str, Parameter] | str = "",
        progress: bool = True,
        **options: Unpack[SearchOptions],
    ) -> Search:
        """Pack `source`, send it, start a search for hyper-parameters, and return it. Each trial is a job.

        A function of the notebook is called with the values of a trial by name. A script gets them by
        `edt_sdk.params()`, in `config.json` in its folder, and in its arguments: in `args=["--lr", "{lr}"]` the place
        `{lr}` is the trial's value of lr.

        Args:
            source: as for `submit`.
            metric: the metric that is compared, such as test_accuracy.
            space: the hyper-parameters by name, such as `{"lr": log(1e-4, 1e-1), "width": choice(32, 64)}`, or the
                same as a text: "lr=log(1e-4,1e-1) width=32|64".
            progress: print what is packed, unless `EDT_NONINTERACTIVE` is set.
            **options: the other fields of `SearchSpec`, such as `trials=81, epochs=27, min_epochs=1, parallel=4`, and
                the other arguments of `submit`, which hold for every trial. `seed` is that of the suggested values.

        Raises:
            Conflict: there is a search of that name.
            InvalidRequest, Unprocessable: a setting cannot be used. The error names it.
            EdtError: what `submit` would raise.
        """
        check_names("search", options, (*_OF_SEARCH, "progress"))
        spec, collected = self._searched(source, metric, space, options)
        shown = collected if progress and not os.environ.get(QUIET_VARIABLE) else None
        answer = self._post_package("searches", spec, collected.files, shown)
        return Search(self._connection, msgspec.convert(answer, SearchView))

    def preview_search(
        self,
        source: Source,
        *,
        metric: str,
        space: Mapping[str, Parameter] | str = "",
        **options: Unpack[SearchOptions],
    ) -> SearchOutlook:
        """Return how much such a search would train, and when it would begin. Nothing is sent or started.

        Arguments and errors are those of `search`.
        """
        check_names("preview_search", options, _OF_SEARCH)
        spec, collected = self._searched(source, metric, space, options)
        found = msgspec.convert(self._connection.json("POST", "searches/preview", body=spec), SearchOutlook)
        return msgspec.structs.replace(found, notes=collected.notes)

    def searches(self, *, state: str | None = None, limit: int | None = None) -> SearchList:
        """Return my searches, newest first, with `state` only those in it: at most `limit`, or 100."""
        return fetch_searches(self._connection, state=state, limit=limit)

    def search_named(self, search: str) -> Search:
        """Return my search with this name, or with this id. NotFound when there is none."""
        return fetch_search(self._connection, search)

    # --- jobs and machine ---------------------------------------------------------------------------------------------

    def jobs(
        self,
        *,
        all: bool = False,
        state: JobState | str | None = None,
        tag: str | None = None,
        project: str | None = None,
        experiment: str | None = None,
        search: Search | str | None = None,
        trials: bool = False,
        limit: int | None = None,
        before: Job | str | None = None,
    ) -> JobList:
        """Return my jobs, newest first, without the trials of searches. `more` is True when there are older ones.

        Args:
            all: also the jobs of other users, as far as the server shows them.
            state: only jobs in this state, such as "running", "stopped" or JobState.KILLED, which is the same.
            tag: only my jobs with this tag.
            project: only my jobs in this project.
            experiment: only my jobs in an experiment of this name.
            search: only the trials of this search, which is given by its name or id too.
            trials: also the jobs that are trials of searches.
            limit: at most this many, up to 10,000. None for the newest 1,000.
            before: only jobs older than this one, such as the last job of an earlier list.

        Raises:
            InvalidRequest: no such state, or more than 10,000.
            NotFound: there is no job `before`, or no such search.
        """
        if state is not None:
            state = next((each for each in JobState if state.lower() in (each.word, each.lower())), None) or state
            if state not in list(JobState):
                hint = did_you_mean(state, JobState)
                raise InvalidRequest(
                    f"{state!r} is no state; the states are {', '.join(JobState)}.", hint=hint, field="state"
                )
        if isinstance(search, str):
            search = self.search_named(search)
        params: Params = {"all": 1 if all else None, "state": state, "tag": tag, "limit": limit}
        params |= {"search": search.id if search else None, "trials": 1 if trials else None}
        params |= {"project": project, "experiment": experiment}
        if before is not None:
            view = before.view if isinstance(before, Job) else self.job(before).view
            # A key and not an offset, so that a job submitted in the meantime moves no page. `repr` keeps every bit of
            # the time.
            params["before"] = f"{view.created!r},{view.id}"
        answer = self._connection.json("GET", "jobs", params=params)
        views = msgspec.convert(answer["jobs"], list[JobView])
        return JobList((Job(self._connection, view) for view in views), more="next" in answer)

    def job(self, job: str) -> Job:
        """Return the job with this id, or my only job with this name, or with a name or id that begins so.

        Raises:
            NotFound: there is none.
            InvalidRequest: there are several. The hint names them, and the newest is not preferred.
        """
        # Ids of other users' jobs work too, so the server is asked for the id first.
        if is_id(job):
            try:
                return Job(self._connection, job).refresh()
            except NotFound as missing:
                unknown = missing
        elif job:
            unknown = NotFound(f"There is no job {job!r}.", job=job)
        else:
            raise InvalidRequest(f"{job!r} is not the id of a job.", field="job")
        page = self.jobs(trials=True, limit=_MOST_SEARCHED)
        mine = list(page)
        while page.more:
            page = self.jobs(trials=True, limit=_MOST_SEARCHED, before=page[-1])
            mine += page
        found = [each for each in mine if each.name == job]
        found = found or [each for each in mine if each.id.startswith(job) or each.name.startswith(job)]
        if not found:
            unknown.hint = did_you_mean(job, [name for each in mine for name in (each.name, each.id)]) or unknown.hint
            raise unknown
        if len(found) > 1:
            views = [each.view for each in found[:_MOST_CANDIDATES]]
            shown = [f"{view.id} ({view.state.word}, from {clock(view.created)})" for view in views]
            raise InvalidRequest(
                f"{job!r} could be {len(found)} jobs: {', '.join(shown)}"
                f"{', …' if len(found) > _MOST_CANDIDATES else ''}.",
                hint="Give one of these ids, or more of its letters.",
                field="job",
            )
        return found[0]

    def what_if(
        self,
        job: Job | str,
        *,
        priority: int | None = None,
        max_workers: int | None = None,
        instance_group: str | None = None,
    ) -> WhatIfAnswer:
        """Return the effect of other settings of a job, see `Job.what_if`. Changes nothing."""
        found = job if isinstance(job, Job) else self.job(job)
        return found.what_if(priority=priority, max_workers=max_workers, instance_group=instance_group)

    def stop_all(self) -> list[str]:
        """Stop all my searches and jobs, and return the ids of the jobs."""
        return cast("list[str]", self._connection.json("POST", "jobs/stop")["jobs"])

    def cluster(self) -> Cluster:
        """Return slots, groups, jobs and the reasons of waiting jobs: a dict with a readable repr, see `Cluster`."""
        return Cluster(self._connection.json("GET", "cluster"))

    def timeline(self, *, since: When = None, until: When = None, points: int | None = None) -> Timeline:
        """Return which job held how many slots, when and why.

        Thinned to a picture of 500 rows when there are more.

        Args:
            since: only since then: seconds since the epoch, a datetime, or a text such as "2h" (ago), "14:30" or
                "2026-05-01". A window is exact to the event, up to 10,000 rows.
            until: only until then.
            points: at most this many rows instead.

        Raises:
            InvalidRequest: not a time.
        """
        window = timeline_window(since, until, points)
        return read_timeline(self._connection.json("GET", "timeline", params=window), window)

    def picture(
        self,
        name: str = "timeline",
        *,
        job: Job | str | None = None,
        since: When = None,
        until: When = None,
        theme: str = "auto",
        width: int | None = None,
    ) -> Picture:
        """Return a picture of the machine, drawn by the server. It shows itself in a cell.

        Args:
            name: "timeline" (all slots over time), "slots" (each slot and its job) or "shares" (instance groups).
            job: one of mine to emphasise.
            since: the timeline only since then, as for `timeline`.
            until: the timeline only until then.
            theme: as for `Job.picture`.
            width: pixels, 720 by default.

        Raises:
            InvalidRequest: a value cannot be used.
            NotFound: no such picture, or no such job.
        """
        chosen = None if job is None else self._id(job)
        params: Params = {"job": chosen, "theme": theme, "width": width, **timeline_window(since, until, None)}
        return fetch_picture(self._connection, f"pictures/{name}", params)

    def compare(
        self,
        jobs: Sequence[Job | str],
        *,
        x: str = "samples",
        smooth: float = 0.0,
        log: bool = False,
        theme: str = "auto",
        width: int | None = None,
    ) -> Picture:
        """Draw the losses of up to five of my jobs in one picture. The other arguments are those of `Job.picture`."""
        ids = ",".join(self._id(job) for job in jobs)
        curve: Params = {"x": x, "y": "log" if log else None, "smooth": smooth or None}
        return fetch_picture(
            self._connection, "pictures/compare", {"jobs": ids, **curve, "theme": theme, "width": width}
        )

    def monitor(self) -> Monitor:
        """Watch all of your jobs live: a widget in a notebook, lines in a terminal.

        It ends when no job is active, and no search.
        """
        from edt_sdk.monitor import ClientMonitor

        return ClientMonitor(self._connection).show()

    def _id(self, job: Job | str) -> str:
        return job.id if isinstance(job, Job) else self.job(job).id
