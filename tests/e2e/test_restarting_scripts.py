"""torchrun scripts that a change of size would start from nothing, or end too early, keep their size and say why."""

from __future__ import annotations

from pathlib import Path

from edt_sdk.schemas.job import JobState
from tests.e2e.harness import Jobs
from tests.waiting import until

BLOCKER = """
import sys, time
from pathlib import Path
while not Path(sys.argv[1]).exists():
    time.sleep(0.05)
"""


def lines(folder: Path) -> list[str]:
    log = folder / "log"
    return log.read_text().splitlines() if log.exists() else []


def test_a_script_that_a_change_of_size_would_harm_keeps_its_size(four_slots: Jobs, tmp_path: Path) -> None:
    (tmp_path / "blocker.py").write_text(BLOCKER)
    gate = tmp_path / "open"
    blocker = four_slots.client.submit(
        tmp_path / "blocker.py", args=[str(gate)], framework="distPyTorch", max_workers=2, progress=False
    )
    until(lambda: blocker.refresh().state is JobState.RUNNING, "the job that has the other slots")
    jobs = {}
    for kind in ("nothing", "trainer"):
        folder = tmp_path / kind
        folder.mkdir()
        jobs[kind] = four_slots.submit("restarting.py", str(folder), kind, framework="torchrun", max_workers=3)
    until(lambda: "step 220" in lines(tmp_path / "trainer"), "step 220 of 396")
    until(lambda: "Trainer" in str(jobs["trainer"].refresh().reason), "the remark on the Trainer")
    until(lambda: "restarts from nothing" in str(jobs["nothing"].refresh().reason), "the remark on the checkpoint")
    gate.touch()
    blocker.wait(180)

    # The slots that came free are for a job whose owner asks for them by name.
    answer = jobs["nothing"].what_if(max_workers=2)
    assert [(each.now, each.then) for each in answer.shares] == [(1, 2), (1, 1)]
    assert "restarts from nothing: it has written no checkpoint" in repr(answer)
    assert "Write one with torch.save" in repr(answer)
    assert "restarts from nothing" in str(jobs["nothing"].story())
    assert "computes its number of steps from the number of workers" in str(jobs["trainer"].story())
    assert [len(job.workers()) for job in jobs.values()] == [1, 1]
    jobs["nothing"].update(max_workers=2)
    until(lambda: "starts with 2 at 0" in lines(tmp_path / "nothing"), "its start with two workers")

    for kind, job in jobs.items():
        (tmp_path / kind / "finish").touch()
        job.wait(180)
    assert [line for line in lines(tmp_path / "trainer") if "step" not in line] == [
        "starts with 1 at 0",
        "ends after 396",
    ]
