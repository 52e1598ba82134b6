"""Run `edt simulate`: files in, a table and a picture out. This is the only impure file of this room.

stdout has the table alone. stderr has the progress and errors.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import msgspec

from edt_sdk.schemas.errors import EdtError, InvalidRequest
from edt_sdk.schemas.fields import OneLineParser
from edt_sdk.schemas.plan import Plan, PlanAsRead
from edt_sdk.schemas.wire.control import Slot
from edt_server.fleet.scaling import ScalingSettings
from edt_server.simulator.engine import Engine, Scheduler, SimulatedRun, SimulationSettings
from edt_server.simulator.figures import Figures, completion, figures, finish_time_fairness, table
from edt_server.simulator.machines import HostFigures, Machines, host_figures, host_table
from edt_server.simulator.picture import allocation, draw
from edt_server.simulator.policies import ELASTIC, POLICIES, RIGID, fit, make, make_core
from edt_server.simulator.recorded import read_events, recorded_run, workload_of
from edt_server.simulator.workload import SimulatedJob, read_workload

DEFAULT_SLOTS = 64
PLAN = "plan"  # in the table: under the policies that the plan names
RECORDED = "recorded"
_QUIET_FOR = {True: 0.5, False: 10.0}  # seconds between two lines about progress, in a terminal and elsewhere


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code, 2 for wrong use."""
    arguments = _parser().parse_args(argv)
    try:
        return _simulate(arguments)
    except EdtError as refused:
        print(f"edt: {refused}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


@dataclass(frozen=True, slots=True)
class _Question:
    """The options of the command, read and checked."""

    jobs: tuple[SimulatedJob, ...]
    slots: tuple[Slot, ...]
    plan: Plan
    policies: tuple[str, ...]
    recorded: SimulatedRun | None
    scaling: ScalingSettings | None  # of hosts that come and go
    host_start: float

    @property
    def most(self) -> int:
        """The slots there are at most."""
        return len(self.slots) + (self.scaling.max_hosts * self.scaling.slots if self.scaling is not None else 0)


def _simulate(arguments: argparse.Namespace) -> int:
    question = _question(arguments)
    runs: dict[str, SimulatedRun] = {} if question.recorded is None else {RECORDED: question.recorded}
    hosts: dict[str, HostFigures] = {}
    for policy in question.policies:
        name = policy or PLAN
        if question.scaling is None:
            runs[name] = _play(question, policy, arguments)
        else:
            runs[name], hosts[name] = _play_with_hosts(question, policy, question.scaling, arguments)
    judged = {name: figures(run) for name, run in runs.items()}
    print(table(judged))
    if hosts:
        print(f"\n{host_table(hosts)}")
    if arguments.picture is not None:
        _write(arguments.picture, draw(allocation(list(runs.values())[-1])).encode())
    if arguments.json is not None:
        _write(arguments.json, _as_json(arguments, runs, judged, hosts))
    return 0


def _question(arguments: argparse.Namespace) -> _Question:
    recorded = None
    if arguments.events is not None:
        events = read_events(arguments.events)
        jobs, recorded = workload_of(events), recorded_run(events)
        if not jobs:
            raise InvalidRequest(f"No job of {arguments.events} has ended: there is nothing to play again.")
    elif arguments.workload is None:
        raise InvalidRequest("What shall be simulated?", hint="Give a WORKLOAD.csv, or --events FILE.")
    else:
        jobs = read_workload(arguments.workload, arguments.apps)
    if arguments.hosts and not arguments.slots:
        slots: tuple[Slot, ...] = ()
    else:
        slots = _slots(arguments.slots or str(recorded.slots if recorded is not None else DEFAULT_SLOTS))
    plan = Plan() if arguments.plan is None else _plan(arguments.plan)
    # A plan has its own policies. Without a plan, fair share is the server's default.
    named = arguments.policy or ("" if arguments.plan is not None else "fairshare")
    policies = POLICIES if named == "all" else tuple(word.strip() for word in named.split(","))
    for policy in policies:
        if policy and policy not in POLICIES:
            hint = f"Choose from {', '.join(POLICIES)}, several with commas between, or all."
            raise InvalidRequest(f"There is no policy {policy!r}.", hint=hint, field="policy")
    if arguments.events is not None and arguments.plan is None:
        # The queues of the recorded jobs, all alike.
        names = dict.fromkeys(job.instance_group for job in jobs)
        first = plan.instance_groups[0]
        plan = Plan(instance_groups=tuple(msgspec.structs.replace(first, name=name) for name in names))
    scaling = _scaling(arguments, policies) if arguments.hosts else None
    return _Question(jobs, slots, plan, policies, recorded, scaling, arguments.host_start)


def _scaling(arguments: argparse.Namespace, policies: Sequence[str]) -> ScalingSettings:
    if rigid := [policy for policy in policies if policy in RIGID]:
        hint = f"Choose from {', '.join(ELASTIC)}."
        raise InvalidRequest(f"{rigid[0]} cannot be played with hosts that come and go.", hint=hint, field="policy")
    return ScalingSettings(
        "simulated",
        arguments.max_hosts,
        slots=arguments.host_slots,
        idle_after=arguments.idle_after,
        pack=arguments.pack,
    )


def _play(question: _Question, policy: str, arguments: argparse.Namespace) -> SimulatedRun:
    return _run(question, policy, make(policy, question.plan, question.slots), arguments)


def _play_with_hosts(
    question: _Question, policy: str, settings: ScalingSettings, arguments: argparse.Namespace
) -> tuple[SimulatedRun, HostFigures]:
    """Play with hosts that come and go, and with all of them there from the start, which the optimum comes from."""
    group = next((each.name for each in question.plan.resource_groups if not each.hosts), None)
    if group is None:
        raise InvalidRequest("Every resource group of the plan names its hosts, so that it takes no new ones.")
    core = make_core(policy, question.plan, question.slots)
    machines = Machines(core, group, settings, question.host_start)
    run = _run(question, policy, core, arguments, machines)
    new = range(len(question.slots), question.most)
    always = (*question.slots, *(Slot(id=number, host=f"host {number // settings.slots}") for number in new))
    ideal = _run(question, policy, make(policy, question.plan, always), arguments)
    return run, host_figures(run, machines, ideal, len(question.slots), settings.slots)


def _run(
    question: _Question, policy: str, scheduler: Scheduler, arguments: argparse.Namespace, hosts: Machines | None = None
) -> SimulatedRun:
    settings = SimulationSettings(
        resize_cost=arguments.resize_cost,
        # A rigid queue never revokes a slot, so that no worker needs a grace period.
        grace=0.0 if policy in RIGID else arguments.grace,
        interval=arguments.interval,
        tell_speeds=policy not in RIGID,
    )
    shown = _Progress(policy or PLAN)
    jobs = fit(question.jobs, policy, question.plan, len(question.slots))
    # Processor time: what else the machine does in the meantime is no part of a decision.
    engine = Engine(scheduler, question.most, jobs, settings, clock=time.thread_time, watch=shown.show, hosts=hosts)
    run = engine.run()
    shown.close()
    return run


class _Progress:
    """The progress of a long simulation on stderr: one line, which a terminal overwrites."""

    def __init__(self, policy: str) -> None:
        self._policy, self._shown, self._terminal = policy, False, sys.stderr.isatty()
        # A short simulation ends before the first line, so that it prints none.
        self._next = time.monotonic() + _QUIET_FOR[self._terminal]

    def show(self, now: float, ended: int, jobs: int) -> None:
        """Write the progress, unless it was written just before."""
        if time.monotonic() < self._next:
            return
        self._next, self._shown = time.monotonic() + _QUIET_FOR[self._terminal], True
        line = f"{self._policy}: {ended} of {jobs} jobs have ended, {now / 3600:.1f} h are over"
        print(f"\r{line}" if self._terminal else line, end="" if self._terminal else "\n", file=sys.stderr, flush=True)

    def close(self) -> None:
        """End the line."""
        if self._shown and self._terminal:
            print(file=sys.stderr)


def _as_json(
    arguments: argparse.Namespace,
    runs: dict[str, SimulatedRun],
    judged: dict[str, Figures],
    hosts: dict[str, HostFigures],
) -> bytes:
    settings = {"resize_cost": arguments.resize_cost, "grace": arguments.grace, "interval": arguments.interval}
    told = {
        name: {"slots": run.slots, "figures": asdict(judged[name]), "jobs": _jobs(run)}
        | ({"hosts": asdict(hosts[name])} if name in hosts else {})
        for name, run in runs.items()
    }
    found = {"settings": settings, "runs": told}
    return msgspec.json.format(msgspec.json.encode(found), indent=1) + b"\n"


def _jobs(run: SimulatedRun) -> list[dict[str, object]]:
    rho = finish_time_fairness(run)
    return [
        {
            "name": life.job.name,
            "application": life.job.application,
            "arrived": life.job.time,
            "started": life.start,
            "ended": life.end,
            "completion": None if life.end is None else completion(life),
            "restarts": life.restarts,
            "rho": rho.get(life.job.name),
        }
        for life in run.lives
    ]


def _slots(text: str) -> tuple[Slot, ...]:
    """Return a number of slots from `64`, or by host from `a=4,b=4`."""
    counts: dict[str, int] = {}
    for word in text.split(","):
        host, _, number = word.rpartition("=")
        if not number.strip().isdecimal() or not int(number) or host.strip() in counts:
            hint = "Give how many there are, such as 64, or by host, such as a=4,b=4."
            raise InvalidRequest(f"{text!r} does not say how many slots there are.", hint=hint, field="slots")
        counts[host.strip()] = int(number)
    hosts = [host or "simulated" for host, number in counts.items() for _ in range(number)]
    return tuple(Slot(id=number, host=host) for number, host in enumerate(hosts))


def _plan(path: Path) -> Plan:
    try:
        return msgspec.json.decode(path.read_bytes(), type=PlanAsRead).plan.check()
    except OSError as wrong:
        raise InvalidRequest(f"{path} cannot be read: {wrong.strerror}.") from None
    except msgspec.DecodeError as wrong:
        raise InvalidRequest(f"{path} is no plan: {wrong}.", hint="docs/simulate.md shows one.") from None


def _write(path: Path, content: bytes) -> None:
    try:
        path.write_bytes(content)
    except OSError as wrong:
        raise InvalidRequest(f"{path} cannot be written: {wrong.strerror}.") from None


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds, 0 or more")
    return value


def _whole(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number, 1 or more")
    return int(text)


def _parser() -> argparse.ArgumentParser:
    parser = OneLineParser(
        prog="edt simulate", description="Play a workload against the scheduler, and tell how it went."
    )
    add = parser.add_argument
    add("workload", metavar="WORKLOAD.csv", type=Path, nargs="?", help="the jobs to come")
    add("--apps", metavar="APPS.csv", type=Path, help="how fast their applications are")
    add("--events", metavar="FILE", type=Path, help="instead: a server's recorded events, JSON lines or its edt.sqlite")
    add("--slots", metavar="N", help=f"how many there are (default: {DEFAULT_SLOTS}), or by host: a=4,b=4")
    says = f"of {', '.join(ELASTIC)} and, without elasticity, {', '.join(RIGID)}; several with commas, or all"
    add("--policy", metavar="P", help=f"{says} (default: what the plan says, else fairshare)")
    add("--plan", metavar="PLAN.json", type=Path, help="queues, shares and ownership")
    for option, default, says in (
        ("--resize-cost", 1.0, "seconds a job stands still when the number of its workers changes (default: 1)"),
        ("--grace", 0.0, "seconds a worker needs to leave a slot (default: 0)"),
        ("--interval", 0.0, "decide only every so many seconds (default: 0, at every event)"),
        ("--host-start", 60.0, "seconds until a host has come that was asked for (default: 60)"),
        ("--idle-after", 300.0, "seconds without work after which a host is given back (default: 300)"),
    ):
        add(option, metavar="S", type=_seconds, default=default, help=says)
    add("--hosts", action="store_true", help="with hosts that come and go as they are needed, besides --slots, if any")
    add("--pack", action="store_true", help="also give back hosts with work that has room on the others")
    add("--host-slots", metavar="N", type=_whole, default=8, help="slots of such a host (default: 8)")
    add("--max-hosts", metavar="N", type=_whole, default=16, help="most of them at once (default: 16)")
    add("--picture", metavar="FILE.svg", type=Path, help="draw the allocation (under the last policy)")
    add("--json", metavar="FILE", type=Path, help="write the figures, and those of each job")
    return parser
