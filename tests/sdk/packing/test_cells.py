import json

import pytest

from edt_sdk.packing.cells import cells_of, script_from_cells
from edt_sdk.schemas.errors import PackageError


def run(*cells):
    script, notes = script_from_cells(cells)
    names: dict = {}
    exec(compile(script, "main.py", "exec"), names)
    return names, notes, script


def test_cells_become_one_script_in_order():
    names, notes, _ = run("a = 1\n", "", "b = a + 1")
    assert (names["a"], names["b"], notes) == (1, 2, ())


def test_magics_shell_lines_and_help_are_commented_out_with_a_note():
    cell = "%matplotlib inline\nx = 1\nif x:\n    !ls -la 'it\nfiles = !ls\ny = %who\nx?\npip install torch\nz = 2"
    names, notes, script = run(cell)
    assert (names["x"], names["z"]) == (1, 2)
    assert "files" not in names
    assert len(notes) == 6
    assert "cell 1: not run in a job: %matplotlib inline" in notes
    assert "    pass  # not run in a job: !ls -la 'it" in script


def test_a_percent_sign_that_is_python_stays():
    cell = 'text = """\n%not a magic\n!nor this\n"""\nrest = (7\n% 4)\n'
    names, notes, _ = run(cell)
    assert (names["rest"], notes) == (3, ())
    assert "%not a magic" in names["text"]


def test_a_shell_line_that_goes_on_is_commented_out_whole():
    names, notes, _ = run("!echo a \\\n   b \\\n   c\nx = 1")
    assert (names["x"], len(notes)) == (1, 1)


@pytest.mark.parametrize("magic", ["%%time", "%%capture out"])
def test_cell_magics_around_python_keep_the_body(magic):
    names, notes, _ = run(f"{magic}\nx = 5")
    assert names["x"] == 5
    assert len(notes) == 1


def test_other_cell_magics_drop_the_cell():
    names, notes, _ = run("%%bash\nrm -rf everything", "x = 1")
    assert names["x"] == 1
    assert notes == ("cell 1: not run in a job: %%bash",)


def test_what_is_no_python_is_named_by_cell_and_line():
    with pytest.raises(PackageError, match=r"Cell 2, line 2 is not Python"):
        script_from_cells(["x = 1", "y = 2\nz = = 3"])
    with pytest.raises(PackageError, match=r"asyncio.run"):
        script_from_cells(["await something()"])
    with pytest.raises(PackageError, match="no code"):
        script_from_cells(["", "  \n"])


def test_cells_of_a_notebook_file(tmp_path):
    cells = [
        {"cell_type": "markdown", "source": ["# title"]},
        {"cell_type": "code", "source": ["a = 1\n", "b = 2"]},
        {"cell_type": "code", "source": "c = 3"},
    ]
    path = tmp_path / "n.ipynb"
    path.write_text(json.dumps({"nbformat": 4, "cells": cells}))
    assert cells_of(path) == ["a = 1\nb = 2", "c = 3"]
    path.write_text("{}")
    with pytest.raises(PackageError, match="not a notebook"):
        cells_of(path)


def test_what_comes_from_the_future_stands_at_the_top():
    script, _ = script_from_cells(["x = 1", "from __future__ import annotations\ny = 2"])
    assert script.startswith("from __future__ import annotations\n")
    compile(script, "<job>", "exec")


def test_the_cells_of_a_tag(tmp_path):
    cells = [
        {"cell_type": "code", "metadata": {}, "source": "a"},
        {"cell_type": "code", "metadata": {"tags": ["edt", "x"]}, "source": ["b\n", "c"]},
        {"cell_type": "code", "source": "no metadata"},
        {"cell_type": "markdown", "metadata": {"tags": ["edt"]}, "source": "d"},
    ]
    path = tmp_path / "n.ipynb"
    path.write_text(json.dumps({"nbformat": 4, "cells": cells}))
    assert cells_of(path, "edt") == ["b\nc"]
    with pytest.raises(PackageError, match=r"No code cell of n\.ipynb has the tag 'other'"):
        cells_of(path, "other")


def test_cells_that_submit_jobs_are_remarked():
    """As the notebook of the first hour, of which the button *Train* takes all cells."""
    cells = ["from edt_sdk import Client", "mine = Client()  # finds it", "job = mine.submit('digits')"]
    assert [note for note in script_from_cells(cells)[1] if "would submit jobs" in note]
    for harmless in (["pool.submit(work)"], [*cells[:2], "# mine.submit('digits')"], cells[:2]):
        assert script_from_cells(harmless)[1] == ()
