"""Run torch's own elastic agent, directed by the job's supervisor instead of a vote.

The supervisor starts it as `python -u -m edt_sdk.torchrun.agent`, once per unit of slots. torch's agent starts the
processes, sets their variables, monitors and ends them. The supervisor knows all agents, so it makes the decisions that
torch's agent would make alone: whether a crash is the cause or a consequence, how many restarts are left, and when all
agents are done. This agent reports, continues as if all were well, and follows the next round.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
import traceback
from pathlib import Path
from typing import Any

from edt_sdk.schemas.torchrun import AgentContext, agent_context
from edt_sdk.schemas.wire.context import JobContext, WorkerContext, job_context, worker_context
from edt_sdk.schemas.wire.link import Began, Crashed, Done, Failed, Noted
from edt_sdk.torchrun.notes import Notes
from edt_sdk.torchrun.nursery import ForkedProcess, Nursery, open_nursery
from edt_sdk.torchrun.plan_link import PlanLink
from edt_sdk.torchrun.script import execute

# Seconds for a script to handle SIGTERM. Then the store closes on which its processes may be blocked.
_HEARING = 0.5
_LINES, _BYTES, _LINE = 20, 32 * 1024, 500


def main() -> int:
    """Run an agent, or a process forked for its script. Return the exit code."""
    job, own, agent = job_context(), worker_context(), agent_context()
    if job is None or own is None or agent is None:
        print("edt: this program is started by a job's supervisor (EDT_JOB and EDT_AGENT).", file=sys.stderr)
        return 2
    if agent.command:
        # A program that is an agent itself, such as `torchrun --rdzv-backend=edt`, replaces this process.
        return execute(agent.command)
    notes = Notes()
    nursery = open_nursery()
    if nursery is None:
        return 0
    link = PlanLink(job.link)
    code = 1
    try:
        code = _lead(job, own, agent, link, nursery, notes)
    except (Exception, SystemExit) as error:
        text = "".join(traceback.format_exception(error))
        print(text, file=sys.stderr, end="", flush=True)
        link.send(Failed(worker=agent.first, message=f"{type(error).__name__}: {error}", traceback=text))
    nursery.close()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    # Interpreter shutdown takes most of a second with torch loaded.
    os._exit(code)


def _lead(
    job: JobContext, own: WorkerContext, place: AgentContext, link: PlanLink, nursery: Nursery, notes: Notes
) -> int:
    """Run rounds until there is none left. Return the exit code."""
    # These imports take 0.1 s, in which others already train. The nursery was forked before and does not need them.
    from torch.distributed.elastic.agent.server.api import RunResult, WorkerGroup, WorkerSpec, WorkerState
    from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException

    from edt_sdk.torchrun import processes
    from edt_sdk.torchrun.rendezvous import PlanRendezvous

    _hush()
    options, first = place.options, place.first
    started = processes.start_from(nursery, place)
    meeting = PlanRendezvous(link, first, own.interface, job.job_id)

    class Agent(LocalElasticAgent):
        """Reports the end of processes, and leaves the reaction to the supervisor."""

        _told = False

        def _rendezvous(self, worker_group: WorkerGroup) -> None:
            self._forward_notes()
            super()._rendezvous(worker_group)
            self._told = False
            # The restarts of the whole job, not of this agent. All agents started their processes equally often.
            self._remaining_restarts = options.max_restarts - meeting.restarts

        def _forward_notes(self) -> None:
            for note in notes.new():
                if isinstance(note, str):
                    link.send(Noted(worker=first, round=meeting.round, note=note))
                    continue
                for rank, process in started.items():
                    if process.pid == note.pid:  # not one that the script forked
                        link.send(_crashed(place, meeting.round, rank, process, 1, note.since, leaving=True))
                notes.answer()

        def _start_workers(self, worker_group: WorkerGroup) -> dict[int, Any]:
            pids: dict[int, Any] = super()._start_workers(worker_group)
            ordered = tuple(pids[rank] for rank in sorted(pids))
            link.send(Began(worker=first, round=meeting.round, pids=ordered, store_port=meeting.port))
            return pids

        def _stop_workers(self, worker_group: WorkerGroup) -> None:
            # A process blocked inside the library handles no signal before it gets an answer, and closing the store
            # gives it one. SIGTERM comes first: a script needs a moment to write its checkpoint while its peers exist.
            last = threading.Timer(_HEARING, meeting.leave_meeting)
            last.start()
            self._shutdown(timeout=options.shutdown_timeout)
            last.cancel()

        def _monitor_workers(self, worker_group: WorkerGroup) -> RunResult:
            self._forward_notes()
            if not self._told:
                result: RunResult = super()._monitor_workers(worker_group)
                if result.state in (WorkerState.HEALTHY, WorkerState.UNKNOWN):
                    return result
                self._told = True
                if result.state is WorkerState.SUCCEEDED:
                    link.send(Done(worker=first, round=meeting.round))
                else:
                    link.send(_crash(place, meeting.round, started))
            # Healthy whatever was reported: the supervisor decides what follows, and torch's agent must not restart by
            # itself (decision 023).
            return RunResult(state=WorkerState.HEALTHY)

    # All agents have the same number of processes, so ranks need no exchange.
    os.environ["TORCH_ELASTIC_WORKER_IDENTICAL"] = "1"
    entrypoint, args = processes.command(job, options)
    spec = WorkerSpec(
        role=options.role,
        local_world_size=place.processes,
        rdzv_handler=meeting,
        entrypoint=entrypoint,
        args=args,
        max_restarts=options.max_restarts,
        monitor_interval=options.monitor_interval,
        virtual_local_rank=options.virtual_local_rank,
    )
    # `torch.distributed.elastic.multiprocessing.errors.record` writes errors into this folder.
    logs = DefaultLogsSpecs(log_dir=str(job.paths.job_dir / "torchelastic" / str(first)))
    agent = Agent(spec, logs, shutdown_timeout=options.shutdown_timeout)
    try:
        agent.run()
    except SignalException:
        return 0  # the supervisor ended this agent, and all processes are gone
    return int(link.gone)


def _crash(agent: AgentContext, number: int, started: dict[int, ForkedProcess]) -> Crashed:
    """Report the first process with an exit code other than 0."""
    failed = {
        rank: process for rank, process in started.items() if process.returncode != 0 and process.ended is not None
    }
    # The first process to end is the cause. torch ends the others as a consequence.
    rank = min(failed, key=lambda each: failed[each].ended or 0.0)
    process = failed[rank]
    assert process.returncode is not None
    assert process.ended is not None
    return _crashed(agent, number, rank, process, process.returncode, process.ended)


def _crashed(
    agent: AgentContext,
    number: int,
    rank: int,
    process: ForkedProcess,
    exit_code: int,
    failed: float,
    *,
    leaving: bool = False,
) -> Crashed:
    return Crashed(
        worker=agent.first,
        round=number,
        local_rank=rank,
        pid=process.pid,
        exit_code=exit_code,
        failed=failed,
        leaving=leaving,
        words=_words(Path(agent.streams), agent.first + rank),
    )


def _words(streams: Path, worker: int) -> str:
    """Return the last lines of a process under a line that names their stream, "" when there are none."""
    for name in (f"worker-{worker}.stderr", f"worker-{worker}.stdout"):
        with contextlib.suppress(OSError), (streams / name).open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _BYTES))
            lines = [line.rstrip() for line in file.read().decode("utf-8", errors="replace").splitlines()]
            kept = [line if len(line) <= _LINE else f"{line[:_LINE]} …" for line in lines if line][-_LINES:]
            if kept:
                return "\n".join([f"Last lines of {name}:", *kept])
    return ""


def _hush() -> None:
    """Silence torch's agent. The job's story reports the same events, and the streams belong to the processes."""
    for name in logging.root.manager.loggerDict:
        if name.startswith("torch.distributed.elastic"):
            logging.getLogger(name).setLevel(logging.CRITICAL)


if __name__ == "__main__":
    sys.exit(main())
