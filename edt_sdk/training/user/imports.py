"""Import ahead what a script will import from installed modules, without any of its own code. Never imports torch."""

from __future__ import annotations

import ast
import contextlib
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

# A longer script is generated: parsing it would take seconds.
_LONGEST = 1 << 20


def outside_imports(script: Path) -> list[str]:
    """Return the import statements at the top of a script, and of modules beside it that it imports, of other modules.

    They are found by reading. What a function or a branch imports is left out, because it may never run.
    """
    waiting, seen, found = [script], {script}, []
    while waiting:
        for node in _statements(waiting.pop()):
            names = _modules(node)
            own = {path for name in names for path in _beside(script.parent, name)}
            waiting += sorted(own - seen)
            seen |= own
            if names and not own and not any((script.parent / _top(name)).is_dir() for name in names):
                found.append(ast.unparse(node))
    return list(dict.fromkeys(found))


def import_ahead(script: Path) -> list[str]:
    """Execute `outside_imports` as far as they succeed, and return the files of the packages that they name."""
    tops: set[str] = set()
    for statement in outside_imports(script):
        tops |= set(map(_top, _modules(ast.parse(statement).body[0])))
        # The script will raise the same error, and report it.
        with contextlib.suppress(Exception, SystemExit):
            exec(statement, {"__name__": __name__})
    return [file for name in sorted(tops) if (file := getattr(sys.modules.get(name), "__file__", None))]


def can_fork() -> bool:
    """Return whether a fork has all of this process: nothing imported has started a thread or touched CUDA.

    Threads of libraries in C are no hindrance. A DataLoader forks beside them too.
    """
    torch = sys.modules.get("torch")
    return threading.active_count() == 1 and not (torch is not None and torch.cuda.is_initialized())


def _statements(path: Path) -> Iterator[ast.stmt]:
    try:
        tree = ast.parse(path.read_bytes()[:_LONGEST])
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return
    yield from (node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom))


def _modules(node: ast.AST) -> list[str]:
    """Return the names of modules that a statement may import. What it takes from a module may be one."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if not isinstance(node, ast.ImportFrom) or not node.module or node.level:
        return []
    return [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]


def _top(name: str) -> str:
    return name.partition(".")[0]


def _beside(folder: Path, name: str) -> list[Path]:
    """Return the files in the folder that a module's name stands for, with those of its packages."""
    parts = name.split(".")
    inside = [folder.joinpath(*parts[:depth]) for depth in range(1, len(parts) + 1)]
    places = [place for each in inside for place in (each.with_name(f"{each.name}.py"), each / "__init__.py")]
    return [place for place in places if place.is_file()]
