"""A real supervisor, started as the server starts it, with the real driver and workers, over real sockets."""

import asyncio
import os
import shutil
import signal
import sys

import pytest

from edt_sdk.schemas.job import JobSpec, JobState
from edt_sdk.schemas.wire.control import (
    DriverStarted,
    GenerationFormed,
    JobEnded,
    Refused,
    RunStarted,
    SlotReturned,
    StopJob,
    TrainingEnded,
    TrainingStarted,
)
from edt_server.outputs.logs import LogReader
from edt_server.supervisor.journal import read_journal
from tests.server.by_hand import JOB, PRINTS_AND_WAITS, Server, script, serving

pytestmark = pytest.mark.asyncio
# For what no training shows: its processes do not import torch.
PLAIN = JobSpec(name="digits", main="train.py", max_workers=1, framework="PyTorch")


async def test_a_job_grows_and_shrinks_and_finishes(tmp_path):
    async with serving(tmp_path) as server:
        server.allocate(0)
        server.submit(script(delay=0.004, epochs=3))
        await server.report(TrainingStarted, training=0, shards=2)
        await server.report(GenerationFormed, number=1, slots=(0,))
        server.allocate(0, 1)
        await server.report(GenerationFormed, number=2, slots=(0, 1))
        server.allocate(1)
        released = await server.report(SlotReturned, slot=0)
        assert (released.worker, released.exit_code) == (0, 0)
        ended = await server.report(JobEnded)
        await server.gone()
        message = "Finished: 1 training, 45 updates."
        assert ended == JobEnded(state=JobState.FINISHED, message=message, progress=server.last_progress)
        kinds = [type(report) for report in server.reports]
        assert kinds.index(DriverStarted) < kinds.index(TrainingStarted) < kinds.index(TrainingEnded)
        assert await server.report(SlotReturned, slot=1, exit_code=0)
        assert server.progress[-1].update == server.progress[-1].total_updates == 45
        assert {commit["world"] for commit in server.commits()} == {1, 2}
        assert server.stream("driver.stdout").endswith("after train\n")
        server.assert_nothing_left()
        lines = [line.text for line in LogReader(server.paths, stream="stdout").read(final=True).lines]
        assert lines[-1] == "after train"


async def test_a_job_without_slots_is_suspended_and_goes_on_later(tmp_path):
    async with serving(tmp_path) as server:
        server.allocate(0, 1)
        server.submit(script(delay=0.004, epochs=6))
        await server.both()
        server.allocate()
        await server.report(SlotReturned, slot=0, exit_code=0)
        await server.report(SlotReturned, slot=1, exit_code=0)
        assert not any(isinstance(report, JobEnded) for report in server.reports)
        committed = server.commits()
        server.allocate(5)
        formed = await server.report(GenerationFormed, slots=(5,))
        assert formed.update == len(committed)
        assert (await server.report(JobEnded)).state is JobState.FINISHED
        await server.gone()
        assert [commit["update"] for commit in server.commits()] == list(range(90))
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


async def test_a_stop_ends_everything_and_the_last_words_are_kept(tmp_path):
    async with serving(tmp_path) as server:
        server.allocate(0)
        server.submit(PRINTS_AND_WAITS.format(then="time.sleep(600)"))
        stdout = server.paths.streams_dir / "driver.stdout"
        await server.until(lambda: stdout.exists() and stdout.read_bytes(), "a word of the driver")
        server.control.send(JOB, StopJob(why="Stopped by ann."))
        ended = await server.report(JobEnded)
        await server.gone()
        assert ended == JobEnded(state=JobState.KILLED, message="Stopped by ann.", progress=server.last_progress)
        assert server.stream("driver.stdout") == "last words"
        # Also what the script had started in a session of its own is gone.
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
        server.submit(PRINTS_AND_WAITS.format(then="time.sleep(600)"), PLAIN)
        await server.report(RunStarted)
        await server.control.stop()
        server.on_hello = refuse
        await server.start()
        await server.gone()
        assert not any(isinstance(report, JobEnded) for report in server.reports)
        server.assert_nothing_left()


async def test_a_supervisor_that_is_told_to_end_ends_its_job(tmp_path):
    async with serving(tmp_path) as server:
        server.allocate(0)
        server.submit(PRINTS_AND_WAITS.format(then="time.sleep(600)"), PLAIN)
        await server.report(RunStarted)
        os.kill(server.identity.pid, signal.SIGTERM)
        assert (await server.report(JobEnded)).state is JobState.KILLED
        await server.gone()
        server.assert_nothing_left()


async def test_a_job_whose_folder_is_removed_ends(tmp_path):
    async with serving(tmp_path) as server:
        server.allocate(0)
        server.submit(PRINTS_AND_WAITS.format(then="time.sleep(600)"), PLAIN)
        await server.report(RunStarted)
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
