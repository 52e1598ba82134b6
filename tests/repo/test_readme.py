"""The README is short, and its example runs as it stands, in an empty folder, against a real server."""

import ast
import os
import re
import subprocess
import sys

from edt_sdk.testing import LocalServer

MOST_WORDS = 700
EXAMPLE = re.compile(r"^```(?:text|python)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def test_the_readme_is_short(root):
    """All words count, those of tables, captions and links too. Only blocks of code do not."""
    text = re.sub(r"^```.*?^```$", "", (root / "README.md").read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    assert len([word for word in text.split() if re.search(r"\w", word)]) <= MOST_WORDS


def test_the_example_needs_nothing_that_the_installation_does_not_bring(root):
    script = ast.parse(EXAMPLE.findall((root / "README.md").read_text(encoding="utf-8"))[0].partition("\n")[2])
    found = {alias.name for node in ast.walk(script) if isinstance(node, ast.Import) for alias in node.names}
    found |= {str(node.module) for node in ast.walk(script) if isinstance(node, ast.ImportFrom)}
    assert {name.partition(".")[0] for name in found} == {"torch", "fabric_model"}


def test_the_ten_lines_of_the_readme_work(root, tmp_path):
    """In an empty folder, as in the notebook of somebody who has just installed it."""
    script, example = EXAMPLE.findall((root / "README.md").read_text(encoding="utf-8"))
    assert len(example.splitlines()) <= 10
    magic, _, script = script.partition("\n")
    assert magic == "%%writefile train.py"
    (tmp_path / "train.py").write_text(script)
    with LocalServer(tmp_path / "server", slots=2, traits={"EdtApp.threads_per_slot": 1}) as server:
        done = subprocess.run(
            [sys.executable, "-c", f"{example}print(model)"],
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
    assert "Linear(in_features=2, out_features=64" in done.stdout
