"""From what is said at a prompt or in a cell to what is submitted."""

from __future__ import annotations

from typing import Any

import pytest

from edt_sdk.cli import build_parser
from edt_sdk.schemas.errors import InvalidRequest, Unprocessable
from edt_sdk.schemas.job import JobSpec
from edt_sdk.torchrun.command_line.submission import asked, start_of


def said(words: str, behind: str | None = None) -> dict[str, Any]:
    arguments = build_parser().parse_args(["submit", *words.split()])
    arguments.args = [] if behind is None else behind.split()
    return asked(arguments)


def start(torchrun: str, main: str | None = None, **sizes: int) -> JobSpec:
    sizes = {"max_workers": 1, "min_workers": 1, "slots_per_unit": 1} | sizes
    found = start_of("torchrun", torchrun, main=main, args=["more"], **sizes)
    main = found.named or found.main or "the-only-one.py"
    return JobSpec(name="x", main=main, framework="torchrun", args=found.args, **found.fields).check()


def test_without_a_source_the_script_is_it():
    words = "--nnodes=1:4 --nproc_per_node=8 src/train.py --lr 1"
    assert said("--framework torchrun", words) == {
        "source": "src/train.py",
        "main": None,
        "args": ("--lr", "1"),
        "torchrun": ["--nnodes=1:4", "--nproc_per_node=8"],
    }


def test_in_a_folder_the_script_is_the_main_script():
    found = said("src --framework torchrun", "--nnodes=2 train.py a")
    assert (found["source"], found["main"], found["args"]) == ("src", "train.py", ("a",))
    assert said("src --framework torchrun --main train.py", "--nnodes=2")["main"] == "train.py"


def test_a_module_comes_with_the_current_folder():
    found = said("--framework torchrun", "--nnodes=2 -m pkg.train a")
    assert (found["source"], found["main"], found["torchrun"]) == (".", "pkg.train", ["--nnodes=2", "-m"])


def test_other_frameworks_are_as_they_were():
    assert said("src --main a.py", "x y") == {"source": "src", "main": "a.py", "args": ["x", "y"]}


@pytest.mark.parametrize("words", ["--framework torchrun", "--max-workers 2"])
def test_nothing_to_submit_is_refused(words: str):
    with pytest.raises(InvalidRequest, match="Nothing to submit"):
        said(words)


def test_options_of_no_torchrun_are_refused():
    with pytest.raises(Unprocessable, match="unheard-of"):
        said("--framework torchrun", "--unheard-of t.py")


def test_a_submission_from_a_cell():
    spec = start("--nnodes=1:2 --nproc-per-node=2 train.py a")
    assert (spec.main, spec.args, spec.max_workers, spec.slots_per_unit) == ("train.py", ("a", "more"), 4, 2)
    assert start("--max-restarts=1", max_workers=3).max_workers == 3
    assert start("-m pkg.train").main == "pkg.train"
    assert start("--max-restarts=1", main="b.py").main == "b.py"


def test_two_scripts_and_options_for_another_framework_are_refused():
    with pytest.raises(InvalidRequest, match="Name it once"):
        start("a.py", main="b.py")
    with pytest.raises(InvalidRequest, match="mean nothing"):
        start_of("PyTorch", "--nnodes=2", main=None, args=())
