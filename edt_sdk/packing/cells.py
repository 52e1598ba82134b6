"""Convert notebook cells to a script.

A script has no IPython: magics (`%`, `%%`), shell lines (`!`) and help (`?`) are commented out, each with a note.
Python's own parser finds these lines, because it stops at them. So a `%` inside a string or a multi-line expression is
never changed, and the result does not depend on whether IPython is loaded.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from edt_sdk.schemas.errors import PackageError

NOT_RUN = "# not run in a job: "
_FUTURE = re.compile(r"^from __future__ import [\w, ]+$", re.MULTILINE)
_CLIENT = re.compile(r"^\s*(\w+)\s*=\s*(?:\w+\.)?Client\(", re.MULTILINE)
# Cell magics with a body of Python that a script can run unchanged.
_TRANSPARENT = frozenset({"time", "capture", "prun", "timeit"})
_LINE = re.compile(
    r"\s*[%!?]"  # a magic, a shell line, help in front
    r"|.*=\s*[%!]"  # an assignment from a magic
    r"|.*\?\s*\Z"  # help at the end
    r"|\s*(pip|conda|mamba|uv|cd|ls|cat|mkdir|rm|cp|mv)\s"  # IPython accepts these without their sign
)


def script_from_cells(cells: Iterable[str]) -> tuple[str, tuple[str, ...]]:
    """Return (one script, notes on commented-out lines) from the sources of code cells.

    Raises:
        PackageError: a cell is not Python. The message has the cell's number and the line.
    """
    pieces: list[str] = []
    notes: list[str] = []
    for number, cell in enumerate(cells, 1):
        text, dropped = plain_cell(cell.replace("\r\n", "\n"), number)
        notes += [f"cell {number}: not run in a job: {line}" for line in dropped]
        if text.strip():
            pieces.append(text.rstrip("\n") + "\n")
    if not pieces:
        raise PackageError("The cells contain no code.", field="source")
    clients = "|".join(dict.fromkeys(name for piece in pieces for name in _CLIENT.findall(piece)))
    if clients and any(re.search(rf"^[^#\n]*\b(?:{clients})\.submit\(", piece, re.MULTILINE) for piece in pieces):
        notes.append("its cells call submit(), so that the job would submit jobs: give the cells of the training a tag")
    return "\n\n".join(_future_first(pieces)), tuple(notes)


def _future_first(pieces: list[str]) -> list[str]:
    """Move imports from `__future__` in later pieces to the top, the only place where a script may have them."""
    found = [line for piece in pieces[1:] for line in _FUTURE.findall(piece)]
    if not found:
        return pieces
    rest = [_FUTURE.sub(lambda line: f"# at the top: {line[0]}", piece) for piece in pieces[1:]]
    return ["\n".join(dict.fromkeys(found)) + "\n", pieces[0], *rest]


def cells_of(path: Path, tag: str | None = None) -> list[str]:
    """Return the sources of the code cells of a notebook file (nbformat 4), or only of the cells with a `tag`.

    Raises:
        PackageError: it is no notebook, or none of its code cells has the tag.
    """
    try:
        notebook: Any = msgspec.json.decode(path.read_bytes())
        cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
        wanted = [cell for cell in cells if tag is None or tag in cell.get("metadata", {}).get("tags", ())]
        sources = ["".join(cell["source"]) for cell in wanted]
    except (msgspec.DecodeError, KeyError, TypeError, AttributeError) as wrong:
        raise PackageError(
            f"{path.name} is not a notebook of format 4 ({wrong}).",
            hint="Open and save it in Jupyter once.",
            field="source",
        ) from None
    if tag is not None and not sources:
        raise PackageError(
            f"No code cell of {path.name} has the tag {tag!r}.",
            hint=f"Tag those that make up the training (in Jupyter: Property Inspector, Cell tags: {tag}) and save.",
            field="tag",
        )
    return sources


def plain_cell(cell: str, number: int) -> tuple[str, list[str]]:
    """Return the cell without IPython-only syntax, and the lines that were dropped.

    Raises:
        PackageError: the rest is not Python. The message names the cell by its number.
    """
    lines = cell.split("\n")
    first = next((at for at, line in enumerate(lines) if line.strip()), 0)
    dropped: list[str] = []
    while lines[first].startswith("%%"):
        words = lines[first][2:].split()
        dropped.append(lines[first].strip())
        if not words or words[0] not in _TRANSPARENT:
            return "\n".join(NOT_RUN + line for line in lines[first:]), dropped
        lines[first] = NOT_RUN + lines[first]
        first = next((at for at in range(first + 1, len(lines)) if lines[at].strip()), first)
    # Each iteration comments out at least one line, so the loop ends.
    while (wrong := _first_error(lines)) is not None:
        at = min(max((wrong.lineno or 1) - 1, 0), len(lines) - 1)
        # A line that was replaced before and still stops the parser is an error of the cell itself.
        if not _LINE.match(lines[at]) or lines[at].lstrip().startswith("pass  #"):
            raise _not_python(wrong, lines, at, number) from None
        end = _last_of(lines, at)
        dropped.append(lines[at].strip())
        indent = re.match(r"\s*", lines[at])
        # `pass` keeps a block valid of which the magic was the only statement.
        lines[at] = f"{indent[0] if indent else ''}pass  {NOT_RUN}{lines[at].strip()}"
        for more in range(at + 1, end + 1):
            lines[more] = NOT_RUN + lines[more]
    return "\n".join(lines), dropped


def _first_error(lines: Sequence[str]) -> SyntaxError | None:
    try:
        # Without dont_inherit the `from __future__` of this file would apply to the cell.
        compile("\n".join(lines), "<cell>", "exec", dont_inherit=True)
    except SyntaxError as wrong:
        return wrong
    return None


def _last_of(lines: Sequence[str], at: int) -> int:
    """Return the index of the last line of a magic with backslash continuations."""
    while lines[at].endswith("\\") and at + 1 < len(lines):
        at += 1
    return at


def _not_python(wrong: SyntaxError, lines: Sequence[str], at: int, number: int) -> PackageError:
    awaits = "outside function" in (wrong.msg or "") and "await" in lines[at]
    return PackageError(
        f"Cell {number}, line {at + 1} is not Python: {wrong.msg}: {lines[at].strip()}",
        hint="A script cannot await at top level. Wrap it in asyncio.run(…)." if awaits else "",
        field="source",
    )
