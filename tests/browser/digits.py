"""What the pictures of the guides show: the project of somebody who trains on handwritten digits, and its trainings."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path

from edt_sdk import Job
from edt_sdk.schemas.errors import Conflict
from edt_sdk.testing import LocalServer
from tests.browser.screen import ROOT
from tests.waiting import until

# Images that take a while to read, so that a training lasts as long as one looks at it.
FROM_A_DISK = """

class FromADisk(torch.utils.data.Dataset):
    def __init__(self, images):
        self.images = images

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        time.sleep(0.004)
        return self.images[index]
"""


def project(home: Path) -> None:
    """Put the digits of `notebooks/` there, slower, and data beside them."""
    shutil.copytree(ROOT / "notebooks" / "digits", home / "digits", ignore=shutil.ignore_patterns("__pycache__"))
    model, train = home / "digits" / "model.py", home / "digits" / "train.py"
    text = model.read_text().replace("import torch\n", "import time\n\nimport torch\n", 1)
    text = text.replace("return TensorDataset(images[train]", "return FromADisk(TensorDataset(images[train]", 1)
    text = text.replace("labels[train]),", "labels[train])),", 1)
    model.write_text(text.replace("\n\ndef datasets", FROM_A_DISK + "\n\ndef datasets", 1))
    train.write_text(train.read_text().replace("checkpoint_freq=0", "checkpoint_freq=5", 1))
    assert "FromADisk(TensorDataset" in model.read_text()
    from sklearn.datasets import load_digits

    (home / "data").mkdir()
    rows = load_digits().data.astype(int)
    (home / "data" / "digits.csv").write_text("\n".join(",".join(map(str, row)) for row in rows))


class Trainings:
    """Trainings of the project of one person, which end with `stop`."""

    def __init__(self, server: LocalServer, home: Path) -> None:
        self.server = server
        self.home = home
        self._jobs: list[Job] = []

    def begin(self, name: str, epochs: int, lr: float = 0.05, folder: Path | None = None, **options: object) -> Job:
        """Submit one."""
        options = {"max_workers": 4, "args": ["--epochs", str(epochs), "--lr", str(lr)], **options}
        folder = folder or self.home / "digits"
        job = self.server.client().submit(folder, main="train.py", name=name, progress=False, **options)
        self._jobs.append(job)
        return job

    def stop(self) -> None:
        """Stop all that have not ended."""
        for job in self._jobs:
            with suppress(Conflict):
                job.stop()

    def three_finished(self) -> list[Job]:
        """Three that end well, after sharing the machine."""
        jobs = [
            self.begin("digits-fast", 8, 0.05),
            self.begin("digits-slow", 8, 0.002),
            self.begin("digits-medium", 8, 0.01),
        ]
        for job in jobs:
            job.wait(280)
        return jobs

    def one_broken(self, folder: Path) -> Job:
        """One whose data are not where the script looks; `folder` is for the script."""
        shutil.copytree(self.home / "digits", folder, ignore=shutil.ignore_patterns("__pycache__"))
        script = folder / "train.py"
        seeded = "    torch.manual_seed(1)\n"
        script.write_text(script.read_text().replace(seeded, f'    labels = open("data/labels.csv").read()\n{seeded}'))
        job = self.begin("digits-labels", 8, folder=folder)
        until(lambda: job.refresh().view.state.final)
        assert job.view.state.name == "FAILED"
        return job

    def two_running(self) -> list[Job]:
        """Two that share four slots; of one a worker was killed."""
        first = self.begin("digits-a", 300, 0.0005)
        until(lambda: updates(first) >= 40 and first.view.slots == 4)
        os.kill(first.workers()[-1]["pid"], 9)
        died = updates(first)
        until(lambda: updates(first) >= died + 60)
        second = self.begin("digits-b", 300, 0.001)
        until(lambda: updates(second) >= 30 and second.view.slots == 2)
        return [first, second]


def updates(job: Job) -> int:
    """How many it has made."""
    progress = job.refresh().view.progress
    return progress.update if progress else 0
