"""The scripts of the guide to Hugging Face's Trainer, alone and as a job that changes its size and loses a worker."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.harness import Jobs
from tests.waiting import until

pytestmark = pytest.mark.long  # its siblings are in tests/training/elastic
pytest.importorskip("transformers")
GUIDE = Path(__file__).parents[2] / "docs/guide/hugging-face.md"
SLOW = """
import time

class Slow(list):
    def __getitem__(self, index):
        time.sleep({})
        found = super().__getitem__(index)
        return Slow(found) if isinstance(index, slice) else found

"""
FILES = ("model/final/model.safetensors", "model/train/final.pth")


def script(number: int, folder: Path, *, pause: float = 0.0) -> Path:
    """A script of the guide. With a pause for each sample it takes as long as changes of its size need."""
    code = re.findall(r"^```python\n(.*?)^```", GUIDE.read_text(), re.DOTALL | re.MULTILINE)[number]
    code = code.replace("torch.manual_seed(0)\n", "torch.set_num_threads(1)\ntorch.manual_seed(0)\n", 1)
    code = code.replace("Accelerator()", 'Accelerator(mixed_precision="bf16")')
    if pause:
        code = SLOW.format(pause) + re.sub(r"^(texts = .*)$", r"\1\ntexts = Slow(texts)", code, flags=re.MULTILINE)
    folder.mkdir()
    (folder / "main.py").write_text(code)
    return folder


@pytest.mark.parametrize("number", [0, 1], ids=["trainer", "accelerate"])
def test_a_script_of_the_guide_is_the_same_program_alone_and_as_a_job(
    number: int, four_slots: Jobs, tmp_path: Path
) -> None:
    plain = script(number, tmp_path / "plain")
    said = subprocess.run(
        [sys.executable, "main.py"], cwd=plain, check=True, timeout=170, capture_output=True, text=True
    ).stdout
    job = four_slots.client.submit(script(number, tmp_path / "job", pause=0.01), max_workers=1, progress=False)
    until(lambda: job.refresh().view.progress and job.view.progress.update >= 10, "some updates")
    job.update(max_workers=4)
    until(lambda: four_slots.worlds(job)[-1:] == [4], "four workers")
    os.kill(four_slots.commits(job)[-1]["shards"][1]["pid"], signal.SIGKILL)
    until(lambda: 3 in four_slots.worlds(job), "three that go on")
    job.update(max_workers=2)
    job.wait()
    assert job.state == "FINISHED", job.logs()
    losses = [line for line in said.splitlines() if line.startswith(("epoch ", "best loss"))]
    assert losses
    assert [line for line in losses if line not in job.logs()] == []
    assert [commit["update"] for commit in four_slots.commits(job)] == list(range(35))
    ours = Path(job.view.result_dir) / FILES[number]
    theirs = plain / FILES[number].removeprefix("model/").removeprefix("train/")
    assert ours.read_bytes() == theirs.read_bytes()
