"""`train()` in a notebook's cell: a job like any other, whose weights come back into the kernel's model."""

from __future__ import annotations

import os
import signal
import textwrap
import threading
from base64 import b64decode
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from tests.e2e.harness import Jobs
from tests.kernels import on_unix_sockets
from tests.waiting import until

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
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 4)
    fabric = FabricModel(model, datasets, nn.functional.cross_entropy, optimizer, lr_scheduler=scheduler)
"""
TRAIN = "fabric.train(6, 8, 4)"
# Where a second train() would go on.
AFTER = """
momentum = optimizer.state[model.layers[0].weight]["momentum_buffer"].abs().sum()
print("AFTER", scheduler.last_epoch, optimizer.param_groups[0]["lr"], float(momentum))
"""
# Long enough for a figure to be drawn more than once, whatever the machine.
SLOW = """
    import time

    def datasets():
        class Slow(Data):
            def __getitem__(self, index):
                time.sleep(0.01)
                return super().__getitem__(index)

        return Slow(400), Data(50)

    fabric = FabricModel(model, datasets, nn.functional.cross_entropy, optimizer)
"""
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
    return ["".join(map(_text, cell.outputs)) for cell in executed(folder, *cells, allow_errors=allow_errors)]


def executed(folder: Path, *cells: str, allow_errors: bool = False) -> list[nbformat.NotebookNode]:
    """The cells with their outputs, as they are saved."""
    notebook = a_notebook(*cells)
    a_client(notebook, folder, allow_errors=allow_errors).execute()
    return list(notebook.cells)


def a_notebook(*cells: str) -> nbformat.NotebookNode:
    """These cells."""
    return nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(textwrap.dedent(cell)) for cell in cells])


def a_client(notebook: nbformat.NotebookNode, folder: Path, *, allow_errors: bool = False) -> Watching:
    """What runs it, in a kernel of its own."""
    where = {"metadata": {"path": str(folder)}}
    return Watching(notebook, timeout=120, resources=where, allow_errors=allow_errors, config=on_unix_sockets())


class Watching(NotebookClient):
    """Keeps every output and every replacement of one, in order, as a front end sees them."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.seen: list[tuple[str, dict[str, Any]]] = []

    def process_message(self, msg: dict[str, Any], cell: Any, cell_index: int) -> Any:
        if msg["msg_type"] in ("display_data", "update_display_data"):
            self.seen.append((msg["msg_type"], msg["content"]))
        return super().process_message(msg, cell, cell_index)

    def shown(self, mime: str) -> list[str]:
        """Everything of this type that was displayed."""
        return [content["data"][mime] for _, content in self.seen if mime in content["data"]]


def _text(output: nbformat.NotebookNode) -> str:
    return output.get("text", "") + "\n".join(output.get("traceback", ()))


def test_a_model_of_the_kernel_trains_on_the_servers_slots_as_a_script_would(
    four_slots: Jobs, kernel_environment: Path
) -> None:
    _, trained, looked, after = run(kernel_environment, MODEL, TRAIN, LOOK, AFTER)
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

    (kernel_environment / "train.py").write_text(textwrap.dedent(MODEL) + TRAIN + AFTER)
    script = four_slots.client.submit(kernel_environment / "train.py", max_workers=1, progress=False).wait(300)
    assert told == four_slots.parameters_hash(script), "the same call in a script gives other bits"
    assert after.startswith("AFTER 6 0.01"), after
    assert after.strip() in script.logs("driver"), "a second train() would continue elsewhere"


def test_a_figure_in_the_cell_follows_the_training(four_slots: Jobs, kernel_environment: Path) -> None:
    """One line and one figure, replaced in place; the last ones stay in the notebook."""
    notebook = a_notebook(MODEL, SLOW, "fabric.train(4, 8, 4)")
    client = a_client(notebook, kernel_environment)
    client.execute()
    line, figure, said = notebook.cells[-1].outputs
    assert [content for kind, content in client.seen if kind == "display_data"][2:] == [], "two outputs, no more"
    assert "FINISHED" in line.data["text/plain"]
    assert "update 52 of 52" in line.data["text/plain"]
    assert said.text.endswith("finishes with state FINISHED.\n")

    pictures = [b64decode(picture) for picture in client.shown("image/png")]
    assert len(pictures) > 1, "it was drawn while it trained"
    assert b64decode(figure.data["image/png"]) == pictures[-1]
    assert pictures[-1][16:24] == (1200).to_bytes(4, "big") + (800).to_bytes(4, "big")
    lines = client.shown("text/plain")
    assert any(text.startswith("RUNNING on ") for text in lines)
    job = four_slots.client.jobs()[0]
    metrics = job.metrics()
    assert f"Train loss {metrics.loss:.4g}, test loss {metrics.test_loss:.4g}" in figure.data["text/plain"]


@pytest.mark.long  # sdk/notebook/test_live_figure.py draws the same figure
def test_without_matplotlib_the_figure_is_svg(kernel_environment: Path) -> None:
    hidden = "import sys; sys.modules['matplotlib'] = None"
    *_, cell = executed(kernel_environment, hidden, MODEL, TRAIN)
    assert [output.output_type for output in cell.outputs] == ["display_data", "display_data", "stream"]
    assert cell.outputs[1].data["text/html"].startswith('<img src="data:image/svg+xml;base64,')


def test_an_interrupt_ends_the_waiting_and_a_new_kernel_gets_the_weights(
    four_slots: Jobs, kernel_environment: Path
) -> None:
    notebook = a_notebook(MODEL, SLOW, "fabric.train(4, 8, 4)", "print('ID', fabric.job.id)")
    client = a_client(notebook, kernel_environment, allow_errors=True)
    before = {job.id for job in four_slots.client.jobs()}

    def interrupt() -> None:
        until(lambda: any("RUNNING on" in text for text in client.shown("text/plain")), "a running job")
        os.kill(client.km.provisioner.pid, signal.SIGINT)  # what a front end's stop button sends

    interrupting = threading.Thread(target=interrupt)
    interrupting.start()
    client.execute()
    interrupting.join()
    line, *_ = notebook.cells[2].outputs
    assert line.data["text/plain"].endswith("as last seen when this cell stopped waiting.")
    stopped = "".join(map(_text, notebook.cells[2].outputs))
    (job,) = (job for job in four_slots.client.jobs() if job.id not in before)
    assert stopped.startswith(f"Stopped waiting. Job {job.id} (my notebook) goes on."), "a paragraph, no traceback"
    assert "\n" not in stopped.strip()
    for way in ("fabric.job.stop()", "fabric.job.wait()", "fabric.job.load_into(model)", f'Client().job("{job.id}")'):
        assert way in stopped
    assert "ID " + job.id in "".join(map(_text, notebook.cells[3].outputs))

    job.wait(300, progress=False)
    again = f"""
        from edt_sdk import Client
        Client().job({job.id!r}).load_into(model)
        fabric.job = Client().job({job.id!r})
    """
    *_, looked = run(kernel_environment, MODEL, again, LOOK)
    assert looked.split("JOB ")[1].split()[:2] == [job.id, four_slots.parameters_hash(job)]


def test_what_cannot_be_sent_and_what_fails_there_is_told_here(four_slots: Jobs, kernel_environment: Path) -> None:
    before = len(four_slots.client.jobs())
    lock = "import threading; model.handle = threading.Lock()"
    count = "from edt_sdk import Client; print(len(Client().jobs()))"
    broken = """
        def datasets():
            raise OSError("the disk is gone")

        del model.handle
        fabric = FabricModel(model, datasets, nn.functional.cross_entropy, optimizer)
    """
    _, _, refused, counted, _, failed = run(
        kernel_environment, MODEL, lock, TRAIN, count, broken, TRAIN, allow_errors=True
    )
    assert refused.startswith("Unprocessable: model.handle cannot be sent"), "a sentence, no traceback"
    assert int(counted) == before, "nothing is submitted"
    assert "JobFailed" in failed
    assert "the disk is gone" in failed
