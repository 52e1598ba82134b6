"""What is imported ahead of a script: installed modules that its top level names, and nothing of its own."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import pytest

from edt_sdk.training.user.imports import can_fork, import_ahead, outside_imports

TRAIN = """
from __future__ import annotations
import json, model
import decimal as d
from own import part
from nets.small import Net
from . import near
if True:
    import never
def f():
    import later
from colorsys import *
"""
FILES = {
    "train.py": TRAIN,
    "model.py": "import decimal as d\nimport wave\nimport train\n",
    "own/part.py": "from fractions import Fraction\n",
    "nets/__init__.py": "from . import small\nimport graphlib\n",
    "nets/small.py": "import chunk_that_is_not_there\nimport this is no Python",
}


@pytest.fixture
def script(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path / "train.py"


def test_the_imports_of_a_script_and_of_the_modules_beside_it(script):
    assert sorted(outside_imports(script)) == [
        "from __future__ import annotations",
        "from colorsys import *",
        "from fractions import Fraction",
        "import decimal as d",
        "import graphlib",
        "import wave",
    ]


def test_what_cannot_be_imported_or_read_is_left_to_the_script(script, tmp_path):
    script.write_text("import not_installed_anywhere\nimport wave\n")
    assert import_ahead(script) == [sys.modules["wave"].__file__]
    script.write_text("this is no Python")
    assert import_ahead(script) == []
    assert import_ahead(tmp_path / "missing.py") == []


def test_a_process_with_a_thread_is_not_forked():
    assert can_fork() is (threading.active_count() == 1)
    end = threading.Event()
    thread = threading.Thread(target=end.wait)
    thread.start()
    try:
        assert not can_fork()
    finally:
        end.set()
        thread.join()
