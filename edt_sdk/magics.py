"""`%load_ext edt_sdk`: the verbs of the SDK as magics.

Arguments are parsed by argparse, wrong use is one clean line (UsageError), help comes from the same parsers. Loading
makes no request; the first magic that needs the server finds it, and a later one finds it again if it was lost.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError
from IPython.core.magic import Magics

from edt_sdk.cli.torchrunning import asked
from edt_sdk.completion import JobNames, completer
from edt_sdk.magic_options import job_argument, line_cell_magic, line_magic, magics, option, parse, parsed, words
from edt_sdk.schemas.errors import EdtError, NotAllowed, ServerUnreachable
from edt_sdk.schemas.parts import PARTS, STREAMS

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from edt_sdk.answers import Answer
    from edt_sdk.client import Client
    from edt_sdk.job import Job
    from edt_sdk.job_list import JobList
    from edt_sdk.monitor import Monitor
    from edt_sdk.readings import LogText, Story, Timeline

_SCRIPT_ARGS = re.compile(r"(?:^|\s)--(?:\s|$)")


@magics
class EdtMagics(Magics):
    """The magics. One client for all of them, and the job that was touched last."""

    def __init__(self, shell: InteractiveShell) -> None:
        super().__init__(shell)
        self.names = JobNames()
        self._client: Client | None = None
        self._last: str | None = None

    # --- submitting ---------------------------------------------------------------------------------------------------

    @parsed
    @option("source", nargs="?", help="folder, .py or .ipynb file; in a cell magic the cell is the script")
    @option("--main", metavar="FILE", help="main script, relative to the folder")
    @option("--max-workers", type=int, default=1, metavar="N", help="most slots it may hold at once (default 1)")
    @option("--min-workers", type=int, default=1, metavar="N", help="slots it cannot run without (default 1)")
    @option("--slots-per-unit", type=int, default=1, metavar="N", help="its slots come N at a time (default 1)")
    @option("--pending-timeout", type=float, metavar="S", help="give up after S seconds without a slot")
    @option("--name", help="what to call it (default: from the source)")
    @option("--priority", type=int, default=5000, metavar="P", help="weight under fair share (default 5000)")
    @option("--instance-group", default="", metavar="G", help="the queue (default: the server's first)")
    @option(
        "--mode",
        choices=("exact", "fast"),
        default="exact",
        help="exact (default): equal bits for any number of workers",
    )
    @option("--seed", type=int, default=0, help="seed of the training (default 0)")
    @option("--threads-per-slot", type=int, metavar="N", help="threads of a worker")
    @option(
        "--warm-start", metavar="JOB", help="begin with the weights of another job: its id, or a variable that holds it"
    )
    @option("--framework", default="edtPyTorch", metavar="F", help="what runs it (default: edtPyTorch, our engine)")
    @option("--command", metavar="CMD", help="run this in a shell in place of the script; with another framework")
    @option("--data-path", default="", metavar="DIR", help="DATA_DIR, relative to the server's data folder")
    @option("--env", action="append", default=[], metavar="K=V", help="an environment variable; repeatable")
    @option("--quiet", action="store_true", help="do not list what is packed")
    @line_cell_magic
    def edt_submit(self, line: str, cell: str | None = None) -> Job:
        """Submit a training and return its Job; what follows `--` goes to the script, or is said to torchrun."""
        own, rest = _cut(line)
        options = parse(self.edt_submit, own)
        if (options.source is None) == (cell is None):
            raise UsageError(
                "%edt_submit needs a folder, a .py or an .ipynb file."
                if cell is None
                else "%%edt_submit sends the cell; it takes no source."
            )
        pairs = [text.partition("=") for text in options.env]
        if wrong := [key for key, sign, _ in pairs if not (key and sign)]:
            raise UsageError(f"--env takes KEY=VALUE, not {wrong[0]!r}.")
        warm_start = None if options.warm_start is None else self._named(options.warm_start)
        if cell is not None:
            options.source = [cell]
        options.args = words(rest)
        job = self._run(
            lambda client: client.submit(
                name=options.name,
                max_workers=options.max_workers,
                min_workers=options.min_workers,
                slots_per_unit=options.slots_per_unit,
                pending_timeout=options.pending_timeout,
                priority=options.priority,
                instance_group=options.instance_group,
                mode=options.mode,
                seed=options.seed,
                threads_per_slot=options.threads_per_slot,
                warm_start=warm_start,
                framework=options.framework,
                command=options.command or (),
                data_path=options.data_path,
                **asked(options),
                env={key: value for key, _, value in pairs},
                progress=not options.quiet,
            )
        )
        return self._touched(job)

    # --- looking ------------------------------------------------------------------------------------------------------

    @parsed
    @option("--all", action="store_true", help="other users' jobs as well")
    @option("--state", help="only jobs in this state")
    @option("--limit", type=int, metavar="N", help="the newest N only (default 1000)")
    @line_magic
    def edt_jobs(self, line: str) -> JobList:
        """List jobs, newest first."""
        options = parse(self.edt_jobs, line)
        jobs: JobList = self._run(lambda client: client.jobs(all=options.all, state=options.state, limit=options.limit))
        self.names.remember(job.id for job in jobs)
        return jobs

    @parsed
    @job_argument
    @option("--stream", choices=STREAMS, default="all", help="default: all, merged by time")
    @option("--worker", type=int, metavar="K", help="one worker only")
    @option("-f", "--follow", action="store_true", help="print on until the job has ended")
    @line_magic
    def edt_logs(self, line: str) -> LogText | None:
        """Show what a job wrote."""
        options = parse(self.edt_logs, line)
        job = self._job(options.job)
        if not options.follow:
            text: LogText = self._run(lambda _: job.logs(options.stream, worker=options.worker))
            return text

        def follow(_: Client) -> None:
            for entry in job.logs(options.stream, worker=options.worker, follow=True):
                print(entry, flush=True)

        self._run(follow)
        return None

    @parsed
    @job_argument
    @line_magic
    def edt_story(self, line: str) -> Story:
        """Tell what happened to a job."""
        job = self._job(parse(self.edt_story, line).job)
        story: Story = self._run(lambda _: job.story())
        return story

    @parsed
    @job_argument
    @option("--all", action="store_true", help="all jobs instead of one")
    @line_magic
    def edt_monitor(self, line: str) -> Monitor:
        """Watch a job live."""
        options = parse(self.edt_monitor, line)
        monitor: Monitor
        if options.all:
            monitor = self._run(lambda client: client.monitor())
        else:
            job = self._job(options.job)
            monitor = self._run(lambda _: job.monitor())
        return monitor

    @parsed
    @option("job", nargs="?", help="one job and its neighbours (default: everything)")
    @option("--since", metavar="T", help="only since then: 2h (ago), 14:30, 2026-05-01T14:30")
    @option("--until", metavar="T", help="only until then")
    @line_magic
    def edt_timeline(self, line: str) -> Timeline:
        """Show which job held how many slots when, and why."""
        options = parse(self.edt_timeline, line)
        job = self._job(options.job) if options.job else None
        timeline: Timeline = self._run(
            lambda client: (job or client).timeline(since=options.since, until=options.until)
        )
        return timeline

    @parsed
    @job_argument
    @option("--priority", type=int, metavar="P", help="with this weight under fair share")
    @option("--max-workers", type=int, metavar="N", help="with at most so many slots")
    @option("--instance-group", metavar="G", help="in this queue")
    @line_magic
    def edt_what_if(self, line: str) -> Answer:
        """Tell who would hold how many slots, and when the job would end; nothing is changed."""
        options = parse(self.edt_what_if, line)
        job = self._job(options.job)
        answer: Answer = self._run(
            lambda _: job.what_if(
                priority=options.priority, max_workers=options.max_workers, instance_group=options.instance_group
            )
        )
        return answer

    # --- changing -----------------------------------------------------------------------------------------------------

    @parsed
    @job_argument
    @option("--priority", type=int, metavar="P", help="weight under fair share")
    @option("--max-workers", type=int, metavar="N", help="most slots it may hold")
    @option("--instance-group", metavar="G", help="the queue it moves to")
    @line_magic
    def edt_update(self, line: str) -> Job:
        """Change a job while it lives."""
        options = parse(self.edt_update, line)
        job = self._job(options.job)
        changed: Job = self._run(
            lambda _: job.update(
                priority=options.priority, max_workers=options.max_workers, instance_group=options.instance_group
            )
        )
        return changed

    @parsed
    @job_argument
    @line_magic
    def edt_suspend(self, line: str) -> Job:
        """Take all slots from a job until it is resumed. The job is named, never guessed."""
        job = self._given(self.edt_suspend, parse(self.edt_suspend, line).job)
        suspended: Job = self._run(lambda _: job.suspend())
        return suspended

    @parsed
    @job_argument
    @option("--checkpoint", metavar="NAME", help="what to go on from, such as epoch-3 (default: the newest)")
    @option("--instance-group", metavar="G", help="the queue it goes on in (default: the one it was in)")
    @line_magic
    def edt_resume(self, line: str) -> Job:
        """Let a job go on that was suspended, or stopped, or failed. The job is named, never guessed."""
        options = parse(self.edt_resume, line)
        job = self._given(self.edt_resume, options.job)
        resumed: Job = self._run(lambda _: job.resume(options.checkpoint, instance_group=options.instance_group))
        return resumed

    @parsed
    @job_argument
    @option("--all", action="store_true", help="all of mine")
    @line_magic
    def edt_stop(self, line: str) -> Job | list[str]:
        """End a job; its logs and checkpoints stay. The job is named, never guessed."""
        options = parse(self.edt_stop, line)
        if options.all == bool(options.job):
            raise UsageError("%edt_stop needs the id of a job, or --all.")
        if options.all:
            ids: list[str] = self._run(lambda client: client.stop_all())
            return ids
        job = self._job(options.job)
        stopped: Job = self._run(lambda _: job.stop())
        return stopped

    @parsed
    @job_argument
    @option("-d", "--directory", default=".", help="where to (default: here)")
    @option("--part", choices=PARTS, default="all", help="default: all")
    @option("--extract", action="store_true", help="also unpack it")
    @line_magic
    def edt_download(self, line: str) -> Any:
        """Fetch a job's results as a zip."""
        options = parse(self.edt_download, line)
        job = self._job(options.job)
        return self._run(lambda _: job.download(options.directory, options.part, extract=options.extract))

    # --- the server ---------------------------------------------------------------------------------------------------

    def _run(self, work: Callable[[Client], Any]) -> Any:
        """`work` with the client; what the server refuses becomes one clean line."""
        try:
            if self._client is None:
                from edt_sdk.client import Client

                self._client = Client()
            return work(self._client)
        except EdtError as refused:
            if isinstance(refused, ServerUnreachable | NotAllowed):
                self._client = None  # it may have another port or token by now
            raise UsageError(str(refused)) from None

    def _job(self, name: str | None) -> Job:
        """The job with this id, or of the variable with this name; the last one touched without a name."""
        found = self._named(name) if name else self._last
        if found is None:
            raise UsageError("Which job? Give its id; %edt_jobs lists them.")
        if not isinstance(found, str):
            return self._touched(found)
        return self._touched(self._run(lambda client: client.job(found)))

    def _given(self, magic: Callable[..., Any], name: str | None) -> Job:
        """The job of this name; without one the last one touched will not do."""
        if not name:
            raise UsageError(f"%{magic.__name__} needs the id of a job.")
        return self._job(name)

    def _named(self, name: str) -> Job | str:
        """What the variable of this name holds, if that is a job or the id of one, else the name itself: an id."""
        from edt_sdk.job import Job

        held = self.shell.user_ns.get(name) if self.shell is not None else None
        return held if isinstance(held, Job | str) else name

    def _touched(self, job: Job) -> Job:
        self._last = job.id
        self.names.remember([job.id])
        return job


def _cut(line: str) -> tuple[str, str]:
    """The line before a lone `--`, and what follows it."""
    found = _SCRIPT_ARGS.search(line)
    return (line[: found.start()], line[found.end() :]) if found else (line, "")


def load_ipython_extension(shell: InteractiveShell) -> None:
    """`%load_ext edt_sdk`."""
    if any(isinstance(owner, EdtMagics) for owner in shell.magics_manager.registry.values()):
        return
    ours = EdtMagics(shell)
    shell.register_magics(ours)
    shell.Completer.custom_matchers.append(completer(ours, ours.names))


def unload_ipython_extension(shell: InteractiveShell) -> None:
    """`%unload_ext edt_sdk`: every magic and the completion are gone."""
    registry = shell.magics_manager.registry
    registry.pop(EdtMagics.__name__, None)
    for kind in shell.magics_manager.magics.values():
        for name in [n for n, function in kind.items() if isinstance(getattr(function, "__self__", None), EdtMagics)]:
            del kind[name]
    matchers = shell.Completer.custom_matchers
    matchers[:] = [matcher for matcher in matchers if not getattr(matcher, "edt_sdk", False)]
