"""No module of ours needs another one that needs it: not at its top, and not inside of a function either.

An import below `if TYPE_CHECKING:` is only for the reader and the type checker; it does not count.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGES = {
    "edt_sdk": Path("edt_sdk"),
    "edt_server": Path("server/edt_server"),
    "edt_jupyter": Path("jupyter_ext/edt_jupyter"),
}


def modules(root):
    """The path of every module, by its name."""
    for package, folder in PACKAGES.items():
        for path in (root / folder).rglob("*.py"):
            parts = (package, *path.relative_to(root / folder).with_suffix("").parts)
            yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


def needed(source, known):
    """Which of the modules in `known` this source imports."""
    tree = ast.parse(source)
    for_types = {
        id(each)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        for each in ast.walk(node)
    }
    for node in ast.walk(tree):
        if id(node) in for_types:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            # `from edt_sdk import cli` needs the module edt_sdk.cli, and no name of the package.
            spelled = (f"{node.module}.{alias.name}" for alias in node.names)
            yield from (each if each in known else node.module for each in spelled if {each, node.module} & known)


def circle(needs):
    """One circle of modules, in the order of its imports; none when there is none."""
    clean = set()
    for start in needs:
        path = [start]
        waiting = [iter(sorted(needs[start] - {start}))]
        while path:
            following = next((each for each in waiting[-1] if each not in clean), None)
            if following is None:
                clean.add(path.pop())
                waiting.pop()
            elif following in path:
                return path[path.index(following) :]
            else:
                path.append(following)
                waiting.append(iter(sorted(needs.get(following, set()))))
    return []


def test_no_modules_need_each_other(root):
    found = dict(modules(root))
    needs = {name: set(needed(path.read_text(encoding="utf-8"), found.keys())) for name, path in found.items()}
    assert sum(map(len, needs.values())) > 1000  # imports were found at all
    assert circle(needs) == []


@pytest.mark.parametrize(
    ("needs", "found"),
    [
        ({"a": {"b"}, "b": {"c"}, "c": set()}, []),
        ({"a": {"b", "c"}, "b": {"c"}, "c": set()}, []),
        ({"a": {"b"}, "b": {"c"}, "c": {"b"}}, ["b", "c"]),
        ({"a": {"b"}, "b": {"a"}}, ["a", "b"]),
    ],
)
def test_a_circle_is_found(needs, found):
    assert circle(needs) == found


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("from edt_sdk.cli import main", {"edt_sdk.cli"}),
        ("from edt_sdk import cli, Client", {"edt_sdk.cli", "edt_sdk"}),
        ("def late():\n    import edt_sdk.cli", {"edt_sdk.cli"}),
        ("if TYPE_CHECKING:\n    from edt_sdk.cli import main", set()),
        ("import os, json", set()),
    ],
)
def test_what_a_source_needs(source, names):
    assert set(needed(source, {"edt_sdk", "edt_sdk.cli"})) == names
