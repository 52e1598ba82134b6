"""What the service does for one job, done by hand: a control channel, slots, and reports as they come in."""

import asyncio
import contextlib
import json
import os
import pathlib
import shutil
import signal
import sys
import textwrap

import msgspec

from edt_sdk.schemas.job import JobSpec
from edt_sdk.schemas.wire.control import (
    PROTOCOL,
    Allocation,
    GenerationFormed,
    Launch,
    Slot,
    Welcome,
)
from edt_sdk.schemas.wire.paths import JobPaths
from edt_server.channel.control import ControlServer
from edt_server.channel.launcher import launch, wait_gone
from edt_server.messaging import key_pair
from edt_server.system.processes import is_alive

# Its folder in memory is one of the machine: tests of other processes must not share it.
JOB = f"digits-{os.getpid()}"
SPEC = JobSpec(name="digits", main="train.py", max_workers=2)
TRAIN = """
    import time, torch
    from torch.utils.data import TensorDataset
    from fabric_model import FabricModel

    def datasets():
        generator = torch.Generator().manual_seed(1)
        x = torch.randn(240, 5, generator=generator)
        return Slow(x, (x.sum(1) > 0).long()), None

    class Slow(TensorDataset):
        def __getitem__(self, index):
            time.sleep({delay})
            {trouble}
            return super().__getitem__(index)

    print("before train", flush=True)
    torch.manual_seed(0)
    model = torch.nn.Linear(5, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    FabricModel(model, datasets, torch.nn.functional.cross_entropy, optimizer).train({epochs}, 8, 2)
    print("after train", flush=True)
"""

PRINTS_AND_WAITS = """
    import os, subprocess, sys, time
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    print("last words", end="")
    {then}
"""


class Server:
    """What the service does for one job, by hand."""

    def __init__(self, tmp_path):
        self.tmp_path = tmp_path
        self.data_dir = tmp_path / "data"
        self.paths = JobPaths(self.data_dir, "ann", JOB)
        self.reports = []
        self.progress = []
        self.version = 0
        self.slots = ()
        self.changed = asyncio.Event()
        self.identity = None
        self.control = None
        self.public, self.secret = key_pair()

    async def start(self):
        self.control = ControlServer(
            self.tmp_path / "control",
            on_hello=self.on_hello,
            on_report=self.on_report,
            on_progress=lambda job, progress: self.progress.append(progress),
            on_connected=lambda job: self.allocate(*self.slots),
        )
        await self.control.start()
        self.control.admit(JOB, self.public)

    async def on_hello(self, job, hello):
        assert job == JOB
        return Welcome(protocol=PROTOCOL, acknowledged=len(self.reports))

    async def on_report(self, job, numbered):
        if numbered.number == len(self.reports) + 1:
            self.reports.append(numbered.report)
        self.changed.set()

    def allocate(self, *slots):
        self.slots = slots
        self.version += 1
        self.control.send(
            JOB, Allocation(version=self.version, slots=tuple(Slot(id=slot, host="localhost") for slot in slots))
        )

    def submit(self, source, spec=SPEC, **options):
        code = self.paths.submitted
        code.mkdir(parents=True)
        (code / "train.py").write_text(textwrap.dedent(source))
        options.setdefault("interpreter", sys.executable)
        self.orders = Launch(
            job_id=JOB,
            owner="ann",
            attempt=1,
            spec=spec,
            data_dir=str(self.data_dir),
            runtime_dir=str(self.tmp_path / "run"),
            control_file=str(self.tmp_path / "control" / "server.json"),
            public_key=self.public,
            secret_key=self.secret,
            threads_per_slot=1,
            **options,
        )
        self.identity = launch(self.orders, os.environ)

    def again(self):
        """A new attempt, after the supervisor of this one has died."""
        self.orders = msgspec.structs.replace(self.orders, attempt=self.orders.attempt + 1)
        self.identity = launch(self.orders, os.environ)

    @property
    def last_progress(self):
        """What the report of the job's end repeats, None for a job without progress."""
        return self.progress[-1] if self.progress else None

    @property
    def memory(self):
        return pathlib.Path(f"/dev/shm/edt-{os.getuid()}-{JOB}")

    async def until(self, condition, what):
        async def wait():
            while True:
                self.changed.clear()
                found = condition()
                if found:
                    return found
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self.changed.wait(), 0.1)

        try:
            return await asyncio.wait_for(wait(), 180)
        except TimeoutError:
            log = self.paths.supervisor_log.read_text() if self.paths.supervisor_log.exists() else ""
            raise AssertionError(f"{what} did not happen: {self.reports}\n{log}") from None

    async def report(self, kind, **fields):
        def find():
            for report in self.reports:
                if isinstance(report, kind) and all(getattr(report, name) == value for name, value in fields.items()):
                    return report

        return await self.until(find, f"{kind.__name__} {fields}")

    async def both(self):
        """The first generation of two workers, whoever was ready first."""

        def find():
            return next((r for r in self.reports if isinstance(r, GenerationFormed) and len(r.workers) == 2), None)

        return await self.until(find, "a generation of two workers")

    async def gone(self):
        await asyncio.wait_for(wait_gone(self.identity), 180)

    def processes(self):
        """Pids of all processes of the job."""
        found = []
        for entry in os.listdir("/proc"):
            if entry.isdecimal():
                with contextlib.suppress(OSError), open(f"/proc/{entry}/environ", "rb") as environ:
                    if str(self.data_dir).encode() in environ.read():
                        found.append(int(entry))
        return found

    def stream(self, name):
        return (self.paths.streams_dir / name).read_text()

    def commits(self):
        return [json.loads(line) for line in self.paths.commits(0).read_text().splitlines()]

    def assert_nothing_left(self):
        assert not is_alive(self.identity)
        assert self.processes() == []
        assert not (self.tmp_path / "run" / "link.sock").exists()


@contextlib.asynccontextmanager
async def serving(tmp_path):
    server = Server(tmp_path)
    await server.start()
    try:
        yield server
    finally:
        if server.identity is not None:
            for pid in [server.identity.pid, *server.processes()]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            await server.gone()
        shutil.rmtree(server.memory, ignore_errors=True)
        await server.control.stop()


def script(delay=0.001, trouble="pass", epochs=2):
    return TRAIN.format(delay=delay, trouble=trouble, epochs=epochs)
