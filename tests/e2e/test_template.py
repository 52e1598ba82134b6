"""Jobs of a server share one import of torch, and do without it when its template is gone."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from edt_sdk import Job
from edt_sdk.testing import LocalServer
from edt_server.system.processes import parent_of
from tests.e2e.elastic import DATA
from tests.e2e.gates import Gates
from tests.e2e.harness import Jobs
from tests.waiting import until

# Python imports it at its start: it writes down every process that looks for torch.
COUNTS = """
import os, sys

class Counts:
    def find_spec(name, path=None, target=None):
        if name == "torch":
            with open({file!r}, "a") as file:
                file.write(f"{{os.getpid()}}\\n")

sys.meta_path.insert(0, Counts)
"""


class Imports:
    """The pids of the processes that have imported torch."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._file = folder / "imports"
        (folder / "sitecustomize.py").write_text(COUNTS.format(file=str(self._file)))

    def __call__(self) -> list[int]:
        return [int(line) for line in self._file.read_text().split()] if self._file.exists() else []


@pytest.fixture(scope="module")
def imports(tmp_path_factory: pytest.TempPathFactory) -> Imports:
    """They are counted in this module's server."""
    return Imports(tmp_path_factory.mktemp("counts"))


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory, imports: Imports) -> Iterator[Jobs]:
    """A server with a slot for each of three jobs."""
    environ = {"PYTHONPATH": str(imports.folder)}
    traits = {"EdtApp.threads_per_slot": 1}
    with LocalServer(tmp_path_factory.mktemp("template"), slots=3, traits=traits, environ=environ) as server:
        yield Jobs(server)


def supervisor(job: Job) -> int:
    """Its pid."""
    return parent_of(int(job.workers()[0]["pid"]))


def test_three_jobs_at_once_share_one_import_and_outlive_their_template(
    jobs: Jobs, imports: Imports, tmp_path: Path
) -> None:
    gates = Gates(tmp_path / "gates", 2)
    arguments = ["--epochs", "2", "--samples", "96", "--gates", str(gates.folder)]
    three = [jobs.submit("cnn.py", *arguments, name=f"job-{number}", max_workers=1) for number in range(3)]
    supervisors = [until(lambda job=job: job.refresh().workers() and supervisor(job), "a worker") for job in three]
    (template,) = imports()
    assert [parent_of(pid) for pid in supervisors] == [template] * 3
    assert parent_of(template) == jobs.server.pid
    assert all("libtorch" not in Path(f"/proc/{pid}/maps").read_text() for pid in supervisors)
    os.kill(template, signal.SIGKILL)
    gates.open_all()
    for job in three:
        job.wait(300)
    assert len({jobs.final_hash(job) for job in three}) == 1
    assert imports() == [template]

    later = jobs.submit("cnn.py", *arguments, name="later", max_workers=1).wait(300)
    own = jobs.submit("cnn.py", *arguments, name="own", max_workers=1, env={"LC_ALL": "C.UTF-8"}).wait(300)
    assert jobs.final_hash(own) == jobs.final_hash(later) == jobs.final_hash(three[0])
    assert len(imports()) == 3, "another template, and the zygote of a job with a variable that Python reads first"
    until(lambda: left(jobs) == [imports()[1]], "the end of all but the template")


def left(jobs: Jobs) -> list[int]:
    """The processes of the server, zombies too."""
    return [child.pid for child in psutil.Process(jobs.server.pid).children(recursive=True)]


HEAVY = """
import os
with open({file!r}, "a") as file:
    file.write(f"{{os.getpid()}}\\n")
"""
TRIAL = f"""
{DATA}
import os, time
import heavy
import own

def datasets():
    return data(64, 1), data(32, 2)

while not os.path.exists("{{gate}}"):
    time.sleep(0.02)
model = nn.Linear(6, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=float(os.environ["SUBID"]))
FabricModel(model, datasets, nn.functional.cross_entropy, optimizer).train(1, 8, 2)
"""


def test_later_trials_of_a_search_do_without_the_imports_of_their_script(
    jobs: Jobs, imports: Imports, tmp_path: Path
) -> None:
    log, own, gate, code = (tmp_path / name for name in ("heavy", "own", "gate", "code"))
    (imports.folder / "heavy.py").write_text(HEAVY.format(file=str(log)))
    code.mkdir()
    (code / "train.py").write_text(TRIAL.format(gate=gate))
    (code / "own.py").write_text(HEAVY.format(file=str(own)))
    search = jobs.client.search(
        code, main="train.py", space="lr=1|2|3|4|5", metric="test_loss", algorithm="grid", parallel=1, progress=False
    )

    def template() -> int:
        pids = [int(pid) for pid in log.read_text().split()] if log.exists() else []
        # Its parent is the template of all jobs. That of a driver is a supervisor.
        return next((pid for pid in pids if parent_of(parent_of(pid)) == jobs.server.pid), 0)

    pid = until(template, "the template that imports what the script imports")
    gate.touch()
    search.wait(300)
    assert all(trial.job.status == "FINISHED" for trial in search.trials)
    importing = log.read_text().split()
    # The template answers a moment after its imports, so the second trial may have begun without it.
    assert len(importing) <= 1 + 2, "a template, and the drivers of two trials"
    own_imports = own.read_text().split()
    assert len(own_imports) == 5, "the code of the search's own package runs in each trial"
    assert str(pid) not in own_imports
