"""The Python of the user guide runs as it stands, block after block as in one notebook, against a real server.

So do blocks of shell that are marked `sh`, and blocks that begin with a cell magic. What a page takes for granted (a
job that trains, a folder of one's own) is made before the block that needs it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from edt_sdk.testing import LocalServer

pytestmark = pytest.mark.long

FENCE = re.compile(r"^```(python|text|sh)\n(.*?)^```", re.MULTILINE | re.DOTALL)
CLIENT = "from edt_sdk import Client; client = Client(); client.stop_all(); import time; "
TRAINED = CLIENT + 'job = client.submit("digits", main="train.py", args=["--epochs", "2"]).wait()'
TRAINS = CLIENT + (
    'job = client.submit("digits", main="train.py", args=["--epochs", "5000"])\n'
    "while {}: time.sleep(0.1)\n"
)  # fmt: skip
# Page → what is done before its n-th block.
BEFORE: dict[str, dict[int, str]] = {
    "user-guide.md": {},
    "guide/first-hour.md": {0: CLIENT},
    "guide/search.md": {0: CLIENT},
    "guide/submit.md": {},
    "guide/steer.md": {0: TRAINS.format("not job.metrics().train")},
    "guide/watch.md": {0: TRAINED + "\nfirst, second = job, job.clone().wait()"},
    "guide/results.md": {
        0: TRAINED,
        2: TRAINS.format('"epoch-3" not in str(job.checkpoints())'),
        3: 'while job.refresh().state != "SUSPENDED": time.sleep(0.1)',
    },
    "guide/validate.md": {0: TRAINED},
    "guide/versions.md": {0: TRAINED},
    "guide/deployments.md": {0: TRAINED + '\nclient.register(job, "digits", alias="champion")'},
    "guide/experiments.md": {0: CLIENT},
    "guide/failures.md": {0: TRAINED},
    "guide/catalogue.md": {0: CLIENT},
    "guide/your-script.md": {},
    "guide/your-loop.md": {},
    "guide/hugging-face.md": {},
    "guide/lightning.md": {},
    "guide/big-models.md": {},
    "torchrun.md": {0: CLIENT},
}
MINE = {
    "report/fit.py": "",
    "gan/train.py": "",
    "tools/fit.py": "",
    "tools/prepare.sh": "",
    "train.py": "",
    "src/train.py": "",
    "data/digits/a.csv": "1",
}
RUN = """
import sys
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance(colors="nocolor")
shell.run_cell("%load_ext edt_sdk")
for cell in sys.argv[1:]:
    print(cell)
    if not shell.run_cell(cell, store_history=True).success:
        sys.exit(1)
"""


@pytest.fixture(scope="module")
def place(root, tmp_path_factory) -> Path:
    """The folder of a notebook, with what its reader has."""
    here = tmp_path_factory.mktemp("guide") / "notebooks"
    shutil.copytree(root / "notebooks", here)
    script = here / "digits" / "train.py"
    script.write_text(script.read_text().replace("checkpoint_freq=0", "checkpoint_freq=1"))
    shutil.copytree(here / "digits", here / "training")
    for name, text in MINE.items():
        (here / name).parent.mkdir(parents=True, exist_ok=True)
        (here / name).write_text(text)
    return here


@pytest.fixture(scope="module")
def server(place) -> Iterator[LocalServer]:
    data_fs = place.parent / "data"
    (data_fs / "shared" / "faces").mkdir(parents=True)
    traits = {"EdtApp.threads_per_slot": 1, "EdtApp.data_fs": data_fs}
    with LocalServer(place.parent / "server", slots=4, traits=traits) as made:
        made.client().create_instance_group("night")
        yield made


def blocks(text: str) -> list[str]:
    return [
        f"%%bash -e\n{block}" if kind == "sh" else block
        for kind, block in FENCE.findall(text)
        if kind != "text" or "%edt_" in block or block.startswith("%%")
    ]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("page", BEFORE)
def test_a_page_runs_from_its_first_block_to_its_last(page, root, place, server):
    found = blocks((root / "docs" / page).read_text(encoding="utf-8"))
    assert found
    cells = [cell for n, block in enumerate(found) for cell in (BEFORE[page].get(n, ""), block) if cell]
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environ = os.environ | {
        "EDT_URL": server.url,
        "EDT_TOKEN": server.token,
        "EDT_NONINTERACTIVE": "1",
        "PATH": path,
    }
    ran = subprocess.run(
        [sys.executable, "-c", RUN, *cells], cwd=place, env=environ, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout[-5000:] + ran.stderr[-2000:]
    assert "UsageError" not in ran.stdout + ran.stderr


def test_every_page_of_the_guide_with_python_is_run(root):
    pages = {f"guide/{path.name}" for path in (root / "docs" / "guide").glob("*.md") if blocks(path.read_text())}
    assert pages | {"user-guide.md", "torchrun.md"} == set(BEFORE)
