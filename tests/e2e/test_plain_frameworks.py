"""`PyTorch`, `distPyTorch` and commands: scripts that know nothing of us, on a real server."""

from __future__ import annotations

import json
import os
import signal
import textwrap
from pathlib import Path
from typing import Any

import pytest

from edt_sdk import Job, JobFailed, Unprocessable
from edt_sdk.schemas.job import JobState
from edt_sdk.testing import LocalServer
from tests.e2e.harness import Jobs
from tests.waiting import until

ALL_REDUCE = """
    import json, os, sys
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    total = torch.tensor([float(rank + 1)])
    dist.all_reduce(total)
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK", "WMLA_NWORKER", "LOG_DIR")
    found = {"sum": total.item(), **{name: os.environ[name] for name in names}}
    with open(os.path.join(os.environ["RESULT_DIR"], "model", f"rank-{rank}.json"), "w") as file:
        json.dump(found, file)
    dist.barrier()
    dist.destroy_process_group()
    print("rank", rank, "is done", sys.argv[1:])
"""
# Writes down that it runs, and goes on until a file is there.
WAITS = """
    import os, sys, time

    place = os.environ["RESULT_DIR"]
    with open(os.path.join(place, "starts"), "a") as file:
        file.write(f"{os.environ.get('RANK', '-')} {os.getpid()}\\n")
    print("runs", flush=True)
    while not os.path.exists(os.path.join(place, "go")):
        time.sleep(0.02)
    print("goes", flush=True)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "code"
    made.mkdir()
    return made


def submit(jobs: Jobs, folder: Path, source: str = "", **options: Any) -> Job:
    if source:
        (folder / "train.py").write_text(textwrap.dedent(source))
    return jobs.client.submit(folder, progress=False, **options)


def starts(job: Job) -> list[list[str]]:
    """Rank and pid of each process of the job that began, in their order."""
    path = Path(job.view.result_dir) / "starts"
    return [line.split() for line in path.read_text().splitlines()] if path.exists() else []


def let_go(job: Job) -> None:
    (Path(job.view.result_dir) / "go").touch()


def told(job: Job, kind: str) -> list[str]:
    return [event.text for event in job.story() if event.kind == kind]


def gone(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def test_a_script_runs_as_python_runs_it(four_slots: Jobs, folder: Path) -> None:
    (folder / "beside.py").write_text("WORD = 'beside'\n")
    job = submit(
        four_slots,
        folder,
        """
        import os, sys
        print("torch is imported by the script alone:", "torch" not in sys.modules)
        import torch
        from beside import WORD

        print(WORD, __name__, sys.argv, os.getcwd() == os.environ["DLI_WORK_DIR"])
        print("RANK" in os.environ, os.environ["FRAME_WORK"], os.environ["DLI_IS_ELASTIC"])
        torch.save({"w": torch.ones(2)}, os.path.join(os.environ["RESULT_DIR"], "model", "net.pt"))
        """,
        framework="PyTorch",
        args=["--lr", "0.1"],
    )
    job.wait(300)
    log = str(job.logs())
    assert "beside __main__ ['train.py', '--lr', '0.1'] True" in log
    assert "False PyTorch false" in log
    assert "torch is imported by the script alone: True" in log
    assert job.view.framework == "PyTorch"
    assert (job.view.message, job.view.shards) == ("Finished: the main script ended with exit code 0.", None)
    assert (Path(job.view.result_dir) / "model" / "net.pt").is_file()
    assert not (Path(job.view.result_dir) / "model" / "train").exists()
    assert len(told(job, "run_started")) == 1


def test_three_ranks_add_up(four_slots: Jobs, folder: Path) -> None:
    job = submit(four_slots, folder, ALL_REDUCE, framework="distPyTorch", max_workers=3, args=["--x"])
    job.wait(300)
    found = [json.loads((Path(job.view.result_dir) / "model" / f"rank-{n}.json").read_text()) for n in range(3)]
    assert [each["sum"] for each in found] == [6.0, 6.0, 6.0]
    assert [(each["RANK"], each["WORLD_SIZE"], each["NODE_RANK"]) for each in found] == [
        (str(rank), "3", str(rank)) for rank in range(3)
    ]
    assert {(each["LOCAL_RANK"], each["LOCAL_WORLD_SIZE"], each["WMLA_NWORKER"]) for each in found} == {("0", "1", "3")}
    assert all(Path(each["LOG_DIR"]).is_dir() for each in found)
    assert len({each["LOG_DIR"] for each in found}) == 3
    log = str(job.logs())
    assert all(f"rank {rank} is done ['--x']" in log for rank in range(3))
    assert (job.view.min_workers, job.view.max_workers) == (3, 3)


def test_a_command_in_a_shell_finds_the_job_s_python(four_slots: Jobs, folder: Path) -> None:
    (folder / "say.py").write_text("import sys, torch, emetrics\nprint(sys.argv[1:], sys.executable)\n")
    job = submit(
        four_slots,
        folder,
        framework="distPyTorch",
        max_workers=2,
        command="python say.py $RANK-of-$WMLA_NWORKER; exit 0",
    )
    job.wait(300)
    log = str(job.logs())
    assert "['0-of-2']" in log
    assert "['1-of-2']" in log
    assert "the command ended with exit code 0 on all ranks" in job.view.message


def test_one_process_holds_all_slots_of_a_job(four_slots: Jobs, folder: Path) -> None:
    job = submit(four_slots, folder, WAITS, framework="PyTorch", max_workers=3)
    until(lambda: starts(job), "the script")
    assert (job.refresh().view.slots, len(job.workers())) == (3, 1)
    assert job.refresh().state is JobState.RUNNING
    with pytest.raises(Unprocessable, match="no more and no fewer"):
        job.update(max_workers=2)
    let_go(job)
    job.wait(300)
    assert len(starts(job)) == 1


def test_the_last_lines_of_a_script_that_fails(four_slots: Jobs, folder: Path) -> None:
    job = submit(four_slots, folder, "def f():\n    return 1 / 0\nf()\n", framework="PyTorch")
    with pytest.raises(JobFailed, match="exit code 1") as failed:
        job.wait(300)
    assert "ZeroDivisionError" in str(failed.value)
    assert "edt_sdk" not in str(failed.value)


def test_one_rank_that_fails_ends_the_others(four_slots: Jobs, folder: Path) -> None:
    source = """
        import os, time
        if os.environ["RANK"] == "1":
            raise OSError("the disk is full")
        time.sleep(600)
    """
    job = submit(four_slots, folder, source, framework="distPyTorch", max_workers=3)
    with pytest.raises(JobFailed, match=r"Rank 1 .*exit code 1") as failed:
        job.wait(300)
    assert "OSError: the disk is full" in str(failed.value)
    assert job.id not in {each["id"] for each in four_slots.client.cluster()["jobs"]}


def test_a_command_that_is_not_there(four_slots: Jobs, folder: Path) -> None:
    (folder / "notes.txt").write_text("nothing")
    job = submit(four_slots, folder, framework="PyTorch", command=["no-such-program", "--x"])
    with pytest.raises(JobFailed, match="there is no program 'no-such-program'"):
        job.wait(300)


def test_stopped_nothing_is_left(four_slots: Jobs, folder: Path) -> None:
    (folder / "forever.py").write_text(textwrap.dedent(WAITS))
    # The shell stays, and is the parent of what it starts.
    job = submit(four_slots, folder, framework="PyTorch", command="python forever.py; echo behind")
    until(lambda: starts(job), "the program")
    job.stop()
    with pytest.raises(JobFailed, match="Stopped by"):
        job.wait(300)
    until(lambda: gone(starts(job)[0][1]), "the end of the program")
    assert "behind" not in str(job.logs())


def test_suspended_it_begins_again_at_the_beginning(four_slots: Jobs, folder: Path) -> None:
    job = submit(four_slots, folder, WAITS, framework="distPyTorch", max_workers=2)
    until(lambda: len(starts(job)) == 2, "both ranks")
    job.suspend()
    until(lambda: job.refresh().state is JobState.SUSPENDED, "the suspension")
    assert job.view.slots == 0
    assert all(gone(pid) for _, pid in starts(job))
    job.resume()
    until(lambda: len(starts(job)) == 4, "both ranks again")
    let_go(job)
    job.wait(300)
    assert ["from the beginning" in text for text in told(job, "run_started")] == [False, True]
    assert "begin again from the beginning" in told(job, "run_stopped")[0]


@pytest.mark.long
def test_stopped_and_resumed_it_begins_again_too(four_slots: Jobs, folder: Path) -> None:
    job = submit(four_slots, folder, WAITS, framework="PyTorch")
    until(lambda: starts(job), "the script")
    job.stop()
    with pytest.raises(JobFailed, match="Stopped by"):
        job.wait(300)
    job.resume()
    until(lambda: len(starts(job)) == 2, "the script again")
    let_go(job)
    job.wait(300)
    assert "from the beginning" in told(job, "run_started")[1]


def test_it_waits_until_it_can_have_all_its_slots(four_slots: Jobs, folder: Path) -> None:
    first = submit(four_slots, folder, WAITS, framework="PyTorch", max_workers=2, name="first")
    until(lambda: starts(first), "the first job")
    second = submit(four_slots, folder, WAITS, framework="distPyTorch", max_workers=4, name="second")
    until(lambda: second.refresh().state is JobState.PENDING, "the second job to wait")
    assert second.view.reason is not None
    assert (second.view.reason.held, second.view.reason.asked) == (0, 4)
    assert first.refresh().view.slots == 2
    let_go(first)
    first.wait(300)
    until(lambda: len(starts(second)) == 4, "all its ranks")
    let_go(second)
    second.wait(300)


@pytest.mark.long
def test_elastic_jobs_make_room_and_take_nothing_back(four_slots: Jobs, folder: Path) -> None:
    elastic = four_slots.submit("forever.py", name="elastic", priority=10**6)
    until(lambda: four_slots.worlds(elastic)[-1:] == [4], "four workers")
    gang = submit(four_slots, folder, WAITS, framework="distPyTorch", max_workers=3, priority=1)
    until(lambda: len(starts(gang)) == 3, "its ranks")
    until(lambda: four_slots.worlds(elastic)[-1:] == [1], "one worker")
    assert gang.refresh().view.slots == 3
    let_go(gang)
    gang.wait(300)
    until(lambda: four_slots.worlds(elastic)[-1:] == [4], "four workers again")
    elastic.stop()


def test_a_supervisor_that_is_killed_leaves_nothing_running(four_slots: Jobs, folder: Path) -> None:
    (folder / "forever.py").write_text(textwrap.dedent(WAITS))
    job = submit(four_slots, folder, framework="PyTorch", command="python forever.py; echo behind")
    (_, first), *_ = until(lambda: starts(job), "the program")
    shell = job.workers()[0]["pid"]
    parent = int(Path(f"/proc/{shell}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(parent, signal.SIGKILL)
    until(lambda: len(starts(job)) == 2, "the program again")
    assert gone(first)
    assert gone(str(shell))
    let_go(job)
    job.wait(300)
    assert any("attempt 2" in event.text for event in job.story())


@pytest.mark.long
def test_a_server_that_is_killed_does_not_touch_it(tmp_path: Path, folder: Path) -> None:
    with LocalServer(tmp_path / "server", slots=2) as server:
        job = submit(Jobs(server), folder, WAITS, framework="distPyTorch", max_workers=2)
        until(lambda: len(starts(job)) == 2, "both ranks")
        server.kill()
        let_go(job)
        until(lambda: all(gone(pid) for _, pid in starts(job)), "the end of the script")
        server.start()
        again = server.client().job(job.id)
        again.wait(300)
        assert again.view.state is JobState.FINISHED
        assert len(starts(job)) == 2


def test_train_belongs_to_the_elastic_engine(four_slots: Jobs, folder: Path) -> None:
    source = """
        import torch
        from fabric_model import FabricModel

        model = torch.nn.Linear(2, 2)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        FabricModel(model, lambda: (None, None), torch.nn.functional.mse_loss, optimizer).train(1, 8, 2)
    """
    job = submit(four_slots, folder, source, framework="PyTorch", data_path="mnist")
    with pytest.raises(JobFailed, match="framework='edtPyTorch'"):
        job.wait(300)
    # What it asked for and this server has not, before anything went wrong.
    assert "DATA_DIR is not set" in told(job, "remark")[0]


@pytest.mark.long
def test_two_jobs_of_ranks_at_once_find_each_its_own_peers(four_slots: Jobs, folder: Path) -> None:
    (folder / "train.py").write_text(textwrap.dedent(ALL_REDUCE))
    both = [submit(four_slots, folder, framework="distPyTorch", max_workers=2) for _ in range(2)]
    for job in both:
        job.wait(300)
        found = [json.loads((Path(job.view.result_dir) / "model" / f"rank-{n}.json").read_text()) for n in range(2)]
        assert [each["sum"] for each in found] == [3.0, 3.0]
