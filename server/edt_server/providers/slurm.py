"""Provide machines by jobs of Slurm, by its commands alone: `sbatch`, `squeue` and `scancel`.

Each machine is a job under its id. A job may wait for days, so its token is made when it runs: the job waits for a file
(0600) in a folder that the server and the nodes share, the spool. A file is preferred to the job's script, which Slurm
keeps and may archive, and to `srun`, which would have to stay connected. The job opens the file, removes it, and passes
it to the agent as stdin. An empty file next to it marks that the agent was started, for a server that comes back.
"""

from __future__ import annotations

import getpass
import shlex
import time
from collections.abc import Mapping
from pathlib import Path

from edt_server.providers.level import LevelProvider, call
from edt_server.providers.provider import NOTICE, Provided, ProvidedState, ProviderSettings
from edt_server.system.private_files import make_private_dir, write_private

_SCRIPT = """\
#!/bin/sh
umask 077
left=900
# Listing the folder makes a network file system look again.
until ls {spool} >/dev/null; [ -s {token} ]; do left=$((left - 1)); [ $left -gt 0 ] || exit 1; sleep 1; done
exec 3<{token}
: >{up}
rm -f {token}
# The agent replaces this shell, which Slurm sends SIGTERM to before the job's end.
exec {agent} <&3
"""
_WAITING = {"PENDING", "CONFIGURING", "REQUEUED"}
_RUNNING = {"RUNNING", "SUSPENDED", "STOPPED", "RESIZING"}
_ENDING = {"COMPLETING", "SIGNALING", "STAGE_OUT"}


class SlurmSettings(ProviderSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of the provider slurm.

    Attributes:
        sbatch: arguments of sbatch, such as `["-p", "gpu", "--gres=gpu:4", "--time=8:00:00", "--exclusive"]`.
        spool: a folder that the server and the nodes see under this path, "" for `.edt-slurm` in the home folder.
    """

    sbatch: tuple[str, ...] = ()
    spool: str = ""


class SlurmProvider(LevelProvider[SlurmSettings]):
    """One job of Slurm for each machine."""

    poll = 10.0

    @property
    def _spool(self) -> Path:
        return Path(self.settings.spool or Path.home() / ".edt-slurm").absolute()

    def _file(self, host_id: str, kind: str) -> Path:
        return self._spool / f"{host_id}.{kind}"

    async def _look(self) -> Mapping[str, Provided]:
        # All states: Slurm keeps ended jobs for a while, with the reason. Times are in seconds since the epoch.
        listed = await call(
            ["squeue", "--noheader", "--states=all", f"--user={getpass.getuser()}", "--format=%j|%T|%e|%r"],
            passing="SLURM_*",
            environ={"SLURM_TIME_FORMAT": "%s"},
        )
        seen = {}
        for line in listed.splitlines():
            host_id, _, rest = line.strip().partition("|")
            if host_id.rpartition("-")[0] == self.mark:
                seen[host_id] = self._machine(host_id, *rest.split("|", 2))
        for path in self._spool.glob(f"{self.mark}-*.*"):
            there, ours = seen.get(path.stem), path.stem.rpartition("-")[0] == self.mark
            over = there is None or there.state is ProvidedState.GONE
            if ours and over and path.suffix in (".token", ".up"):
                path.unlink(missing_ok=True)
        return seen

    def _machine(self, host_id: str, state: str, end: str, reason: str = "") -> Provided:
        until = float(end) if end.isdecimal() else None
        why = f"Slurm: {state.lower()}" + (f", {reason}." if reason not in ("", "None") else ".")
        if state in _WAITING:
            return Provided(host_id, ProvidedState.ASKED, why)
        if state in _RUNNING:
            up = self._file(host_id, "up").exists()
            ending = until is not None and until - time.time() <= NOTICE
            why = "The time limit of its Slurm job is near." if ending else "" if state == "RUNNING" else why
            return Provided(host_id, ProvidedState.UP if up else ProvidedState.STARTING, why, until)
        if state in _ENDING:
            return Provided(host_id, ProvidedState.DRAINING, why, time.time())
        return Provided(host_id, ProvidedState.GONE, why)

    async def _start(self, host_id: str) -> None:
        make_private_dir(self._spool)
        command = [
            "sbatch", "--parsable", "--no-requeue", f"--signal=B:TERM@{NOTICE}", f"--job-name={host_id}",
            f"--output={self._file(host_id, 'log')}", *self.settings.sbatch,
        ]  # fmt: skip
        script = _SCRIPT.format(
            spool=shlex.quote(str(self._spool)),
            token=shlex.quote(str(self._file(host_id, "token"))),
            up=shlex.quote(str(self._file(host_id, "up"))),
            agent=shlex.join(self._join(host_id)),
        )
        await call(command, script.encode(), passing="SLURM_*")

    async def _admit(self, host_id: str, token: str) -> None:
        write_private(self._file(host_id, "token"), f"{token}\n".encode())

    async def _stop(self, host_id: str) -> None:
        await call(["scancel", f"--user={getpass.getuser()}", f"--name={host_id}"], passing="SLURM_*")
