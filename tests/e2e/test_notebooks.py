"""The notebooks that we ship do what they say, in a kernel that a Jupyter server has started."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path

import nbformat
import pytest

from demo.live_notebook import run_notebook
from edt_sdk.testing import LocalServer

SHIPPED = Path(__file__).parents[2] / "notebooks"
LIMIT = 240  # seconds of a cell, on a machine that is busy


class Executed:
    """A notebook with its outputs."""

    def __init__(self, path: Path) -> None:
        cells = nbformat.read(path, as_version=4).cells
        self.outputs = [output for cell in cells for output in cell.get("outputs", ())]

    @property
    def text(self) -> str:
        """Everything printed, and everything shown as text."""
        shown = (output.get("text", "") or output.get("data", {}).get("text/plain", "") for output in self.outputs)
        return "\n".join(shown)


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[int], LocalServer]]:
    """A server with so many slots of one thread each, and a copy of the notebooks to run in; one of each number."""
    with ExitStack() as stack:

        @cache
        def with_slots(slots: int) -> LocalServer:
            root = tmp_path_factory.mktemp("notebooks")
            shutil.copytree(SHIPPED, root / "files", ignore=shutil.ignore_patterns("models", ".*", "__pycache__"))
            traits = {"ServerApp.root_dir": root / "files", "EdtApp.threads_per_slot": 1}
            hidden = {"CUDA_VISIBLE_DEVICES": ""}
            return stack.enter_context(LocalServer(root, slots=slots, traits=traits, environ=hidden))

        yield with_slots


@pytest.fixture
def execute(start: Callable[[int], LocalServer]):
    """Run one of them; it raises what a cell raises."""

    def run(name: str, slots: int = 4) -> Executed:
        server = start(slots)
        path = server.root / "files" / name
        run_notebook(server, path, limit=LIMIT)
        return Executed(path)

    return run


def percentages(text: str, before: str) -> list[float]:
    return [float(found) for found in re.findall(rf"{before} ?([\d.]+)%", text)]


def test_quickstart_and_its_log_is_one_that_people_read(execute, start):
    text = execute("01_quickstart.ipynb").text
    assert "Would pack" in text
    assert percentages(text, "test accuracy")[0] > 90
    right, of = map(int, re.search(r"(\d+) of (\d+) right", text).groups())
    assert right / of > 0.9
    (job,) = (job for job in start(4).client().jobs() if job.name == "quickstart")
    lines = str(job.logs()).splitlines()
    assert len(lines) <= 50, "\n".join(lines)
    epochs = [line for line in lines if "Epoch " in line]
    assert [int(re.search(r"Epoch (\d+) of 10: ", line)[1]) for line in epochs][::9] == [1, 10]
    assert "ccuracy: 0.0" not in str(job.logs())
    # The last line has what the page shows.
    assert f"accuracy {100 * job.metrics().test_accuracy:.1f} %; " in epochs[-1]
    assert job.view.log == "quiet"


@pytest.mark.long  # test_train_from_a_cell.py has the same mechanisms
def test_bring_your_own_model(execute):
    text = execute("02_bring_your_own_model.ipynb").text
    plain, elastic = percentages(text, "test accuracy")
    assert min(plain, elastic) > 80
    assert "+from fabric_model import FabricModel" in text
    assert "-        for images, labels in loader:" in text
    (many,) = re.findall(r"after +up to (\d+) workers", text)
    assert int(many) > 1, "a comparison of one worker with one says nothing"


@pytest.mark.long  # test_allocation.py shares four slots the same way
@pytest.mark.parametrize(("slots", "half", "less", "more"), [(4, 2, 1, 3), (8, 4, 3, 5)])
def test_share_by_priority(execute, slots, half, less, more):
    notebook = execute("03_share_by_priority.ipynb", slots)
    told = re.findall(r"→ (.*)", notebook.text)
    assert told == [
        f"digits-a trains on {slots}",
        f"digits-a trains on {half}, digits-b trains on {half}",
        f"digits-a trains on {less}, digits-b trains on {more}",
        f"digits-b trains on {slots}",
    ]
    assert f"digits-a from {slots} to {half}" in notebook.text, "the forecast"
    assert len(percentages(notebook.text, "digits-[ab]: test accuracy")) == 2
    assert any("image" in output.get("data", {}).get("text/html", "") for output in notebook.outputs)


@pytest.mark.long  # test_failing_jobs.py has the same mechanisms
def test_debug_a_failing_job(execute):
    text = execute("04_debug_a_failing_job.ipynb").text
    assert "main.py" in text, "the file of the user's own code"
    assert "out of bounds" in text
    assert percentages(text, "test accuracy")[0] > 60
    assert "It would never start. It needs 5 slots at once" in text


@pytest.mark.long  # test_train_from_a_cell.py has the same mechanisms
def test_train_from_a_cell(execute):
    text = execute("05_train_from_a_cell.ipynb").text
    assert percentages(text, "accuracy before:")[0] < 30
    assert percentages(text, "accuracy after:")[0] > 90


@pytest.mark.long  # test_recovery.py has the same mechanisms
def test_survive_failures(execute):
    text = execute("06_survive_failures.ipynb").text
    calm, disturbed = re.findall(r"^[0-9a-f]{64}$", text, re.MULTILINE)
    assert calm == disturbed
    assert "killed worker" in text


@pytest.mark.long  # five jobs, whose programs tests/training/elastic has one by one
def test_one_model_five_ways_has_one_hash(execute):
    text = execute("07_one_model_five_ways.ipynb").text
    found = re.findall(r"^(by_\w+) +([0-9a-f]{64})  (\d+) of 360 right$", text, re.MULTILINE)
    assert [way for way, _, _ in found] == ["by_fabric_model", "by_own_loop", "by_hugging_face", "by_lightning"]
    assert len({fingerprint for _, fingerprint, _ in found}) == 1
    assert all(int(right) > 320 for _, _, right in found)


@pytest.mark.long  # the guide's search, which repo/test_guide_runs.py runs, is the same
def test_a_search_ends_with_its_best_model(execute):
    notebook = execute("08_search.ipynb")
    assert re.search(r"Trial \d is FINISHED: 0\.9\d+ after 4 epochs, batch=\d+", notebook.text)
    assert "of 6, the best 3 go on" in notebook.text
    cards = [
        output["data"] for output in notebook.outputs if "application/vnd.edt.search+json" in output.get("data", {})
    ]
    assert cards
    assert "6 of 6" in cards[0]["text/html"]


@pytest.mark.long  # test_deployments.py has the same mechanisms
def test_from_a_project_to_an_answer(execute, start):
    text = execute("09_from_project_to_answer.ipynb").text
    right, of = map(int, re.search(r"(\d+) of (\d+) right", text).groups())
    assert right / of > 0.8
    assert re.search(r"curl http://127\.0\.0\.1:\d+/predict/digits -H", text)
    assert "stopped" in text, "the revision that was not to take over"
    assert start(4).client().deployments() == []


@pytest.mark.parametrize("path", sorted(SHIPPED.glob("*.ipynb")), ids=lambda path: path.name)
def test_outputs_stay_out_of_the_repository(path):
    cells = nbformat.read(path, as_version=4).cells
    assert [cell.id for cell in cells if cell.get("outputs") or cell.get("execution_count")] == []


@pytest.mark.parametrize("path", sorted(SHIPPED.glob("*.ipynb")), ids=lambda path: path.name)
def test_links_between_them_lead_somewhere(path):
    cells = nbformat.read(path, as_version=4).cells
    targets = [target for cell in cells for target in re.findall(r"\]\(([^)#:]+)\)", cell.source)]
    assert [target for target in targets if not (SHIPPED / target).exists()] == []
