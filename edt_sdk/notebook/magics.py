"""Provide the verbs of the SDK as magics (`%load_ext edt_sdk`).

Arguments are parsed by argparse, wrong use is one clean line (UsageError), help comes from the same parsers. Loading
makes no request. The first magic that needs the server finds it, and a later one finds it again if it was lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError
from IPython.core.magic import Magics

from edt_sdk.notebook.completion import Known, completer
from edt_sdk.notebook.magic_options import job_argument, line_magic, magics, option, options_of, parse, parsed
from edt_sdk.notebook.magic_session import MagicSession
from edt_sdk.notebook.magic_submit import SubmitMagics
from edt_sdk.schemas.fields import given
from edt_sdk.schemas.job import SCHEDULED, JobPatch, JobResume
from edt_sdk.schemas.validation import NewValidation
from edt_sdk.schemas.wire.parts import PARTS, STREAMS

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from edt_sdk.client import Client, Job, JobList
    from edt_sdk.display.answers import WhatIfAnswer
    from edt_sdk.display.cluster_view import Cluster
    from edt_sdk.display.log_text import LogText
    from edt_sdk.display.picture import Picture
    from edt_sdk.display.readings import Metrics, Story, Timeline
    from edt_sdk.display.validation import Validation
    from edt_sdk.monitor import Monitor


@magics
class EdtMagics(Magics):
    """The magics about jobs that there are."""

    def __init__(self, shell: InteractiveShell, session: MagicSession) -> None:
        super().__init__(shell)
        self._session = session

    # --- looking ------------------------------------------------------------------------------------------------------

    @parsed
    @option("--all", action="store_true", help="other users' jobs as well")
    @option("--state", help="only jobs in this state")
    @option("--tag", help="only jobs with this tag")
    @option("--limit", type=int, metavar="N", help="the newest N only (default 1000)")
    @option("--before", metavar="JOB", help="only jobs older than this one")
    @line_magic
    def edt_jobs(self, line: str) -> JobList:
        """List jobs, newest first."""
        options = parse(self.edt_jobs, line)
        jobs: JobList = self._session.run(
            lambda client: client.jobs(**given(options, ("all", "state", "tag", "limit", "before")))
        )
        # Ids are kept for the completion, which makes no request.
        self._session.names.remember(job.id for job in jobs)
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
        ended: Job = self._session.run(lambda _: job.wait(options.timeout))
        return ended

    @parsed
    @line_magic
    def edt_cluster(self, line: str) -> Cluster:
        """Show the slots, who has them, and how the instance groups share them."""
        parse(self.edt_cluster, line)
        machine: Cluster = self._session.run(lambda client: client.cluster())
        return machine

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
        metrics: Metrics = self._session.run(lambda _: job.metrics(points=options.points))
        return metrics

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
        picture: Picture = self._session.run(lambda client: client.compare(jobs, x=options.x))
        return picture

    @parsed
    @job_argument
    @line_magic
    def edt_story(self, line: str) -> Story:
        """Tell what happened to a job."""
        job = self._session.job(parse(self.edt_story, line).job)
        story: Story = self._session.run(lambda _: job.story())
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
            monitor = self._session.run(lambda client: client.monitor())
        else:
            job = self._session.job(options.job)
            monitor = self._session.run(lambda _: job.monitor())
        return monitor

    @parsed
    @option("job", nargs="?", help="one job and its neighbours (default: everything)")
    @option("--since", metavar="T", help="only since then: 2h (ago), 14:30, 2026-05-01T14:30")
    @option("--until", metavar="T", help="only until then")
    @line_magic
    def edt_timeline(self, line: str) -> Timeline:
        """Show which job held how many slots when, and why."""
        options = parse(self.edt_timeline, line)
        job = self._session.job(options.job) if options.job else None
        timeline: Timeline = self._session.run(
            lambda client: (job or client).timeline(since=options.since, until=options.until)
        )
        return timeline

    @parsed
    @job_argument
    @options_of(JobPatch, *SCHEDULED, unset=True)
    @line_magic
    def edt_what_if(self, line: str) -> WhatIfAnswer:
        """Tell who would hold how many slots, and when the job would end; nothing is changed."""
        options = parse(self.edt_what_if, line)
        job = self._session.job(options.job)
        answer: WhatIfAnswer = self._session.run(lambda _: job.what_if(**given(options, SCHEDULED)))
        return answer

    # --- changing -----------------------------------------------------------------------------------------------------

    @parsed
    @job_argument
    @options_of(JobPatch, *JobPatch.__struct_fields__, unset=True)
    @line_magic
    def edt_update(self, line: str) -> Job:
        """Change the settings of a job: notes and tags at any time, the others until it has ended."""
        options = parse(self.edt_update, line)
        job = self._session.job(options.job, seen=False)
        changed: Job = self._session.run(lambda _: job.update(**given(options, JobPatch.__struct_fields__)))
        return changed

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
        started: Job = self._session.touched(self._session.run(lambda _: job.validate(**chosen)))
        if not options.wait:
            return started
        result: Validation = self._session.run(lambda _: started.wait().validation())
        return result

    @parsed
    @job_argument
    @line_magic
    def edt_validation(self, line: str) -> Validation:
        """Show what a validation came to."""
        job = self._session.job(parse(self.edt_validation, line).job)
        result: Validation = self._session.run(lambda _: job.validation())
        return result

    @parsed
    @job_argument
    @line_magic
    def edt_suspend(self, line: str) -> Job:
        """Take all slots from a job until it is resumed. The job is named, never guessed."""
        # No default job: the last job used may not be the one that is meant.
        job = self._session.given(self.edt_suspend, parse(self.edt_suspend, line).job)
        suspended: Job = self._session.run(lambda _: job.suspend())
        return suspended

    @parsed
    @job_argument
    @options_of(JobResume, *JobResume.__struct_fields__)
    @line_magic
    def edt_resume(self, line: str) -> Job:
        """Let a job go on that was suspended, or stopped, or failed. The job is named, never guessed."""
        options = parse(self.edt_resume, line)
        job = self._session.given(self.edt_resume, options.job)
        resumed: Job = self._session.run(
            lambda _: job.resume(options.checkpoint, instance_group=options.instance_group)
        )
        return resumed

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
            ids: list[str] = self._session.run(lambda client: client.stop_all())
            return ids
        job = self._session.job(options.job, seen=False)
        stopped: Job = self._session.run(lambda _: job.stop())
        return stopped

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


OURS = (EdtMagics, SubmitMagics)


def load_ipython_extension(shell: InteractiveShell) -> None:
    """`%load_ext edt_sdk`."""
    # A second load keeps the present session, which knows the jobs of this notebook.
    if any(isinstance(owner, EdtMagics) for owner in shell.magics_manager.registry.values()):
        return
    session = MagicSession(shell)
    shell.register_magics(EdtMagics(shell, session), SubmitMagics(shell, session))
    line = shell.magics_manager.magics["line"]

    def known() -> Known:
        return Known(tuple(session.jobs()), tuple(session.groups()))

    shell.Completer.custom_matchers.append(completer(line.get, known))


def unload_ipython_extension(shell: InteractiveShell) -> None:
    """`%unload_ext edt_sdk`: every magic and the completion are gone."""
    registry = shell.magics_manager.registry
    for cls in OURS:
        registry.pop(cls.__name__, None)
    for kind in shell.magics_manager.magics.values():
        for name in [n for n, function in kind.items() if isinstance(getattr(function, "__self__", None), OURS)]:
            del kind[name]
    matchers = shell.Completer.custom_matchers
    matchers[:] = [matcher for matcher in matchers if not getattr(matcher, "edt_sdk", False)]
