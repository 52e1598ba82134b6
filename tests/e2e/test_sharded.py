"""The script of the guide to big models, as a job that changes its size and loses a worker, beside a plain process."""

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

GUIDE = Path(__file__).parents[2] / "docs/guide/big-models.md"


def script(folder: Path, *, pause: float = 0.0) -> Path:
    """The guide's script, with a pause for each batch, so that it takes as long as changes of its size need."""
    (code,) = re.findall(r"^```python\n(.*?)^```", GUIDE.read_text(), re.DOTALL | re.MULTILINE)
    loop = "        for x in update:\n"
    folder.mkdir()
    (folder / "main.py").write_text("import time\n" + code.replace(loop, f"{loop}            time.sleep({pause})\n", 1))
    return folder


@pytest.mark.long  # eight processes
def test_the_script_of_the_guide_grows_loses_a_worker_and_shrinks(four_slots: Jobs, tmp_path: Path) -> None:
    plain = script(tmp_path / "plain")
    said = subprocess.run(
        [sys.executable, "main.py"], cwd=plain, check=True, timeout=170, capture_output=True, text=True
    ).stdout
    job = four_slots.client.submit(script(tmp_path / "job", pause=0.1), max_workers=1, mode="fast", progress=False)
    until(lambda: len(four_slots.commits(job)) >= 3, "some updates")
    job.update(max_workers=4)
    until(lambda: four_slots.worlds(job)[-1:] == [4], "four workers")
    job.update(max_workers=3)
    until(lambda: four_slots.worlds(job)[-1:] == [3], "three workers")
    os.kill(four_slots.commits(job)[-1]["shards"][-1]["pid"], signal.SIGKILL)
    until(lambda: "the job goes back from update" in job.logs(), "they go back")
    job.wait()
    assert job.state == "FINISHED", job.logs()
    assert [commit["update"] for commit in four_slots.commits(job)] == list(range(60))
    best, ours = (
        torch.load(path, weights_only=True)
        for path in (plain / "best.pth", Path(job.view.result_dir) / "model" / "train" / "best.pth")
    )
    for name, tensor in best.items():
        torch.testing.assert_close(ours[name], tensor, rtol=1e-2, atol=1e-4)
    losses = [line.split()[-1] for line in said.splitlines() if line.startswith("epoch ")]
    assert len(losses) == 6
    assert float(losses[-1]) < float(losses[0]) / 2
