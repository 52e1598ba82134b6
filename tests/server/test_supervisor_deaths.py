"""Processes of a real job die: workers, the driver, the supervisor itself. Nothing is lost, and nobody is left."""

import json
import os
import re
import signal

import pytest

from edt_sdk.schemas.job import JobSpec, JobState
from edt_sdk.schemas.wire.control import (
    DriverLost,
    DriverStarted,
    GenerationFormed,
    JobEnded,
    RunStarted,
    TrainingStarted,
    WorkerLost,
)
from edt_server.outputs.logs import LogReader
from tests.server.by_hand import PRINTS_AND_WAITS, script, serving

pytestmark = pytest.mark.asyncio


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
        assert ended == JobEnded(
            state=JobState.FINISHED, message="Finished: 1 training, 90 updates.", progress=server.last_progress
        )
        assert [commit["update"] for commit in server.commits()] == list(range(90))
        assert not server.memory.exists()
        server.assert_nothing_left()


@pytest.mark.long  # one worker here, all of them in training/member/test_recovery.py
async def test_all_workers_killed_at_once_are_replaced(tmp_path):
    async with serving(tmp_path) as server:
        server.allocate(0, 1)
        server.submit(script(delay=0.004, epochs=6))
        formed = await server.both()
        for pid in formed.pids:
            os.kill(pid, signal.SIGKILL)
        ended = await server.report(JobEnded)
        await server.gone()
        assert ended == JobEnded(
            state=JobState.FINISHED, message="Finished: 1 training, 90 updates.", progress=server.last_progress
        )
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


@pytest.mark.long  # the next one hangs and is replaced twice
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


async def test_a_job_that_hangs_at_the_same_place_ends_and_says_where(tmp_path):
    flag = tmp_path / "hang"
    trouble = f"__import__('pathlib').Path({str(flag)!r}).exists() and time.sleep(600)"
    async with serving(tmp_path) as server:
        server.allocate(0)
        server.submit(script(delay=0.004, epochs=600, trouble=trouble), hang_timeout=2.0)
        await server.report(GenerationFormed, number=1)
        await server.until(lambda: server.progress and server.progress[-1].update > 0, "an update")
        flag.touch()
        # Each hang is waited for by itself: one wait is no longer than a minute.
        await server.until(lambda: sum(isinstance(report, WorkerLost) for report in server.reports) == 2, "two hangs")
        ended = await server.report(JobEnded)
        await server.gone()
        assert ended.state is JobState.FAILED
        sentence, where, stack, innermost, *_ = ended.message.split("\n")
        worker, update = re.match(
            r"Worker (\d+) \(rank 0, slot 0\) did not move for \d+ s after update (\d+) and was killed\. "
            r"It was tried 3 times without progress in between\. The stack in its log shows where it hung\.",
            sentence,
        ).groups()
        assert int(update) == len(server.commits()), "the update that did not end"
        assert where == f"Last lines of worker-{worker}.stderr:"
        assert stack.endswith("(most recent call first):")
        assert innermost.endswith(" in __getitem__")
        assert sum(isinstance(report, WorkerLost) for report in server.reports) == 2
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
        assert ended == JobEnded(
            state=JobState.FINISHED, message="Finished: 1 training, 45 updates.", progress=server.last_progress
        )
        assert sum(isinstance(report, TrainingStarted) for report in server.reports) == 1
        assert server.stream("driver.stdout").count("before train\n") == 2
        assert server.stream("driver.stdout").endswith("after train\n")
        server.assert_nothing_left()


@pytest.mark.parametrize("stopped", [pytest.param(False, marks=pytest.mark.long), True])
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
        assert ended == JobEnded(
            state=JobState.FINISHED, message="Finished: 1 training, 90 updates.", progress=server.last_progress
        )
        assert sum(isinstance(report, TrainingStarted) for report in server.reports) == 1
        assert [commit["update"] for commit in server.commits()] == list(range(90))
        assert not server.memory.exists()
        server.assert_nothing_left()


async def test_what_a_plain_script_has_started_ends_with_its_killed_supervisor(tmp_path):
    source = """
    import os, subprocess, sys, time
    if os.path.exists(os.environ["CHECKPOINT_DIR"] + "/begun"):
        sys.exit(0)
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    open(os.environ["CHECKPOINT_DIR"] + "/begun", "w").close()
    print(child.pid, flush=True)
    time.sleep(600)
    """
    async with serving(tmp_path) as server:
        server.allocate(0)
        server.submit(source, JobSpec(name="script", main="train.py", max_workers=1, framework="PyTorch"))
        await server.report(RunStarted)
        output = server.paths.streams_dir / "worker-0.stdout"
        child = int(await server.until(lambda: output.exists() and output.read_text(), "the child"))
        assert child in server.processes()
        os.kill(server.identity.pid, signal.SIGKILL)
        await server.gone()
        await server.until(lambda: not server.processes(), "the end of all its processes")
        server.again()
        ended = await server.report(JobEnded)
        await server.gone()
        assert ended == JobEnded(
            state=JobState.FINISHED,
            message="Finished: the main script ended with exit code 0.",
            progress=server.last_progress,
        )
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
