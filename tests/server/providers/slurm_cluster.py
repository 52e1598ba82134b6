"""Debian's Slurm on this machine: munged, slurmctld and slurmd with one node, on loopback ports and in a folder."""

from __future__ import annotations

import os
import shutil
import subprocess

from tests import debian
from tests.server.providers.engines import Engine
from tests.server.providers.ports import free_port, listens
from tests.waiting import until, until_async

_SYSTEM = "/usr/sbin:/sbin:" + os.environ["PATH"]
_CONF = """\
ClusterName=edt
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={controller}
SlurmdPort={node}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/node
SlurmctldPidFile={folder}/controller.pid
SlurmdPidFile={folder}/node.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
KillWait=30
MessageTimeout=5
NodeName=localhost NodeAddr=127.0.0.1 CPUs=4 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


class SlurmEngine(Engine):
    """A node with four cores."""

    kind = "slurm"

    def __init__(self, folder):
        for name in ("slurmctld", "slurmd", "munged", "sbatch"):
            debian.found(lambda name=name: shutil.which(name, path=_SYSTEM), "slurm-wlm", "munge")
        if os.geteuid() != 0:
            raise debian.Missing("This needs root: slurmd starts jobs only for root.")
        super().__init__(folder)
        for each in ("munge", "state", "node"):
            (folder / each).mkdir(mode=0o755)
        # munged wants folders that no other account can write, up to the root.
        (folder / "munge/key").write_bytes(os.urandom(1024))
        (folder / "munge/key").chmod(0o600)
        self._ports = controller, node = free_port(), free_port()
        (folder / "slurm.conf").write_text(_CONF.format(folder=folder, controller=controller, node=node))
        os.environ["SLURM_CONF"] = str(folder / "slurm.conf")
        files = [f"--{kind}={folder}/munge/{name}" for kind, name in (
            ("key-file", "key"), ("socket", "socket"), ("pid-file", "pid"), ("log-file", "log"), ("seed-file", "seed"),
        )]  # fmt: skip
        self._others = [self._program("munged", "--foreground", "--force", *files)]
        until((folder / "munge/socket").exists, "munged to listen")
        self._controller = None
        self.heal()
        self._others.append(self._program("slurmd", "-D", "-N", "localhost"))
        until(lambda: "idle" in _output("sinfo", "--noheader", "--format=%T"), "the node to be idle")

    def settings(self):
        return {"sbatch": ["--cpus-per-task=1"], "spool": str(self.folder / "spool")}

    def break_(self):
        self._controller.terminate()  # it saves its jobs
        self._controller.wait()
        self._controller = None

    def heal(self):
        if self._controller is None:
            self._controller = self._program("slurmctld", "-D")
            until(lambda: listens(self._ports[0]), "slurmctld to listen")

    async def notice(self, host_id):
        (job,) = _output("squeue", "--noheader", f"--name={host_id}", "--format=%i").split()
        # In minutes, from the start of the job.
        await until_async(lambda: _output("scontrol", "update", f"jobid={job}", "TimeLimit=1") == "", "the new limit")

    def clean(self):
        _output("scancel", "--user=root", "--full", "--signal=KILL")
        super().clean()
        until(lambda: not _output("squeue", "--noheader"), "all jobs to end")

    def close(self):
        for process in (self._controller, *reversed(self._others)):
            process.terminate()
            process.wait()

    def _program(self, name, *arguments):
        with (self.folder / f"{name}.log").open("ab") as words:
            return subprocess.Popen([shutil.which(name, path=_SYSTEM), *arguments], stdout=words, stderr=words)


def _output(*command):
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    return ended.stdout + ended.stderr
