"""Provide the verbs of the SDK as magics (`%load_ext edt_sdk`).

Arguments are parsed by argparse, wrong use is one clean line (UsageError), help comes from the same parsers. Loading
makes no request. The first magic that needs the server finds it, and a later one finds it again if it was lost.
"""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from IPython.core.error import UsageError
from IPython.core.magic import Magics

from edt_sdk.notebook.completion import completer
from edt_sdk.notebook.magic_options import (
    F,
    as_typed,
    job_argument,
    line_cell_magic,
    line_magic,
    magics,
    option,
    options_of,
    parse,
    parsed,
    words,
)
from edt_sdk.packing.cells import cells_of
from edt_sdk.packing.sources import cells_run, from_notebook
from edt_sdk.schemas.errors import EdtError, NotAllowed, PackageError, ServerUnreachable
from edt_sdk.schemas.fields import given
from edt_sdk.schemas.job import CLONEABLE, SCHEDULED, SUBMITTABLE, JobPatch, JobResume, JobSpec
from edt_sdk.schemas.search.spec import ASKED_OF_SEARCH, ASKED_OF_TRIALS, SearchSpec
from edt_sdk.schemas.validation import NewValidation
from edt_sdk.schemas.wire.parts import PARTS, STREAMS
from edt_sdk.torchrun.command_line.submission import asked

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from edt_sdk.client import Client, HostList, Job, JobList, PackagePreview, Search
    from edt_sdk.display.cluster_view import Cluster
    from edt_sdk.display.log_text import LogText
    from edt_sdk.display.picture import Picture
    from edt_sdk.display.readings import Metrics, Story, Timeline, WhatIfAnswer
    from edt_sdk.display.search_view import SearchOutlook
    from edt_sdk.display.validation import Validation
    from edt_sdk.monitor import Monitor

TAG = "edt"
R = TypeVar("R")
_SCRIPT_ARGS = re.compile(r"(?:^|\s)--(?:\s|$)")

_SOURCE = (
    option("source", nargs="?", help="a folder, a .py or an .ipynb file; not in a cell magic, which sends its cell"),
    option("--notebook", action="store_true", help=f"send this notebook's cells that have the tag {TAG!r}"),
    option("--tag", metavar="TAG", help=f"of a notebook only the cells with this tag (--notebook: {TAG})"),
    option("--main", metavar="FILE", help="main script, relative to the folder"),
)


def source_options(function: F) -> F:
    """Add the options that say what is sent."""
    for add in reversed(_SOURCE):  # IPython reads stacked decorators from the top
        function = add(function)
    return function


class MagicSession:
    """The state that a notebook's magics share: a client, the jobs seen so far, and the last used job."""

    def __init__(self, shell: InteractiveShell) -> None:
        self._shell = shell
        # Ids of jobs that this session has seen, in that order.
        self._seen: dict[str, None] = {}
        self.client: Client | None = None
        self._last: str | None = None

    def run(self, work: Callable[[Client], R]) -> R:
        """Run `work` with the client. A refusal becomes one line, and a lost server is searched for again."""
        try:
            if self.client is None:
                from edt_sdk.client import Client

                self.client = Client()
            return work(self.client)
        except EdtError as refused:
            if isinstance(refused, ServerUnreachable | NotAllowed):
                self.client = None  # it may have another port or token by now
            raise UsageError(str(refused)) from None

    def job(self, name: str | None, *, seen: bool = True) -> Job:
        """Return the job with this id or name, or of the variable with this name. Without a name, the last job used.

        `seen=False` makes no request for an id: the next request finds out whether there is such a job.
        """
        from edt_sdk.client import Job, looks_like_id

        found = self.named(name) if name else self._last
        if found is None:
            raise UsageError("Which job? Give its id; %edt_jobs lists them.")
        if not isinstance(found, str):
            return self.touched(found)
        known = not seen and (found in self._seen or looks_like_id(found))
        return self.touched(self.run(lambda client: Job(client.connection, found) if known else client.job(found)))

    def given(self, magic: Callable[..., Any], name: str | None) -> Job:
        """Return the job with this name, without a default."""
        if not name:
            raise UsageError(f"%{magic.__name__} needs the id of a job.")
        return self.job(name, seen=False)

    def named(self, name: str) -> Job | str:
        """Return the job or id in the variable of this name, else the name itself as an id."""
        from edt_sdk.client import Job

        held = self._shell.user_ns.get(name)
        return held if isinstance(held, Job | str) else name

    def touched(self, job: Job) -> Job:
        """Remember the job as the last one."""
        self._last = job.id
        self.remember([job.id])
        return job

    def remember(self, ids: Iterable[str]) -> None:
        """Keep ids for the completion, which makes no request."""
        self._seen.update(dict.fromkeys(ids))

    # --- for completion, without a request ----------------------------------------------------------------------------

    def jobs(self) -> list[str]:
        """Return the words that may name a job: variables that hold one, then ids seen so far."""
        from edt_sdk.client import Job

        # IPython keeps outputs in variables such as _ and _3, which would clutter the completion.
        variables = [name for name, value in self._shell.user_ns.items() if isinstance(value, Job) and name[0] != "_"]
        return [*variables, *reversed(self._seen)]

    def groups(self) -> list[str]:
        """Return the instance groups that the server has named, none before the first request."""
        return [] if self.client is None else list(self.client.info.instance_groups)


@magics
class EdtMagics(Magics):
    """The magics."""

    def __init__(self, shell: InteractiveShell, session: MagicSession) -> None:
        super().__init__(shell)
        self._session = session

    # --- submitting ---------------------------------------------------------------------------------------------------

    @parsed
    @source_options
    @option("--dry-run", action="store_true", help="submit nothing: list what would be sent, and when it would start")
    @options_of(JobSpec, *SUBMITTABLE)
    @option("--quiet", action="store_true", help="do not list what is packed")
    @line_cell_magic
    def edt_submit(self, line: str, cell: str | None = None) -> Job | PackagePreview:
        """Submit a training, and return its Job.

        What follows a lone -- goes to the script, or to torchrun. Variables of the notebook are put
        in where {name} or $name stands. Over a cell, the functions, classes, imports and plain values that the
        cell uses are taken along from the cells that were run before; what was taken is listed.

        Examples:
          job = %edt_submit digits --max-workers 4 -- --epochs 20
          job = %edt_submit digits --name lr-{rate} -- --lr {rate}
          %edt_submit digits --max-workers 4 --dry-run
          %edt_submit --notebook --max-workers 2
        """
        options, wishes = self._asked(self.edt_submit, line, cell, SUBMITTABLE)
        if options.dry_run:
            return self._session.run(lambda client: client.preview(**asked(options), **wishes))
        progress = not options.quiet
        job = self._session.run(lambda client: client.submit(**asked(options), **wishes, progress=progress))
        return self._session.touched(job)

    @parsed
    @source_options
    @option(
        "--dry-run", action="store_true", help="start nothing: say how much it would train, and when it would begin"
    )
    @option("--metric", metavar="NAME", required=True, help="the metric that is compared, such as test_accuracy")
    @option(
        "--space", metavar="TEXT", default="", help='such as "lr=log(1e-4,1e-1) width=32|64|128 depth=integer(1,6)"'
    )
    @options_of(SearchSpec, *ASKED_OF_SEARCH)
    @options_of(JobSpec, *ASKED_OF_TRIALS)
    @option("--quiet", action="store_true", help="do not list what is packed")
    @as_typed
    @line_cell_magic
    def edt_search(self, line: str, cell: str | None = None) -> Search | SearchOutlook:
        """Search for hyper-parameters, and return the Search. Each trial is a job.

        What follows a lone -- goes to the script, where {lr} is the trial's value of lr; the script finds the values
        in config.json too. For that reason no variables of the notebook are put into this line. What a cell needs is
        taken along as with %%edt_submit.

        Examples:
          search = %edt_search digits --space "lr=log(1e-4,1e-1)" --metric test_accuracy --trials 27 -- --lr {lr}
          %edt_search digits --space "lr=log(1e-4,1e-1)" --metric test_accuracy --trials 27 --dry-run -- --lr {lr}
        """
        options, wishes = self._asked(self.edt_search, line, cell, (*ASKED_OF_SEARCH, *ASKED_OF_TRIALS))
        wishes |= {"metric": options.metric, "space": options.space}
        if options.dry_run:
            return self._session.run(lambda client: client.preview_search(**asked(options), **wishes))
        progress = not options.quiet
        return self._session.run(lambda client: client.search(**asked(options), **wishes, progress=progress))

    @parsed
    @job_argument
    @options_of(JobSpec, *CLONEABLE, unset=True)
    @line_magic
    def edt_clone(self, line: str) -> Job:
        """Submit another job of the package that a job was submitted with, and return it.

        What is not given is as in that job; what follows a lone -- goes to the script, in place of its arguments.

        Example:
          again = %edt_clone first --priority 8000 -- --lr 0.01
        """
        own, rest = _cut(line)
        options = parse(self.edt_clone, own)
        cloned = self._session.job(options.job)
        said = self._given(options, CLONEABLE)
        # A lone -- without words after it means no arguments. Without -- the earlier job's arguments stay.
        if _SCRIPT_ARGS.search(line):
            said["args"] = words(rest)
        return self._session.touched(self._session.run(lambda _: cloned.clone(**said)))

    def _asked(
        self, magic: Callable[..., Any], line: str, cell: str | None, names: Sequence[str]
    ) -> tuple[argparse.Namespace, dict[str, Any]]:
        """Return the options with the source that they name and the script's arguments, and those of `names` given."""
        own, rest = _cut(line)
        options = parse(magic, own)
        self._check(magic.__name__, options, cell)
        try:
            if cell is not None:
                options.source = from_notebook(cell, self.shell, options.main)
            elif options.notebook:
                options.source, options.tag = self._this_notebook(), options.tag or TAG
        except PackageError as refused:
            raise UsageError(str(refused)) from None
        options.args = words(rest)
        return options, {"tag": options.tag, **self._given(options, names)}

    def _given(self, options: argparse.Namespace, names: Sequence[str]) -> dict[str, Any]:
        """Return the options that were given. A variable may stand for the job of a warm start."""
        found = given(options, names)
        return found | ({"warm_start": self._session.named(found["warm_start"])} if "warm_start" in found else {})

    @staticmethod
    def _check(magic: str, options: Any, cell: str | None) -> None:
        if cell is not None and (options.source is not None or options.notebook or options.tag):
            raise UsageError(f"%%{magic} sends the cell; it takes no source.")
        if options.notebook and options.source is not None:
            raise UsageError("--notebook sends this notebook; leave the source out, or name a notebook with --tag.")
        torchrun = options.framework == "torchrun"  # which may name its script behind --
        if cell is None and not options.notebook and options.source is None and not torchrun:
            raise UsageError(f"%{magic} needs a folder, a .py or an .ipynb file, or --notebook.")

    def _this_notebook(self) -> Path:
        # Here and not at the top: it brings the network, which loading the magics does not need.
        from edt_sdk.notebook.notebook_path import notebook_path

        path = notebook_path(self.shell.user_ns)  # type: ignore[union-attr]
        history = cells_run(self.shell)
        running = history[-1].strip() if history else ""
        if ("edt_submit" in running or "edt_search" in running) and running not in [
            cell.strip() for cell in cells_of(path)
        ]:
            saved = time.strftime("%H:%M:%S", time.localtime(path.stat().st_mtime))
            raise PackageError(
                f"{path.name} has changes that are not saved: it was saved at {saved}, without this very cell.",
                hint="Save it (Ctrl+S), then run this again: what is saved is what is sent.",
                field="source",
            )
        return path

    # --- looking ------------------------------------------------------------------------------------------------------

    @parsed
    @option("--all", action="store_true", help="other users' jobs as well")
    @option("--state", help="only jobs in this state")
    @option("--tag", help="only jobs with this tag")
    @option("--project", metavar="NAME", help="only my jobs in this project")
    @option("--experiment", metavar="NAME", help="only my jobs in an experiment of this name")
    @option("--trials", action="store_true", help="also jobs that are trials of searches")
    @option("--limit", type=int, metavar="N", help="the newest N only (default 1000)")
    @option("--before", metavar="JOB", help="only jobs older than this one")
    @line_magic
    def edt_jobs(self, line: str) -> JobList:
        """List jobs, newest first."""
        options = parse(self.edt_jobs, line)
        chosen = given(options, ("all", "state", "tag", "project", "experiment", "trials", "limit", "before"))
        jobs = self._session.run(lambda client: client.jobs(**chosen))
        self._session.remember(job.id for job in jobs)
        return jobs

    @parsed
    @job_argument
    @line_magic
    def edt_get(self, line: str) -> Job:
        """Show a job, as a card that stays current; the job itself is the result."""
        return self._session.job(parse(self.edt_get, line).job)

    @parsed
    @job_argument
    @option("--timeout", type=float, metavar="S", help="give up after so many seconds")
    @line_magic
    def edt_wait(self, line: str) -> Job:
        """Wait until a job has finished; one line if it fails. Interrupting ends the waiting, never the job."""
        options = parse(self.edt_wait, line)
        job = self._session.job(options.job)
        return self._session.run(lambda _: job.wait(options.timeout))

    @parsed
    @line_magic
    def edt_cluster(self, line: str) -> Cluster:
        """Show the slots, who has them, and how the instance groups share them."""
        parse(self.edt_cluster, line)
        return self._session.run(lambda client: client.cluster())

    @parsed
    @option("--watch", action="store_true", help="renew the table every 2 s, until the cell is interrupted")
    @line_magic
    def edt_hosts(self, line: str) -> HostList | None:
        """Show the machines that offer slots: how each stands, and how many of its slots are in use."""
        if not parse(self.edt_hosts, line).watch:
            return self._session.run(lambda client: client.hosts())
        from edt_sdk.notebook.hosts_watch import watch_hosts

        self._session.run(watch_hosts)
        return None

    @parsed
    @job_argument
    @option("--stream", choices=STREAMS, default="all", help="default: all, merged by time")
    @option("--worker", type=int, metavar="K", help="one worker only")
    @option("-n", "--tail", type=int, metavar="N", help="only the last so many lines")
    @option("--since", metavar="T", help="only lines since then, such as 10m (ago) or 14:30")
    @option("-f", "--follow", action="store_true", help="print on until the job has ended")
    @line_magic
    def edt_logs(self, line: str) -> LogText | None:
        """Show what a job wrote."""
        options = parse(self.edt_logs, line)
        job = self._session.job(options.job)
        chosen = {name: getattr(options, name) for name in ("worker", "tail", "since")}
        if not options.follow:
            text: LogText = self._session.run(lambda _: job.logs(options.stream, **chosen))
            return text

        def follow(_: Client) -> None:
            for entry in job.logs(options.stream, **chosen, follow=True):
                print(entry, flush=True)

        self._session.run(follow)
        return None

    @parsed
    @job_argument
    @option("--points", type=int, metavar="N", help="thin the training curve to about so many points")
    @line_magic
    def edt_metrics(self, line: str) -> Metrics:
        """Show the curves of a job: loss and accuracy of training and validation."""
        options = parse(self.edt_metrics, line)
        job = self._session.job(options.job)
        return self._session.run(lambda _: job.metrics(points=options.points))

    @parsed
    @job_argument
    @line_magic
    def edt_workers(self, line: str) -> Any:
        """Show the workers of a job that run now: slot, host, process, rank."""
        job = self._session.job(parse(self.edt_workers, line).job)
        return self._session.run(lambda _: job.workers())

    @parsed
    @job_argument
    @line_magic
    def edt_checkpoints(self, line: str) -> Any:
        """Show the checkpoints that a job has written, by the names that %edt_resume takes."""
        job = self._session.job(parse(self.edt_checkpoints, line).job)
        return self._session.run(lambda _: job.checkpoints())

    @parsed
    @option("jobs", nargs="*", help="two to five jobs: ids, or variables that hold them")
    @option("--x", choices=("samples", "updates", "time"), default="samples", help="what goes to the right")
    @line_magic
    def edt_compare(self, line: str) -> Picture:
        """Show the losses of up to five jobs in one picture.

        Example:
          %edt_compare first second --x time
        """
        options = parse(self.edt_compare, line)
        if not 2 <= len(options.jobs) <= 5:
            raise UsageError("%edt_compare takes two to five jobs: ids, or variables that hold them.")
        jobs = [self._session.job(name) for name in options.jobs]
        return self._session.run(lambda client: client.compare(jobs, x=options.x))

    @parsed
    @job_argument
    @line_magic
    def edt_story(self, line: str) -> Story:
        """Tell what happened to a job."""
        job = self._session.job(parse(self.edt_story, line).job)
        return self._session.run(lambda _: job.story())

    @parsed
    @job_argument
    @option("--all", action="store_true", help="all of mine instead of one")
    @line_magic
    def edt_monitor(self, line: str) -> Monitor:
        """Watch a job live."""
        options = parse(self.edt_monitor, line)
        if options.all:
            return self._session.run(lambda client: client.monitor())
        job = self._session.job(options.job)
        return self._session.run(lambda _: job.monitor())

    @parsed
    @option("job", nargs="?", help="one job and its neighbours (default: everything)")
    @option("--since", metavar="T", help="only since then: 2h (ago), 14:30, 2026-05-01T14:30")
    @option("--until", metavar="T", help="only until then")
    @line_magic
    def edt_timeline(self, line: str) -> Timeline:
        """Show which job held how many slots when, and why."""
        options = parse(self.edt_timeline, line)
        job = self._session.job(options.job) if options.job else None
        return self._session.run(lambda client: (job or client).timeline(since=options.since, until=options.until))

    @parsed
    @job_argument
    @options_of(JobPatch, *SCHEDULED, unset=True)
    @line_magic
    def edt_what_if(self, line: str) -> WhatIfAnswer:
        """Tell who would hold how many slots, and when the job would end; nothing is changed."""
        options = parse(self.edt_what_if, line)
        job = self._session.job(options.job)
        return self._session.run(lambda _: job.what_if(**given(options, SCHEDULED)))

    # --- changing -----------------------------------------------------------------------------------------------------

    @parsed
    @job_argument
    @options_of(JobPatch, *JobPatch.__struct_fields__, unset=True)
    @line_magic
    def edt_update(self, line: str) -> Job:
        """Change the settings of a job. Only priority, workers and group are fixed when it has ended."""
        options = parse(self.edt_update, line)
        job = self._session.job(options.job, seen=False)
        return self._session.run(lambda _: job.update(**given(options, JobPatch.__struct_fields__)))

    @parsed
    @job_argument
    @options_of(NewValidation, *NewValidation.__struct_fields__)
    @option("--wait", action="store_true", help="wait for its end and show what it came to")
    @line_magic
    def edt_validate(self, line: str) -> Job | Validation:
        """Run the model that a job trained once over the test data.

        Metrics are loss, accuracy, top5 (any number), precision, recall, f1, iou and confusion.

        Example:
          %edt_validate --metrics loss,accuracy,confusion --wait
        """
        options = parse(self.edt_validate, line)
        job = self._session.job(options.job)
        chosen = given(options, NewValidation.__struct_fields__)
        started = self._session.touched(self._session.run(lambda _: job.validate(**chosen)))
        if not options.wait:
            return started
        return self._session.run(lambda _: started.wait().validation())

    @parsed
    @job_argument
    @line_magic
    def edt_validation(self, line: str) -> Validation:
        """Show what a validation came to."""
        job = self._session.job(parse(self.edt_validation, line).job)
        return self._session.run(lambda _: job.validation())

    @parsed
    @job_argument
    @line_magic
    def edt_suspend(self, line: str) -> Job:
        """Take all slots from a job until it is resumed. The job is named, never guessed."""
        # No default job: the last job used may not be the one that is meant.
        job = self._session.given(self.edt_suspend, parse(self.edt_suspend, line).job)
        return self._session.run(lambda _: job.suspend())

    @parsed
    @job_argument
    @options_of(JobResume, *JobResume.__struct_fields__)
    @line_magic
    def edt_resume(self, line: str) -> Job:
        """Let a job go on that was suspended, or stopped, or failed. The job is named, never guessed."""
        options = parse(self.edt_resume, line)
        job = self._session.given(self.edt_resume, options.job)
        return self._session.run(lambda _: job.resume(options.checkpoint, instance_group=options.instance_group))

    @parsed
    @job_argument
    @option("--all", action="store_true", help="all of mine")
    @line_magic
    def edt_stop(self, line: str) -> Job | list[str]:
        """End a job; its logs and checkpoints stay. The job is named, never guessed."""
        options = parse(self.edt_stop, line)
        # Exactly one of both: a verb that ends jobs has no default job.
        if options.all == bool(options.job):
            raise UsageError("%edt_stop needs the id of a job, or --all.")
        if options.all:
            return self._session.run(lambda client: client.stop_all())
        job = self._session.job(options.job, seen=False)
        return self._session.run(lambda _: job.stop())

    @parsed
    @job_argument
    @line_magic
    def edt_delete(self, line: str) -> None:
        """Remove an ended job with its logs, checkpoints and results. The job is named, never guessed."""
        job = self._session.given(self.edt_delete, parse(self.edt_delete, line).job)
        self._session.run(lambda _: job.delete())
        print(f"{job.id} is deleted, with its logs, checkpoints and results.")

    @parsed
    @job_argument
    @option("-d", "--directory", default=".", help="where to (default: here)")
    @option("--part", choices=PARTS, default="all", help="default: all")
    @option("--extract", action="store_true", help="also unpack it")
    @line_magic
    def edt_download(self, line: str) -> Any:
        """Fetch a job's results as a zip."""
        options = parse(self.edt_download, line)
        job = self._session.job(options.job)
        return self._session.run(lambda _: job.download(options.directory, options.part, extract=options.extract))


def _cut(line: str) -> tuple[str, str]:
    """Split the line at a lone `--`."""
    # Cut before argparse sees the line: it would take the script's options for ours.
    found = _SCRIPT_ARGS.search(line)
    return (line[: found.start()], line[found.end() :]) if found else (line, "")


def load_ipython_extension(shell: InteractiveShell) -> None:
    """`%load_ext edt_sdk`."""
    # A second load keeps the present session, which knows the jobs of this notebook.
    if any(isinstance(owner, EdtMagics) for owner in shell.magics_manager.registry.values()):
        return
    session = MagicSession(shell)
    shell.register_magics(EdtMagics(shell, session))
    shell.Completer.custom_matchers.append(completer(shell.magics_manager.magics["line"].get, session))


def unload_ipython_extension(shell: InteractiveShell) -> None:
    """`%unload_ext edt_sdk`: every magic and the completion are gone."""
    shell.magics_manager.registry.pop(EdtMagics.__name__, None)
    for kind in shell.magics_manager.magics.values():
        for name in [n for n, function in kind.items() if isinstance(getattr(function, "__self__", None), EdtMagics)]:
            del kind[name]
    matchers = shell.Completer.custom_matchers
    matchers[:] = [matcher for matcher in matchers if not getattr(matcher, "edt_sdk", False)]
