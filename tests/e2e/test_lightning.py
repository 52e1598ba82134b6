"""The script of the guide to Lightning, alone and as a job that changes its size and loses a worker."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.e2e.harness import Jobs
from tests.waiting import until

GUIDE = Path(__file__).parents[2] / "docs/guide/lightning.md"


def script(folder: Path, *, pause: float = 0.0) -> Path:
    """The guide's script. With a pause for each part it takes as long as changes of its size need."""
    (code,) = re.findall(r"^```python\n(import lightning.*?)^```", GUIDE.read_text(), re.DOTALL | re.MULTILINE)
    code = code.replace("torch.manual_seed(0)\n", "torch.set_num_threads(1)\ntorch.manual_seed(0)\n", 1)
    if pause:
        step = "    def training_step(self, batch, batch_idx):\n"
        code = "import time\n" + code.replace(step, f"{step}        time.sleep({pause})\n")
    folder.mkdir()
    (folder / "main.py").write_text(code)
    return folder


@pytest.mark.long  # six processes import Lightning
def test_the_script_of_the_guide_is_the_same_program_alone_and_as_a_job(four_slots: Jobs, tmp_path: Path) -> None:
    plain = script(tmp_path / "plain")
    said = subprocess.run(
        [sys.executable, "main.py"], cwd=plain, check=True, timeout=170, capture_output=True, text=True
    ).stdout
    job = four_slots.client.submit(script(tmp_path / "job", pause=0.1), max_workers=1, progress=False)
    until(lambda: job.refresh().view.progress and job.view.progress.update >= 5, "some updates", 120)
    job.update(max_workers=4)
    until(lambda: four_slots.worlds(job)[-1:] == [4], "four workers", 120)
    os.kill(four_slots.commits(job)[-1]["shards"][1]["pid"], signal.SIGKILL)
    until(lambda: 3 in four_slots.worlds(job), "three that go on", 120)
    job.update(max_workers=2)
    job.wait()
    assert job.state == "FINISHED", job.logs()
    (line,) = [line for line in said.splitlines() if line.startswith("after ")]
    assert line in job.logs()
    steps = int(line.split()[1])
    assert [commit["update"] for commit in four_slots.commits(job)] == list(range(steps))
    (path,) = plain.rglob("*.ckpt")
    stock = torch.load(path, weights_only=True)["state_dict"]
    results = four_slots.server.data_dir / "results"
    ours = torch.load(next(results.rglob(f"{job.id}/model/train/model_epoch_final.pth")), weights_only=True)
    assert all(torch.equal(stock[name], ours[name]) for name in stock)
