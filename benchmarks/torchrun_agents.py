"""torchrun's elastic launch under our control: one agent for each worker, started and ended one by one.

How to run it so that it works at all is in the constants: with its own defaults a scale-up loses the job
(`TORCH_DISABLE_SHARE_RDZV_TCP_STORE` is the way out), and `max_restarts` has to be large, because each agent that
leaves costs one. `DEFAULTS` changes nothing else. `BEST` are the shortest waits with which joiners were still admitted
each time. All on loopback; the first agent hosts the rendezvous and has to stay.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from benchmarks.commit_log import CommitLog

SCRIPT = Path(__file__).parent / "linear_stack" / "train_torchrun.py"
MOST_WORKERS = 4
# For checkpoints: a user who cares for short restarts writes them to memory.
MEMORY = Path("/dev/shm")
PATIENCE = 15.0


@dataclass(frozen=True, slots=True)
class Setting:
    """How torchrun is started: further options of each agent."""

    name: str
    options: tuple[str, ...] = ()
    rendezvous: Mapping[str, str] = field(default_factory=dict)


DEFAULTS = Setting("torchrun, defaults")
BEST = Setting(
    "torchrun, best settings",
    options=("--monitor-interval=0.1",),
    rendezvous={"last_call_timeout": "1", "keep_alive_interval": "2", "keep_alive_max_attempt": "2"},
)


class TorchrunJob:
    """One elastic job, as a context manager that leaves no process behind.

    Args:
        folder: for its log, its checkpoint (unless `memory` is given) and what it prints; must be new or empty.
        setting: how its agents are started.
        arguments: of the script, see `linear_stack/network.py`.
        memory: folder for the checkpoint, such as one in /dev/shm.

    Attributes:
        log: its commit log.
        agents: those that run, the one that hosts the rendezvous first.
    """

    def __init__(self, folder: Path, setting: Setting, arguments: Sequence[str], memory: Path | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._setting = setting
        self._port = _free_port()
        self._commits = folder / "commits.jsonl"
        self._checkpoint = (memory or folder) / f"{folder.name}-{os.getpid()}.pt"
        self._arguments = list(arguments)
        self._started = 0
        self.agents: list[subprocess.Popen[bytes]] = []
        self._left: list[subprocess.Popen[bytes]] = []
        self.log = CommitLog(self._commits)

    def resize(self, workers: int) -> float:
        """Start agents, or end the youngest ones with SIGTERM, until there are `workers`; when that was begun.

        Seconds since the epoch. Returns at once.
        """
        begun = time.time()
        while len(self.agents) < workers:
            self.agents.append(self._start())
        leaving, self.agents = self.agents[workers:], self.agents[:workers]
        for agent in leaving:
            agent.terminate()
        self._left += leaving
        return begun

    def pids(self) -> list[int]:
        """Pids of the workers that live, in the order in which they started."""
        path = Path(f"{self._commits}.pids")
        pids = [int(line) for line in path.read_text().split()] if path.exists() else []
        return [pid for pid in pids if _is_ours(pid)]

    def trouble(self) -> str:
        """Why nothing more is to be expected, "" while all agents live."""
        ended = [agent for agent in self.agents if agent.poll() is not None]
        if not ended:
            return ""
        return f"an agent ended with code {ended[0].returncode}; its words are in {self._folder}"

    def __enter__(self) -> TorchrunJob:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # The host of the rendezvous last: without it the others would wait for it.
        everyone = [*self._left, *reversed(self.agents)]
        for agent in everyone:
            agent.terminate()
        for agent in everyone:
            try:
                agent.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                agent.kill()
                agent.wait()
        # A worker is a session of its own: an agent that was killed leaves it running.
        for pid in self.pids():
            os.kill(pid, signal.SIGKILL)
        self._checkpoint.unlink(missing_ok=True)
        self._checkpoint.with_suffix(".half").unlink(missing_ok=True)

    def _start(self) -> subprocess.Popen[bytes]:
        number, self._started = self._started, self._started + 1
        rendezvous = {"is_host": str(number == 0).lower(), **self._setting.rendezvous}
        command = [
            *(sys.executable, "-m", "torch.distributed.run"),
            *(f"--nnodes=1:{MOST_WORKERS}", "--nproc-per-node=1", "--max-restarts=1000"),
            *("--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{self._port}", "--rdzv-id=benchmark"),
            *("--local-addr=127.0.0.1", "--rdzv-conf=" + ",".join(f"{k}={v}" for k, v in rendezvous.items())),
            *self._setting.options,
            *(str(SCRIPT), *self._arguments, "--commits", str(self._commits), "--checkpoint", str(self._checkpoint)),
        ]
        with (self._folder / f"agent-{number}.log").open("ab") as output:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=environment(),
                start_new_session=True,
            )


def environment() -> dict[str, str]:
    """For torchrun and for the script alone: one thread a worker, no GPU, loopback only."""
    own = {
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
        "OMP_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "GLOO_SOCKET_IFNAME": "lo",
    }
    return {**os.environ, **own}


def _is_ours(pid: int) -> bool:
    """Whether this number still is a worker of the script."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return os.fsencode(SCRIPT) in command.split(b"\0")


def _free_port() -> int:
    """A port that nobody listens on, and that the system gives to nobody before torchrun binds it."""
    ephemeral = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        port = random.SystemRandom().randrange(min(10_000, ephemeral // 2), ephemeral)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
