"""A real supervisor, started as the server starts it, with the real driver and workers, over real sockets."""

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
import pytest

from edt_sdk.schemas.control import (
    PROTOCOL,
    Allocation,
    DriverLost,
    DriverStarted,
    GenerationFormed,
    JobEnded,
    Launch,
    Refused,
    Slot,
    SlotReleased,
    StopJob,
    TrainingEnded,
    TrainingStarted,
    Welcome,
    WorkerLost,
)
from edt_sdk.schemas.job import JobSpec, JobState
from edt_sdk.schemas.paths import JobPaths
from edt_server.control import ControlServer
from edt_server.launcher import key_pair, launch, wait_gone
from edt_server.logs import LogReader
from edt_server.processes import is_alive
from edt_server.supervisor.journal import read_journal

pytestmark = pytest.mark.asyncio
# Its folder in memory is one of the machine: tests of other processes must not share it.
JOB = f"digits-{os.getpid()}"
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
        self.seen_pids = []

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

    def submit(self, source, **options):
        code = self.paths.submitted
        code.mkdir(parents=True)
        (code / "train.py").write_text(textwrap.dedent(source))
        options.setdefault("interpreter", sys.executable)
        self.orders = Launch(
            job_id=JOB,
            owner="ann",
            attempt=1,
            spec=JobSpec(name="digits", main="train.py", max_workers=2),
            data_dir=str(self.data_dir),
            runtime_dir=str(self.tmp_path / "run"),
            control_file=str(self.tmp_path / "control" / "server.json"),
            public_key=self.public,
            secret_key=self.secret,
            threads_per_slot=1,
            **options,
        )
        self.identity = launch(self.orders)

    def again(self):
        """A new attempt, after the supervisor of this one has died."""
        self.orders = msgspec.structs.replace(self.orders, attempt=self.orders.attempt + 1)
        self.identity = launch(self.orders)

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
            return await asyncio.wait_for(wait(), 60)
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
        await asyncio.wait_for(wait_gone(self.identity), 30)

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


async def test_a_job_grows_and_shrinks_and_finishes(tmp_path):
    async with serving(tmp_path) as server:
        server.allocate(0)
        server.submit(script(delay=0.004, epochs=3))
        await server.report(TrainingStarted, training=0, shards=2)
        await server.report(GenerationFormed, number=1, slots=(0,))
        server.allocate(0, 1)
        await server.report(GenerationFormed, number=2, slots=(0, 1))
        server.allocate(1)
        released = await server.report(SlotReleased, slot=0)
        assert (released.worker, released.exit_code) == (0, 0)
        ended = await server.report(JobEnded)
        await server.gone()
        assert ended == JobEnded(state=JobState.FINISHED, message="Finished: 1 training, 45 updates.")
        kinds = [type(report) for report in server.reports]
        assert kinds.index(DriverStarted) < kinds.index(TrainingStarted) < kinds.index(TrainingEnded)
        assert await server.report(SlotReleased, slot=1, exit_code=0)
        assert server.progress[-1].update == server.progress[-1].total_updates == 45
        assert {commit["world"] for commit in server.commits()} == {1, 2}
        assert server.stream("driver.stdout").endswith("after train\n")
        server.assert_nothing_left()
        lines = [line.text for line in LogReader(server.paths, stream="stdout").read(final=True).lines]
        assert lines[-1] == "after train"


async def test_a_killed_worker_is_replaced_and_nothing_is_lost(tmp_path):
    async with serving(tmp_path) as server:
        server.allocate(0, 1)
        server.submit(script(delay=0.004, epochs=6))
        formed = await server.both()
        os.kill(formed.pids[1], signal.SIGKILL)
        lost = await server.report(WorkerLost)
        assert (lost.slot, lost.pid, lost.exit_code, lost.member) == (formed.slots[1], formed.pids[1], -9, True)
        assert lost.why == f"Worker {formed.workers[1]} (rank 1, slot {formed.slots[1]}) was killed by SIGKILL."
        await server.report(GenerationFormed, workers=formed.workers[:1], number=formed.number + 1)
        ended = await server.report(JobEnded)
        await server.gone()
        assert ended == JobEnded(state=JobState.FINISHED, message="Finished: 1 training, 90 updates.")
        assert [commit["update"] for commit in server.commits()] == list(range(90))
        assert not server.memory.exists()
        server.assert_nothing_left()


async def test_all_workers_killed_at_once_are_replaced(tmp_path):
    async with serving(tmp_path) as server:
        server.allocate(0, 1)
        server.submit(script(delay=0.004, epochs=6))
        formed = await server.both()
        for pid in formed.pids:
            os.kill(pid, signal.SIGKILL)
        ended = await server.report(JobEnded)
        await server.gone()
        assert ended == JobEnded(state=JobState.FINISHED, message="Finished: 1 training, 90 updates.")
        assert [commit["update"] for commit in server.commits()] == list(range(90))
        server.assert_nothing_left()


async def test_a_stopped_worker_is_found_and_replaced(tmp_path):
    async with serving(tmp_path) as server:
        server.allocate(0, 1)
        server.submit(script(delay=0.01, epochs=6))
        formed = await server.both()
        os.kill(formed.pids[0], signal.SIGSTOP)
        lost = await server.report(WorkerLost)
        assert lost.why.endswith(" was stopped for 5 s and was replaced.")
        assert (await server.report(JobEnded)).state is JobState.FINISHED
        await server.gone()
        assert [commit["update"] for commit in server.commits()] == list(range(90))
        server.assert_nothing_left()


async def test_a_worker_that_hangs_is_found_and_replaced(tmp_path):
    flag = tmp_path / "hang"
    trouble = f"__import__('pathlib').Path({str(flag)!r}).exists() and (os.unlink({str(flag)!r}), time.sleep(600))"
    async with serving(tmp_path) as server:
        server.allocate(0)
        server.submit("    import os\n" + script(delay=0.004, epochs=6, trouble=trouble), hang_timeout=2.0)
        await server.report(GenerationFormed, number=1)
        await server.until(lambda: server.progress and server.progress[-1].update > 0, "an update")
        flag.touch()
        lost = await server.report(WorkerLost)
        assert "did not move for" in lost.why
        assert (await server.report(JobEnded)).state is JobState.FINISHED
        await server.gone()
        assert [commit["update"] for commit in server.commits()] == list(range(90))
        server.assert_nothing_left()


async def test_a_job_without_slots_is_suspended_and_goes_on_later(tmp_path):
    async with serving(tmp_path) as server:
        server.allocate(0, 1)
        server.submit(script(delay=0.004, epochs=6))
        await server.both()
        server.allocate()
        await server.report(SlotReleased, slot=0, exit_code=0)
        await server.report(SlotReleased, slot=1, exit_code=0)
        assert not any(isinstance(report, JobEnded) for report in server.reports)
        committed = server.commits()
        server.allocate(5)
        formed = await server.report(GenerationFormed, slots=(5,))
        assert formed.update == len(committed)
        assert (await server.report(JobEnded)).state is JobState.FINISHED
        await server.gone()
        assert [commit["update"] for commit in server.commits()] == list(range(90))
        server.assert_nothing_left()


async def test_a_killed_driver_runs_its_script_again_and_attaches(tmp_path):
    async with serving(tmp_path) as server:
        server.allocate(0)
        server.submit(script(delay=0.004, epochs=3))
        driver = await server.report(DriverStarted)
        await server.report(GenerationFormed, number=1)
        os.kill(driver.pid, signal.SIGKILL)
        lost = await server.report(DriverLost)
        assert (lost.pid, lost.exit_code, lost.why) == (driver.pid, -9, "The main script was killed by SIGKILL.")
        ended = await server.report(JobEnded)
        await server.gone()
        assert ended == JobEnded(state=JobState.FINISHED, message="Finished: 1 training, 45 updates.")
        assert sum(isinstance(report, TrainingStarted) for report in server.reports) == 1
        assert server.stream("driver.stdout").count("before train\n") == 2
        assert server.stream("driver.stdout").endswith("after train\n")
        server.assert_nothing_left()


@pytest.mark.parametrize("stopped", [False, True])
async def test_a_killed_supervisor_is_replaced_by_one_that_goes_on(tmp_path, stopped):
    async with serving(tmp_path) as server:
        server.allocate(0, 1)
        server.submit(script(delay=0.004, epochs=6))
        formed = await server.both()
        if stopped:
            # Its group cannot meet any more, and itself cannot end: both are ended by the next attempt.
            os.kill(formed.pids[1], signal.SIGSTOP)
        os.kill(server.identity.pid, signal.SIGKILL)
        await server.gone()
        assert server.memory.exists()
        server.allocate(0, 1)
        server.again()
        again = await server.report(GenerationFormed, number=formed.number + 1001)
        assert again.update > 0
        ended = await server.report(JobEnded)
        await server.gone()
        assert ended == JobEnded(state=JobState.FINISHED, message="Finished: 1 training, 90 updates.")
        assert sum(isinstance(report, TrainingStarted) for report in server.reports) == 1
        assert [commit["update"] for commit in server.commits()] == list(range(90))
        assert not server.memory.exists()
        server.assert_nothing_left()


async def test_a_data_set_that_raises_fails_the_job_with_the_reason(tmp_path):
    async with serving(tmp_path) as server:
        server.allocate(0)
        server.submit(script(trouble="raise ValueError(f'bad sample {index}')"))
        ended = await server.report(JobEnded)
        await server.gone()
        assert ended.state is JobState.FAILED
        assert ended.message.splitlines()[0].startswith("Worker 0 (rank 0, slot 0) failed: ")
        assert "bad sample" in ended.message
        server.assert_nothing_left()


async def test_a_job_survives_its_server_and_what_was_not_acknowledged_is_repeated(tmp_path):
    async with serving(tmp_path) as server:
        server.allocate(0)
        server.submit(script(delay=0.005))
        await server.report(GenerationFormed, number=1)
        key = (tmp_path / "control" / "server.key").read_bytes()
        known = len(server.reports)
        await server.control.stop()
        await server.until(
            lambda: any(isinstance(each.report, JobEnded) for each in read_journal(server.paths.journal)),
            "the end without a server",
        )
        assert len(server.reports) == known
        del server.reports[1:]  # this server was restored from an older copy of its store
        await server.start()
        assert (tmp_path / "control" / "server.key").read_bytes() == key
        assert (await server.report(JobEnded)).state is JobState.FINISHED
        await server.gone()
        assert server.reports == [each.report for each in read_journal(server.paths.journal)]
        server.assert_nothing_left()


PRINTS_AND_WAITS = """
    import os, subprocess, sys, time
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    print("last words", end="")
    {then}
"""


async def test_a_stop_ends_everything_and_the_last_words_are_kept(tmp_path):
    async with serving(tmp_path) as server:
        server.allocate(0)
        server.submit(PRINTS_AND_WAITS.format(then="time.sleep(600)"))
        stdout = server.paths.streams_dir / "driver.stdout"
        await server.until(lambda: stdout.exists() and stdout.read_bytes(), "a word of the driver")
        server.control.send(JOB, StopJob(why="Stopped by ann."))
        ended = await server.report(JobEnded)
        await server.gone()
        assert ended == JobEnded(state=JobState.KILLED, message="Stopped by ann.")
        assert server.stream("driver.stdout") == "last words"
        # Also what the script had started in a session of its own is gone.
        server.assert_nothing_left()


async def test_a_line_printed_in_the_instant_of_a_kill_is_kept(tmp_path):
    async with serving(tmp_path) as server:
        server.allocate(0)
        server.submit(PRINTS_AND_WAITS.format(then="os.kill(os.getpid(), 9)"))
        ended = await server.report(JobEnded)
        await server.gone()
        assert ended.state is JobState.FAILED
        assert ended.message == (
            "The main script was killed by SIGKILL. It was tried 2 times without progress in between.\n"
            "Last lines of driver.stdout:\nlast wordslast words"
        )
        batch = LogReader(server.paths, stream="stdout").read(final=True)
        assert [line.text for line in batch.lines] == ["last wordslast words"]
        sizes = [json.loads(line) for line in server.paths.stream_index.read_text().splitlines()]
        assert {"driver.stdout": 20}.items() <= {entry["f"]: entry["n"] for entry in sizes}.items()
        server.assert_nothing_left()


async def test_an_interpreter_without_edt_sdk_is_an_error(tmp_path):
    async with serving(tmp_path) as server:
        server.allocate(0)
        bare = tmp_path / "python"
        # -S: no site-packages, as in an environment where jupyter-edt is not installed.
        bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
        bare.chmod(0o755)
        server.submit("", interpreter=str(bare))
        ended = await server.report(JobEnded)
        await server.gone()
        assert ended.state is JobState.ERROR
        # Driver or worker, whoever is first.
        assert f" could not start: {bare} has no edt_sdk. Install jupyter-edt" in ended.message.splitlines()[0]
        server.assert_nothing_left()


async def test_a_refused_supervisor_ends_everything(tmp_path):
    async with serving(tmp_path) as server:

        async def refuse(job, hello):
            return Refused(why="Attempt 2 has taken over.")

        server.allocate(0)
        server.submit(PRINTS_AND_WAITS.format(then="time.sleep(600)"))
        await server.report(DriverStarted)
        await server.control.stop()
        server.on_hello = refuse
        await server.start()
        await server.gone()
        assert not any(isinstance(report, JobEnded) for report in server.reports)
        server.assert_nothing_left()


async def test_a_supervisor_that_is_told_to_end_ends_its_job(tmp_path):
    async with serving(tmp_path) as server:
        server.allocate(0)
        server.submit(PRINTS_AND_WAITS.format(then="time.sleep(600)"))
        await server.report(DriverStarted)
        os.kill(server.identity.pid, signal.SIGTERM)
        assert (await server.report(JobEnded)).state is JobState.KILLED
        await server.gone()
        server.assert_nothing_left()


async def test_a_job_whose_folder_is_removed_ends(tmp_path):
    async with serving(tmp_path) as server:
        server.allocate(0)
        server.submit(PRINTS_AND_WAITS.format(then="time.sleep(600)"))
        await server.report(DriverStarted)
        shutil.rmtree(server.paths.job_dir)
        await server.gone()
        server.assert_nothing_left()


async def test_a_supervisor_whose_end_is_known_already_does_not_wait_for_the_acknowledgement(tmp_path):
    async with serving(tmp_path) as server:

        async def commit_but_do_not_answer(job, numbered):
            await Server.on_report(server, job, numbered)
            if isinstance(numbered.report, JobEnded):
                server.restart = asyncio.create_task(restart())
                raise ConnectionError("the server ends between committing and answering")

        async def restart():
            await server.control.stop()
            server.on_hello = refuse
            await server.start()

        async def refuse(job, hello):
            return Refused(why="The job is KILLED.")

        await server.control.stop()
        server.on_report = commit_but_do_not_answer
        await server.start()
        server.allocate(0)
        server.submit(PRINTS_AND_WAITS.format(then="time.sleep(600)"))
        await server.report(DriverStarted)
        server.control.send(JOB, StopJob(why="Stopped."))
        await server.report(JobEnded)
        await server.gone()
        server.assert_nothing_left()
