"""What a script has left open when it ends is the same as under plain Python, although the interpreter is not ended."""

from __future__ import annotations

import gzip
import subprocess
import sys
from pathlib import Path

import pytest

# It leaves a file open in each place that Python looks at, and output in the buffers of C.
SCRIPT = """
import atexit, ctypes, gzip, sys, threading, time, weakref
import beside

class Closes:
    def __init__(self, name):
        self.name = name
    def __del__(self):
        with open(self.name, "w") as file:
            file.write(beside.words())  # globals and modules are still there

class Circle:
    def __init__(self):
        self.me, self.it = self, Closes("circle")

class Kept:
    text = open("in-a-class", "w")

def later():
    time.sleep(0.2)
    thread.write("after the script")

plain = open("plain", "w")
plain.write("plain")
packed = gzip.open("packed.gz", "wt")
packed.write("packed")
Kept.text.write("in a class")
closes, circle = Closes("closes"), Circle()
sys.held_by_a_library = open("held", "w")
sys.held_by_a_library.write("held")
thread = open("thread", "w")
threading.Thread(target=later).start()
atexit.register(lambda: plain.write(" and at exit"))
weakref.finalize(closes, print, "finalized")
ctypes.CDLL(None).printf(b"from C\\n")
"""
BESIDE = """
log = open("beside", "w")
log.write("beside")
def words():
    return "of the module beside it"
"""
IN_A_JOB = """
import sys, types
from edt_sdk.training.member.leaving import leave_script
main = sys.modules["__main__"] = types.ModuleType("__main__")
exec(compile(open("main.py").read(), "main.py", "exec"), vars(main))
del main
leave_script(3)
"""
CODES = [(None, 0), (0, 0), (7, 7), (-1, 255), (256, 0), ("in words", 1)]


def left(folder: Path, *command: str) -> tuple[dict[str, bytes], set[str], int]:
    """The files that the script leaves, the lines that it prints, and its exit code."""
    folder.mkdir()
    (folder / "main.py").write_text(SCRIPT)
    (folder / "beside.py").write_text(BESIDE)
    ended = subprocess.run([sys.executable, *command], cwd=folder, capture_output=True, text=True, check=False)
    files = {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix != ".py" and path.is_file()}
    files["packed"] = gzip.decompress(files.pop("packed.gz"))
    return files, set(ended.stdout.splitlines()), ended.returncode


def test_what_a_script_left_open_is_written(tmp_path: Path) -> None:
    python, ours = left(tmp_path / "python", "main.py"), left(tmp_path / "job", "-c", IN_A_JOB)
    # Python itself finalizes some objects when `open` is gone already.
    assert {name: ours[0][name] for name in python[0]} == python[0]
    assert ours[1] == python[1] == {"from C", "finalized"}
    assert (python[2], ours[2]) == (0, 3)
    assert ours[0]["circle"] == ours[0]["closes"] == b"of the module beside it"
    assert ours[0]["plain"] == b"plain and at exit"
    assert ours[0]["thread"] == b"after the script"


@pytest.mark.parametrize(("given", "code"), CODES)
def test_exit_codes_are_those_of_python(given: object, code: int) -> None:
    ends = (
        f"from edt_sdk.training.member.leaving import leave_script; leave_script({given!r})",
        f"import sys; sys.exit({given!r})",
    )
    ours, python = (subprocess.run([sys.executable, "-c", each], capture_output=True, check=False) for each in ends)
    assert (ours.returncode, ours.stderr) == (python.returncode, python.stderr)
    assert ours.returncode == code


def test_a_script_that_has_removed_its_own_module_ends_well_and_loses_nothing(tmp_path: Path) -> None:
    script = "import sys; file = open('kept', 'w'); file.write('kept'); del sys.modules['__main__']"
    ends = f"{script}\nfrom edt_sdk.training.member.leaving import leave_script; leave_script(0)"
    ended = subprocess.run([sys.executable, "-c", ends], cwd=tmp_path, capture_output=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, b"")
    assert (tmp_path / "kept").read_text() == "kept"
