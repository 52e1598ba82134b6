"""Observe the job's workers from outside: their heartbeats, and their state in the kernel.

`watchdog` decides which workers hang. The processor time of a worker is looked up only when it has been silent for a
while, because its loader processes have to be found among all processes of the machine.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from pathlib import Path

from edt_sdk.schemas.wire import pulse
from edt_sdk.schemas.wire.pulse import Beat, Phase
from edt_server.supervisor.state_machines.watchdog import Observation
from edt_server.system.processes import stat_fields

QUIET = 1.0
# Fields of /proc/<pid>/stat after the name, see `stat_fields`.
_STATE, _SESSION, _TIMES = 0, 3, slice(11, 15)
_TICKS = os.sysconf("SC_CLK_TCK")


def pulse_file(runtime_dir: Path, worker: int) -> Path:
    """Return the path of the worker's heartbeat file."""
    return runtime_dir / f"worker-{worker}.pulse"


def newest_updates(workers: Collection[int], runtime_dir: Path) -> int | None:
    """Return the highest number of committed updates of all heartbeats: reports may be half a second old."""
    beats = [pulse.read(pulse_file(runtime_dir, worker)) for worker in workers]
    return max((beat.updates for beat in beats if beat is not None), default=None)


def observe(
    workers: Mapping[int, int], taking_part: Collection[int], runtime_dir: Path, now: float
) -> list[Observation]:
    """Observe all workers (number → pid) with an existing process. `now` is the clock of their beats."""
    seen: list[tuple[int, int, Beat | None, str]] = []
    for worker, pid in workers.items():
        try:
            state = stat_fields(pid)[_STATE]
        except ProcessLookupError:
            continue  # reaped at this moment
        seen.append((worker, pid, pulse.read(pulse_file(runtime_dir, worker)), state))
    quiet = {
        pid
        for worker, pid, beat, _ in seen
        if worker in taking_part and beat is not None and beat.phase is Phase.COMPUTING and now - beat.since > QUIET
    }
    used = _used_by(quiet) if quiet else {}
    return [Observation(worker, worker in taking_part, beat, state, used.get(pid)) for worker, pid, beat, state in seen]


def _used_by(sessions: Collection[int]) -> dict[int, float]:
    """Return the processor seconds of each session: a worker leads its own, and its loader processes are in it."""
    used = dict.fromkeys(sessions, 0.0)
    for name in os.listdir("/proc"):
        if name.isdecimal():
            try:
                fields = stat_fields(int(name))
            except ProcessLookupError:
                continue
            session = int(fields[_SESSION])
            if session in used:
                used[session] += sum(map(int, fields[_TIMES])) / _TICKS
    return used
