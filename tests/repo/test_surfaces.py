"""One verb, one name: what the design and the guides name is there, in Python, at a shell, as a magic, in REST."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from edt_sdk import Client, Deployment, Job, Project, Search, Version
from edt_sdk.cli import build_parser
from edt_sdk.notebook.magics import EdtMagics

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs" / "guide"
GUIDES = (
    "user-guide.md",
    "admin-guide.md",
    "simulate.md",
    *sorted(f"guide/{path.name}" for path in GUIDE.glob("*.md")),
)
TABLE = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in (GUIDE / "verbs.md").read_text(encoding="utf-8").splitlines()
    if line.startswith("| ") and not line.startswith("| To ")
]
PUBLIC = {
    owner: {name for name in dir(held) if not name.startswith("_") and callable(getattr(held, name))}
    for owner, held in {
        "client": Client,
        "job": Job,
        "search": Search,
        "version": Version,
        "project": Project,
        "deployment": Deployment,
    }.items()
}
# No verbs: what belongs to Python's objects, `job.what_if` by another way, and what monitors and cards are made with.
OTHERS = {
    *("client.close", "client.what_if", "job.refresh", "job.saw", "search.refresh"),
    *("job.bundle", "job.log_lines", "job.losses", "job.through", "version.lineage", "project.experiments"),
    *("deployment.refresh", "deployment.wait_ready", "deployment.scale", "deployment.curl", "deployment.logs"),
}


def shell_verbs():
    return set(build_parser()._subparsers._group_actions[0].choices)


def magics():
    return {name for kind in EdtMagics.magics.values() for name in kind}


def guide(*names):
    return "".join((ROOT / "docs" / name).read_text(encoding="utf-8") for name in names)


@pytest.fixture(scope="module")
def paths():
    text = (ROOT / "jupyter_ext/edt_jupyter/openapi.yaml").read_text(encoding="utf-8")
    return yaml.safe_load(text)["paths"]


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row[1])
def test_a_verb_has_its_name_on_every_surface(row, paths):
    _, python, shell, magic, rest = (cell.strip("`") for cell in row)
    if len(python) > 1:
        owner, _, name = python.removesuffix("()").partition(".")
        assert name in PUBLIC[owner]
    if len(shell) > 1:
        command = shell.removeprefix("edt ").split()
        parser = build_parser()._subparsers._group_actions[0].choices[command[0]]
        assert " ".join(command[1:]) in parser.format_help()
    if len(magic) > 1:
        name, *options = magic.removeprefix("%").split()
        assert set(options) <= set(EdtMagics.__dict__[name].parser._option_string_actions)
    if len(rest) > 1:
        method, path = rest.split()
        assert method.lower() in paths[path]


def test_the_table_is_whole_and_says_why_a_place_is_empty():
    named = {row[1].strip("`").removesuffix("()") for row in TABLE}
    there = {f"{owner}.{name}" for owner, names in PUBLIC.items() for name in names}
    assert there - named == OTHERS
    assert {row[2].strip("`").split()[1] for row in TABLE if len(row[2]) > 1} == shell_verbs()
    assert {row[3].strip("`%").split()[0] for row in TABLE if len(row[3]) > 1} == magics()
    letters = {cell for row in TABLE for cell in row if len(cell) == 1}
    text = (GUIDE / "verbs.md").read_text(encoding="utf-8")
    assert letters == set(re.findall(r"^- \*\*(\w)\*\*", text, re.MULTILINE))


@pytest.mark.parametrize("name", GUIDES)
def test_what_the_guides_name_is_there(name):
    code = " ".join(re.findall(r"```.*?```|`[^`\n]+`", guide(name), re.DOTALL))
    assert {verb for verb in re.findall(r"\bclient\.(\w+)\(", code) if not hasattr(Client, verb)} == set()
    assert {verb for verb in re.findall(r"\bjob\.(\w+)\(", code) if not hasattr(Job, verb)} == set()
    assert set(re.findall(r"(?:`|; |^)edt ([a-z][a-z-]+)", code, re.MULTILINE)) <= shell_verbs()
    assert set(re.findall(r"%(edt_\w+)", code)) <= magics()


def test_every_verb_of_the_shell_and_every_magic_is_in_a_guide():
    text = guide(*GUIDES)
    assert {verb for verb in shell_verbs() if f"edt {verb}" not in text} == set()
    assert {magic for magic in magics() if f"%{magic}" not in text} == set()
