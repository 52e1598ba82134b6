"""The README's ten lines are run as they stand, beside the notebook's digits, against a real server."""

import os
import re
import shutil
import subprocess
import sys

from edt_sdk.testing import LocalServer

FENCE = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def test_the_ten_lines_of_the_readme_work(root, tmp_path):
    example = FENCE.search((root / "README.md").read_text(encoding="utf-8"))[1]
    assert len(example.splitlines()) <= 10
    shutil.copytree(root / "notebooks" / "digits", tmp_path / "digits")
    with LocalServer(tmp_path / "server", slots=2, traits={"EdtApp.threads_per_slot": 1}) as server:
        done = subprocess.run(
            [sys.executable, "-c", example],
            cwd=tmp_path,
            env=os.environ | {"EDT_URL": server.url, "EDT_TOKEN": server.token},
            capture_output=True,
            text=True,
            check=False,
            timeout=250,
        )
    assert done.returncode == 0, done.stderr
    accuracies = [float(line) for line in done.stdout.splitlines() if re.fullmatch(r"0?\.\d+|1\.0", line)]
    assert accuracies
    assert accuracies[0] > 0.95
    assert list((tmp_path / "models").glob("*.zip"))
