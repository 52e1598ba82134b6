"""Collect a submission as one list of files: from a folder, a `.py` file, a notebook file or cells.

It reads names and sizes, and imports of scripts. It writes nothing. Links are followed while they stay inside the
folder. Every listed file lies inside the source, so a link that leads outside is refused, not copied.
"""

from __future__ import annotations

import ast
import inspect
import os
import re
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pathspec

from edt_sdk.packing.cell_needs import take_along
from edt_sdk.packing.cells import cells_of, script_from_cells
from edt_sdk.packing.nested_submit import submit_notes
from edt_sdk.schemas.errors import PackageError, TooLarge
from edt_sdk.schemas.fields import did_you_mean

IGNORE_FILE = ".edtignore"
# Files and folders that no job needs, and .env and .netrc, which hold secrets.
ALWAYS_IGNORED = (
    ".git/", ".hg/", ".svn/", "__pycache__/", "*.py[co]", ".venv/", ".ipynb_checkpoints/", ".mypy_cache/",
    ".ruff_cache/", ".pytest_cache/", ".hypothesis/", ".tox/", ".nox/", "*.egg-info/", "node_modules/", ".DS_Store",
    ".idea/", ".vscode/", ".env", ".netrc", IGNORE_FILE,
)  # fmt: skip
# A folder with this file is a Python environment, whatever its name.
_ENVIRONMENT = "pyvenv.cfg"
# Jobs have the installed package. A copy from a checkout would shadow it.
_NEVER = frozenset({"edt_sdk"})
# A longer script is generated: parsing it would take seconds, and a hundred times its size in memory.
LONGEST_SCRIPT = 1 << 20
HELPERS = ("edtcallback.py", "elog.py", "emetrics.py")
_HELPED = re.compile(rb"\b(?:edtcallback|elog|emetrics)\b")


@dataclass(frozen=True, slots=True)
class SourceFile:
    """Describes a file of the package: its name there, and the location of its bytes."""

    name: str
    content: Path | bytes
    size: int
    executable: bool = False
    # An added file that no script of the source names. It is not listed.
    spare: bool = False


@dataclass(frozen=True, slots=True)
class Collected:
    """Holds a source that is ready to be packed. `notes` are sentences for the user."""

    name: str
    main: str
    files: tuple[SourceFile, ...]
    notes: tuple[str, ...] = ()

    @property
    def listed(self) -> tuple[SourceFile, ...]:
        """Return the files to show to people: all but added helpers that the code does not use."""
        return tuple(file for file in self.files if not file.spare)

    @property
    def size(self) -> int:
        """Return the unpacked bytes of all files."""
        return sum(file.size for file in self.files)


Source = str | os.PathLike[str] | Sequence[str] | Callable[..., object] | Collected


def collect(
    source: Source,
    main: str | None = None,
    *,
    script: bool = True,
    tag: str | None = None,
    hidden: bool = True,
    most: int | None = None,
) -> Collected:
    """Collect the files of `source` and its main script.

    Args:
        source: a folder, a `.py` or `.ipynb` file, code (a string with a line break, or a list of cells), a function of
            this notebook, or a `Collected`, which is returned unchanged.
        main: the script to run, relative to the folder. Needed only where the choice is ambiguous.
        script: False where a command runs instead, so that a folder needs no script.
        tag: take only the cells of a notebook file with this tag. None for all.
        hidden: whether to take files of a folder with a name that starts with a dot.
        most: refuse a folder with more files, None for any number.

    Raises:
        PackageError: no such source, no such main script, or a file that cannot be packed.
        TooLarge: more than `most` files.
    """
    if isinstance(source, Collected):
        return source
    if isinstance(source, str) and "\n" in source:
        source = [source]
    if callable(source):
        return _from_function(source, main)
    if not isinstance(source, str | os.PathLike):
        return from_cells(list(source), "cells", Path.cwd(), main=main)
    path = Path(source).expanduser()
    if str(source) and path.is_dir():  # Path("") would be the current folder
        walk = _Walk(path.resolve(), hidden, most)
        files = sorted(walk, key=lambda file: file.name)
        found = _main_of(walk.root, files, main) if script or main is not None else ""
        submitting = submit_notes([(found, _text(walk.root / found))]) if found.endswith(".py") else ()
        return _with_helpers(Collected(walk.root.name or "job", found, tuple(files), (*walk.notes, *submitting)))
    if not path.is_file():
        raise PackageError(
            f"There is no folder or file {str(source)!r}.",
            hint=_meant(path) or "Give a folder, a .py or .ipynb file, or a list of notebook cells.",
            field="source",
        )
    path = path.resolve()
    if path.suffix == ".ipynb":
        return from_cells(cells_of(path, tag), path.stem, path.parent, main=main)
    if path.suffix == ".py":
        return _with_helpers(_from_file(path, main))
    raise PackageError(
        f"{path.name} is neither a folder nor a .py or .ipynb file.",
        hint="Submit its folder, with main=….",
        field="source",
    )


def from_cells(
    cells: Sequence[str], name: str, folder: Path, *, main: str | None = None, notes: Sequence[str] = ()
) -> Collected:
    """Convert code cells to one script, with the modules of `folder` that it imports.

    Raises:
        PackageError: a cell is not Python, there is no code, or `main` is no valid name.
    """
    script, own = script_from_cells(cells)
    beside = list(_beside(script, folder, taken=set()))
    names = {file.name for file in beside}
    # The script must not replace a module that it imports.
    main = main or next(choice for choice in ("main.py", "main_script.py", "main_cells.py") if choice not in names)
    if main in names or "/" in main or not main.endswith(".py"):
        raise PackageError(f"The cells cannot be saved as {main!r}.", hint="Leave main out.", field="main")
    data = script.encode()
    return _with_helpers(Collected(name, main, (SourceFile(main, data, len(data)), *beside), (*notes, *own)))


def cells_run(shell: Any) -> Sequence[str]:
    """Return the cells that a notebook's shell has run, as typed. The running cell is last."""
    manager = getattr(shell, "history_manager", None)
    return () if manager is None else tuple(manager.input_hist_raw)


def from_notebook(cell: str, shell: Any, main: str | None = None) -> Collected:
    """Convert a cell to a script, with what it uses of the notebook whose shell this is.

    Raises:
        PackageError: as of `from_cells`, or the cell uses something that cannot travel.
    """
    taken = take_along(cell, cells_run(shell), dict(shell.user_ns))
    cells = [taken.script, cell] if taken.script else [cell]
    return from_cells(cells, "cells", Path.cwd(), main=main, notes=taken.notes)


def check_call(function: Callable[..., object], names: Iterable[str]) -> None:
    """Raise PackageError where a function cannot be called with the values of these names."""
    try:
        inspect.signature(function).bind(**dict.fromkeys(names))
    except TypeError as wrong:
        name = getattr(function, "__name__", "the function")
        text = f"A job cannot call {name}(): {wrong}."
        raise PackageError(
            text, hint="A search calls it with the values of its space, by name.", field="source"
        ) from None


def _from_function(function: Callable[..., object], main: str | None) -> Collected:
    name = getattr(function, "__name__", "")
    # Not imported: a process that has not loaded it is no notebook.
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    if shell is None or shell.user_ns.get(name) is not function:
        raise PackageError(
            f"{name or repr(function)} is not a function of this notebook, so its code is not found.",
            hint="Send the file that defines it, or its folder.",
            field="source",
        )
    return replace(from_notebook(f"import edt_sdk\n\n{name}(**edt_sdk.params())\n", shell, main), name=name)


def _from_file(path: Path, main: str | None) -> Collected:
    if main not in (None, path.name):
        raise PackageError(f"main is {main!r}, but the source is the file {path.name}.", field="main")
    # Read only to find its imports. The file itself is packed byte for byte.
    script = _text(path)
    files = [_entry(path, path.name), *_beside(script, path.parent, taken={path.name})]
    return Collected(path.stem, path.name, tuple(files), submit_notes([(path.name, script)]))


def _beside(script: str, folder: Path, taken: set[str]) -> Iterator[SourceFile]:
    ignored = _ignored_in(folder)
    for path in _local_modules(script, folder):
        name = path.relative_to(folder).as_posix()
        inside = path.resolve().is_relative_to(folder)
        if name not in taken and inside and not ignored.match_file(name):
            yield _entry(path, name)


def _local_modules(script: str, folder: Path) -> list[Path]:
    """Return files in `folder`, sorted: modules `name.py` and all files of packages `name/` that `script` reaches.

    They are found by reading `import` statements, never by running code. For what is imported in another way, a user
    submits the folder.
    """
    found: set[Path] = set()
    waiting = [script]
    while waiting:
        for name in sorted(imported(waiting.pop()) - _NEVER):
            for path in _files_of(folder / name):
                if path not in found:
                    found.add(path)
                    if path.suffix == ".py":
                        waiting.append(_text(path))
    return sorted(found)


def imported(script: str) -> set[str]:
    """Return the top-level names of imported modules, none where the text is not Python (the job will report it)."""
    try:
        tree = ast.parse(script)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return set()
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update(alias.name.split(".")[0] for alias in node.names)
        # A relative import cannot work in a main script, so it names no module of the folder.
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.split(".")[0])
    return names


def _files_of(module: Path) -> Iterator[Path]:
    single = module.with_name(f"{module.name}.py")
    if (module / "__init__.py").is_file():
        yield from (path for path in module.rglob("*") if path.is_file())
    elif single.is_file():
        yield single
    elif module.is_dir():  # a namespace package: only if it holds Python
        yield from (path for path in module.rglob("*.py") if path.is_file())


def _with_helpers(collected: Collected) -> Collected:
    """Add the modules that WMLA's model folders expect. A folder's own copy wins, and a build may have none."""
    own = {file.name for file in collected.files}
    folder = Path(__file__).parents[1] / "compat" / "job"
    spare = not any(_HELPED.search(_bytes(file.content)) for file in collected.files if file.name.endswith(".py"))
    added = [_entry(folder / name, name) for name in HELPERS if name not in own and (folder / name).is_file()]
    helpers = [replace(file, spare=spare) for file in added]
    files = sorted((*collected.files, *helpers), key=lambda file: file.name)
    return Collected(collected.name, collected.main, tuple(files), collected.notes)


def _bytes(content: Path | bytes) -> bytes:
    if isinstance(content, bytes):
        return content
    try:
        with content.open("rb") as opened:
            return opened.read(LONGEST_SCRIPT)
    except OSError:
        return b""  # packing reports it


def _text(path: Path) -> str:
    """Return the beginning of a file, which is all of a script that a person wrote."""
    return _bytes(path).decode(errors="replace")


def helper_notes(names: Iterable[str]) -> tuple[str, ...]:
    """Return the sentence about the helpers among these files, none where there is no helper."""
    found = sorted(set(HELPERS).intersection(names))
    return (f"{', '.join(found)}: helpers for WMLA code, added to each job",) if found else ()


def _ignored_in(folder: Path) -> pathspec.GitIgnoreSpec:
    lines: list[str] = list(ALWAYS_IGNORED)
    own = folder / IGNORE_FILE
    if own.is_file():
        lines += _text(own).splitlines()
    try:
        return pathspec.GitIgnoreSpec.from_lines(lines)
    except ValueError as wrong:
        raise PackageError(f"{IGNORE_FILE} has a line that is no pattern: {wrong}", field="source") from None


class _Walk:
    """Iterates over the files below `root` that are not ignored. `notes` lists files left out for other reasons."""

    def __init__(self, root: Path, hidden: bool, most: int | None) -> None:
        self.root, self.notes = root, list[str]()
        self._hidden, self._most = hidden, most
        self._ignored = _ignored_in(root)

    def __iter__(self) -> Iterator[SourceFile]:
        waiting: list[tuple[Path, str, frozenset[Path]]] = [(self.root, "", frozenset({self.root}))]
        found = 0
        while waiting:
            folder, prefix, above = waiting.pop()
            for entry in sorted(_listed(folder), key=lambda e: e.name):
                name, path = prefix + entry.name, Path(entry.path)
                if self._ignored.match_file(name + ("/" if entry.is_dir() else "")) or self._hides(entry.name, name):
                    continue
                real = _inside(self.root, path, name) if entry.is_symlink() else path
                if entry.is_dir():
                    if (path / _ENVIRONMENT).is_file():
                        self.notes.append(f"{name}/ is left out: it is a Python environment")
                    # A link to a folder above it would make the walk endless.
                    elif real.resolve() in above:
                        raise PackageError(f"The link {name} leads back to a folder it lies in.", hint=_hint(name))
                    else:
                        waiting.append((path, f"{name}/", above | {real.resolve()}))
                elif stat.S_ISREG(path.stat().st_mode):
                    found += 1
                    self._count(found)
                    yield _entry(path, name)
                else:
                    self.notes.append(f"{name} is left out: it is not a plain file")

    def _hides(self, own: str, name: str) -> bool:
        if self._hidden or not own.startswith("."):
            return False
        self.notes.append(f"{name} is left out: hidden files are not served here")
        return True

    def _count(self, found: int) -> None:
        if self._most is not None and found > self._most:
            raise TooLarge(
                f"{self.root.name} has more than {self._most} files, the most that this server accepts.",
                hint=f"Submit the folder of the training alone, or name what the job does not need in {IGNORE_FILE}.",
                field="source",
            )


def _listed(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError as refused:
        why = f"The folder {folder} cannot be read: {refused.strerror}."
        raise PackageError(why, hint=_hint(folder.name)) from None


def _inside(root: Path, link: Path, name: str) -> Path:
    """Return the target of a link. PackageError when it is missing or outside the folder."""
    try:
        real = link.resolve(strict=True)
    except (OSError, RuntimeError):
        raise PackageError(f"The link {name} leads nowhere.", hint=_hint(name), field="source") from None
    # Refused, because a link could otherwise pull files of the whole machine into the package.
    if not real.is_relative_to(root):
        raise PackageError(
            f"The link {name} leads out of the folder, to {real}.",
            hint=f"Copy what it names, read it by its absolute path, or name it in {IGNORE_FILE}.",
            field="source",
        )
    return real


def _entry(path: Path, name: str) -> SourceFile:
    status = path.stat()
    return SourceFile(name, path, status.st_size, bool(status.st_mode & stat.S_IXUSR))


def _main_of(folder: Path, files: Sequence[SourceFile], main: str | None) -> str:
    scripts = [file.name for file in files if file.name.endswith(".py")]
    if main is not None:
        wanted = main.replace(os.sep, "/").removeprefix("./")
        if any(file.name == wanted for file in files):
            return wanted
        why = f"main={main!r} is not in the package. {_found(folder, scripts)}"
        raise PackageError(why, hint=did_you_mean(wanted, scripts), field="main")
    usual = [name for name in ("main.py", "train.py") if name in scripts]
    top = [name for name in scripts if "/" not in name and name not in HELPERS]
    for choice in (usual, top, scripts):
        if len(choice) == 1:
            return choice[0]
    raise PackageError(
        f"Which script is the main one? {_found(folder, scripts)}", hint="Name it: main='train.py'.", field="main"
    )


def _meant(path: Path) -> str:
    try:
        return did_you_mean(path.name, os.listdir(path.parent))
    except OSError:
        return ""


def _found(folder: Path, scripts: Sequence[str]) -> str:
    if not scripts:
        return f"There is no .py file in {folder}."
    shown = ", ".join(scripts[:12]) + (f" and {len(scripts) - 12} more" if len(scripts) > 12 else "")
    return f"Python files in {folder}: {shown}."


def _hint(name: str) -> str:
    return f"Name it in {IGNORE_FILE} if the job does not need it: {name}"
