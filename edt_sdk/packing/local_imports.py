"""Find the modules next to a script that it imports, directly or indirectly.

A single file is submitted with the modules it needs from its own folder. They are found by reading `import` statements,
never by running code. A module that is imported in another way can be submitted with its folder.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

# Jobs have the installed package. A copy from a checkout would shadow it.
_NEVER = frozenset({"edt_sdk"})


def local_modules(script: str, folder: Path) -> list[Path]:
    """Return files in `folder`, sorted: modules `name.py` and all files of packages `name/` that `script` reaches."""
    found: set[Path] = set()
    waiting = [script]
    while waiting:
        for name in sorted(_imported(waiting.pop()) - _NEVER):
            for path in _files_of(folder / name):
                if path not in found:
                    found.add(path)
                    if path.suffix == ".py":
                        waiting.append(path.read_text(encoding="utf-8", errors="replace"))
    return sorted(found)


def _imported(script: str) -> set[str]:
    """Return the top-level names of imported modules, none where the text is not Python (the job will report it)."""
    try:
        tree = ast.parse(script)
    except (SyntaxError, ValueError):
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
