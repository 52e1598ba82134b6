"""Count the lines of a loop that a person changes to make it elastic."""

from __future__ import annotations

import difflib
import inspect
import statistics
import textwrap
from collections.abc import Callable, Mapping

from tests.training.elastic.programs.loop import Program


def changed(program: Callable[[bool], Program]) -> int:
    """Return how many lines differ between the two loops of a program, as they stand in its function.

    A line in place of another one counts once, also where there are more of them on one side. Indentation does not
    count, which an editor changes for all lines of a loop at once.
    """
    source = textwrap.dedent(inspect.getsource(program)).splitlines()
    (begin,) = (number for number, line in enumerate(source) if line.strip() == "if plain:")
    margin = source[begin].index("if")
    other = source.index(" " * margin + "else:", begin)
    end = next(n for n in range(other, len(source)) if source[n].startswith(" " * margin + "yield"))
    plain, ours = (
        [line.strip() for line in part if line.strip() != "yield ()"]
        for part in (source[begin + 1 : other], source[other + 1 : end])
    )
    codes = difflib.SequenceMatcher(None, plain, ours, autojunk=False).get_opcodes()
    return sum(max(i2 - i1, j2 - j1) for tag, i1, i2, j1, j2 in codes if tag != "equal")


def table(programs: Mapping[str, Callable[[bool], Program]]) -> str:
    """Return a line for each program, and the median."""
    counts = {name: changed(program) for name, program in programs.items()}
    rows = [f"{count:3}  {name}" for name, count in counts.items()]
    return "\n".join([*rows, f"{statistics.median(counts.values()):3g}  median"])
