"""Rules that hold for every file: size, docstrings, no notebook output."""

import ast
import json
from collections import defaultdict

HARD_LIMIT = 800
OUR_FOLDERS = ("edt_sdk", "server", "jupyter_ext", "demo", "benchmarks")


def test_no_file_is_longer_than_the_hard_limit(tracked, root):
    long = {
        str(path.relative_to(root)): lines
        for path in tracked
        if path.suffix in (".py", ".ts", ".tsx") and (lines := len(path.read_bytes().splitlines())) > HARD_LIMIT
    }
    assert long == {}


def test_every_module_says_what_it_is_for(tracked, root):
    silent = [
        str(path.relative_to(root))
        for path in tracked
        if path.suffix == ".py"
        and path.relative_to(root).parts[0] in OUR_FOLDERS
        and not ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert silent == []


def test_notebooks_carry_no_output(tracked):
    for path in (p for p in tracked if p.suffix == ".ipynb"):
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            assert not cell.get("outputs"), f"{path.name}: run `make lab` as you like, but commit without outputs"
            assert cell.get("execution_count") is None, path.name


def test_no_catch_all_modules(tracked, root):
    catch_alls = {"utils.py", "util.py", "helpers.py", "misc.py", "common.py"}
    assert [str(p.relative_to(root)) for p in tracked if p.name in catch_alls] == []


def test_a_public_class_name_belongs_to_one_class(tracked, root):
    places = defaultdict(list)
    for path in tracked:
        parts = path.relative_to(root).parts
        if path.suffix == ".py" and parts[0] in ("edt_sdk", "server", "jupyter_ext"):
            for node in ast.parse(path.read_text(encoding="utf-8")).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    places[node.name].append("/".join(parts))
    assert len(places) > 500
    assert {name: where for name, where in places.items() if len(where) > 1} == {}
