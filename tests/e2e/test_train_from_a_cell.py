"""`train()` in a notebook's cell: a job like any other, whose weights come back into the kernel's model."""

from __future__ import annotations

import textwrap
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from tests.e2e.harness import Jobs

MODEL = """
    import torch
    from torch import nn
    from fabric_model import FabricModel
    import shapes

    torch.manual_seed(3)

    class Data(torch.utils.data.Dataset):
        def __init__(self, n):
            self.x = torch.randn(n, shapes.WIDTH, generator=torch.Generator().manual_seed(n))

        def __len__(self):
            return len(self.x)

        def __getitem__(self, index):
            return self.x[index], int(self.x[index].sum() > 0)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.Sequential(nn.Linear(shapes.WIDTH, 16), nn.ReLU(), nn.Linear(16, 2))

        def forward(self, x):
            return self.layers(x)

    def datasets():
        return Data(400), Data(50)

    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    fabric = FabricModel(model, datasets, nn.functional.cross_entropy, optimizer)
"""
TRAIN = "fabric.train(6, 8, 4)"
LOOK = """
    import hashlib
    told = hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters())).hexdigest()
    print("RIGHT", float((model(Data(50).x).argmax(1) == (Data(50).x.sum(1) > 0)).float().mean()))
    print("JOB", fabric.job.id, told)
    fabric.download("saved")
"""


@pytest.fixture
def kernel_environment(four_slots: Jobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a module beside the notebook, and variables that lead its kernel to the server."""
    (tmp_path / "shapes.py").write_text("WIDTH = 10\n")
    monkeypatch.setenv("EDT_URL", four_slots.server.url)
    monkeypatch.setenv("EDT_TOKEN", four_slots.server.token)
    monkeypatch.setenv("JPY_SESSION_NAME", "folder/my notebook.ipynb")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    return tmp_path


def run(folder: Path, *cells: str, allow_errors: bool = False) -> list[str]:
    """What each cell printed, with its error as people see it."""
    source = [nbformat.v4.new_code_cell(textwrap.dedent(cell)) for cell in cells]
    notebook = nbformat.v4.new_notebook(cells=source)
    NotebookClient(
        notebook, timeout=120, resources={"metadata": {"path": str(folder)}}, allow_errors=allow_errors
    ).execute()
    return ["".join(map(_text, cell.outputs)) for cell in notebook.cells]


def _text(output: nbformat.NotebookNode) -> str:
    return output.get("text", "") + "\n".join(output.get("traceback", ()))


def test_a_model_of_the_kernel_trains_on_the_servers_slots(four_slots: Jobs, kernel_environment: Path) -> None:
    _, trained, looked = run(kernel_environment, MODEL, TRAIN, LOOK)
    right = float(looked.split("RIGHT ")[1].split()[0])
    job_id, told = looked.split("JOB ")[1].split()[:2]
    assert f"Job {job_id} finishes with state FINISHED." in trained
    assert right > 0.8

    job = four_slots.client.job(job_id)
    assert job.name == "my notebook"
    assert told == four_slots.parameters_hash(job), "the kernel's weights are not those of the job"
    saved = kernel_environment / "saved" / f"{job_id}.zip"
    assert f"Save model:  {Path('saved') / saved.name}" in looked
    assert saved.exists()


def test_the_same_call_as_a_script_gives_the_same_bits(four_slots: Jobs, kernel_environment: Path) -> None:
    _, _, looked = run(kernel_environment, MODEL, TRAIN, LOOK)
    told = looked.split("JOB ")[1].split()[1]
    (kernel_environment / "train.py").write_text(textwrap.dedent(MODEL) + TRAIN + "\n")
    job = four_slots.client.submit(kernel_environment / "train.py", max_workers=1, progress=False).wait(120)
    assert told == four_slots.parameters_hash(job)


def test_what_cannot_be_sent_is_named_and_nothing_is_submitted(four_slots: Jobs, kernel_environment: Path) -> None:
    before = len(four_slots.client.jobs())
    lock = "import threading; model.handle = threading.Lock()"
    *_, refused = run(kernel_environment, MODEL, lock, TRAIN, allow_errors=True)
    assert refused.startswith("Unprocessable: model.handle cannot be sent"), "a sentence, no traceback"
    assert len(four_slots.client.jobs()) == before


def test_a_failure_there_is_told_here(kernel_environment: Path) -> None:
    broken = """
        def datasets():
            raise OSError("the disk is gone")

        fabric = FabricModel(model, datasets, nn.functional.cross_entropy, optimizer)
    """
    *_, refused = run(kernel_environment, MODEL, broken, TRAIN, allow_errors=True)
    assert "JobFailed" in refused
    assert "the disk is gone" in refused
