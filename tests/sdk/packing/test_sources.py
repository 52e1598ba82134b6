import json
import os
import tracemalloc

import pytest

from edt_sdk.packing.sources import HELPERS, collect, imported
from edt_sdk.packing.table import packing_table
from edt_sdk.schemas.errors import PackageError


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "model"
    made.mkdir()
    (made / "train.py").write_text("print('hi')\n")
    return made


def names(collected):
    return [file.name for file in collected.files if file.name not in HELPERS]


def write(path, text="x"):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_a_folder_is_packed_without_what_never_belongs_in_it(folder):
    for name in (
        "data/a.csv",
        ".git/config",
        "__pycache__/a.pyc",
        "sub/__pycache__/b.pyc",
        "b.pyc",
        ".env",
        ".DS_Store",
    ):
        write(folder / name)
    write(folder / "python3/pyvenv.cfg")
    write(folder / "python3/lib/huge.py")
    collected = collect(folder)
    assert names(collected) == ["data/a.csv", "train.py"]
    assert collected.main == "train.py"
    assert collected.name == "model"
    assert collected.notes == ("python3/ is left out: it is a Python environment",)


def test_the_ignore_file_has_the_syntax_of_gitignore(folder):
    write(folder / ".edtignore", "# comment\n*.csv\n!keep.csv\n/top/\ndata/**/*.bin\n!.env\n")
    for name in ("a.csv", "keep.csv", "top/x", "sub/top/x", "data/deep/er/x.bin", "data/x.txt", ".env"):
        write(folder / name)
    assert names(collect(folder)) == [".env", "data/x.txt", "keep.csv", "sub/top/x", "train.py"]


def test_links_are_followed_inside_and_refused_outside(folder, tmp_path):
    write(folder / "real/data.txt", "inside")
    (folder / "link.txt").symlink_to("real/data.txt")
    (folder / "dir").symlink_to(folder / "real")
    assert names(collect(folder)) == ["dir/data.txt", "link.txt", "real/data.txt", "train.py"]
    write(tmp_path / "secret")
    (folder / "out").symlink_to(tmp_path / "secret")
    with pytest.raises(PackageError, match=r"link out leads out of the folder") as refused:
        collect(folder)
    assert ".edtignore" in refused.value.hint
    write(folder / ".edtignore", "out\n")
    assert "out" not in names(collect(folder))


def test_links_in_circles_and_to_nothing_are_refused(folder):
    (folder / "loop").symlink_to(folder)
    with pytest.raises(PackageError, match="leads back"):
        collect(folder)
    (folder / "loop").unlink()
    (folder / "gone").symlink_to("nowhere")
    with pytest.raises(PackageError, match="leads nowhere"):
        collect(folder)


def test_a_link_to_the_folder_itself_is_a_source(folder, tmp_path):
    (tmp_path / "link").symlink_to(folder)
    assert names(collect(tmp_path / "link")) == ["train.py"]


def test_special_files_are_left_out_with_a_note(folder):
    os.mkfifo(folder / "pipe")
    collected = collect(folder)
    assert names(collected) == ["train.py"]
    assert collected.notes == ("pipe is left out: it is not a plain file",)


def test_which_script_is_the_main_one(folder):
    write(folder / "model.py")
    assert collect(folder).main == "train.py"
    assert collect(folder, "model.py").main == "model.py"
    assert collect(folder, "./model.py").main == "model.py"
    write(folder / "main.py")
    with pytest.raises(PackageError, match=r"Which script.*main\.py, model\.py, train\.py"):
        collect(folder)
    with pytest.raises(PackageError, match=r"main='other\.py' is not in the package.*model\.py") as refused:
        collect(folder, "other.py")
    assert refused.value.ids["field"] == "main"


def test_one_script_is_the_main_one_whatever_its_name_and_helpers_do_not_count(folder):
    (folder / "train.py").rename(folder / "fit.py")
    write(folder / "emetrics.py", "# mine")
    assert collect(folder).main == "fit.py"


def test_added_helpers_are_listed_only_where_the_code_uses_them(folder):
    write(folder / "train.py", "import torch\n")
    plain = collect(folder)
    assert {"elog.py", "train.py"} <= {file.name for file in plain.files}, "WMLA code may import them from anywhere"
    assert [file.name for file in plain.listed] == ["train.py"]
    assert "elog" not in packing_table(plain, 1)
    write(folder / "train.py", "from edtcallback import EDTLoggerCallback\n")
    assert "edtcallback.py, elog.py, emetrics.py: helpers for WMLA code" in packing_table(collect(folder), 1)


def test_helpers_come_along_unless_the_source_has_its_own(folder):
    write(folder / "elog.py", "# mine")
    files = {file.name: file for file in collect(folder).files}
    assert set(HELPERS) <= set(files)
    assert files["elog.py"].content == folder / "elog.py"
    assert files["emetrics.py"].content != folder / "emetrics.py"


def test_a_file_brings_the_modules_beside_it_that_it_imports(tmp_path):
    write(tmp_path / "fit.py", "import torch, net\nfrom data.load import read\nfrom . import nothing\n")
    write(tmp_path / "net.py", "def late():\n    import layers\n")
    write(tmp_path / "layers.py", "import net\n")
    write(tmp_path / "unused.py")
    write(tmp_path / "data/__init__.py", "")
    write(tmp_path / "data/load.py", "import more")
    write(tmp_path / "data/table.csv")
    write(tmp_path / "data/__pycache__/load.pyc")
    write(tmp_path / "more/part.py")
    write(tmp_path / "more/big.bin")
    collected = collect(tmp_path / "fit.py")
    assert names(collected) == [
        "data/__init__.py", "data/load.py", "data/table.csv", "fit.py", "layers.py", "more/part.py", "net.py",
    ]  # fmt: skip
    assert (collected.name, collected.main) == ("fit", "fit.py")


def test_a_checkout_of_this_package_is_not_packed(tmp_path):
    write(tmp_path / "fit.py", "from edt_sdk import FabricModel\n")
    write(tmp_path / "edt_sdk/__init__.py")
    assert names(collect(tmp_path / "fit.py")) == ["fit.py"]


def test_cells_and_notebooks_become_main_py(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "net.py")
    collected = collect(["import net", "%time\nprint(1)"])
    assert names(collected) == ["main.py", "net.py"]
    assert collected.main == "main.py"
    assert collected.notes == ("cell 2: not run in a job: %time",)
    assert collect("import net\nprint(1)").main == "main.py"
    cell = {"cell_type": "code", "source": "import main"}
    write(tmp_path / "mnist.ipynb", json.dumps({"cells": [cell]}))
    write(tmp_path / "main.py")
    collected = collect(tmp_path / "mnist.ipynb")
    assert (collected.name, collected.main) == ("mnist", "main_script.py")
    assert names(collected) == ["main.py", "main_script.py"]


@pytest.mark.parametrize("source", ["no/such/folder", "print(1)", ""])
def test_a_source_that_is_not_there(source):
    with pytest.raises(PackageError, match="There is no folder or file"):
        collect(source)


def test_an_empty_folder_and_a_foreign_file(tmp_path):
    with pytest.raises(PackageError, match=r"no \.py file"):
        collect(tmp_path / "jupyter-runtime")
    write(tmp_path / "a.txt")
    with pytest.raises(PackageError, match="neither a folder"):
        collect(tmp_path / "a.txt")


def test_a_script_that_the_parser_gives_up_on_has_no_known_imports():
    for script in ("x = 1" + "+1" * 100_000, "x = " + "-" * 100_000 + "1"):
        assert imported(f"import torch\n{script}") == set()


def test_no_more_of_a_script_is_read_than_a_person_writes(tmp_path):
    (tmp_path / "main.py").write_text("import big\n")
    with (tmp_path / "big.py").open("wb") as file:
        file.truncate(100 << 20)
    tracemalloc.start()
    names = [file.name for file in collect(tmp_path / "main.py").files]
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert {"main.py", "big.py"} <= set(names)
    assert peak < 20 << 20
