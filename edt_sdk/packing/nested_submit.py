"""Find calls that would submit a job from inside a job, in code that is about to be packed.

Code is parsed and never run. Only a client of `edt_sdk` that the code itself creates is recognised.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence

_LONGEST = 1 << 20  # a longer script is generated, and parsing it would take seconds


def submit_notes(scripts: Sequence[tuple[str, str]]) -> tuple[str, ...]:
    """Return a note for each script that calls `submit()` of a client.

    Args:
        scripts: (place, source) in the order in which they run, such as ("cell 3", "client.submit('own')"). They share
            their names. A source that is not Python has no notes.
    """
    whole = "\n".join(source for _, source in scripts)
    if "edt_sdk" not in whole or ".submit(" not in whole or len(whole) > _LONGEST:
        return ()
    parsed = [(place, list(_nodes(source))) for place, source in scripts]
    every = [node for _, nodes in parsed for node in nodes]
    classes = _names_of_class(every)
    clients = {name for node in every for name in _assigned(node, classes)}
    return tuple(
        f"{place}: the job would run {ast.unparse(call.func)}(…) too, and submit a job itself"
        for place, nodes in parsed
        if (call := next(_submits(nodes, classes, clients), None)) is not None
    )


def _nodes(source: str) -> Iterable[ast.AST]:
    try:
        return ast.walk(ast.parse(source))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ()


def _names_of_class(nodes: Iterable[ast.AST]) -> set[str]:
    """Return what the code writes for the class, such as "Client" and "edt_sdk.Client"."""
    names: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "edt_sdk":
            names |= {alias.asname or alias.name for alias in node.names if alias.name == "Client"}
        elif isinstance(node, ast.Import):
            names |= {f"{each.asname or each.name}.Client" for each in node.names if each.name == "edt_sdk"}
    return names


def _creates(node: ast.AST | None, classes: set[str]) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func) in classes


def _assigned(node: ast.AST, classes: set[str]) -> Iterator[str]:
    """Yield the names to which this statement assigns a new client."""
    value: ast.AST | None = None
    targets: Sequence[ast.AST | None] = ()
    if isinstance(node, ast.Assign):
        value, targets = node.value, node.targets
    elif isinstance(node, ast.AnnAssign):
        value, targets = node.value, [node.target]
    elif isinstance(node, ast.withitem):
        value, targets = node.context_expr, [node.optional_vars]
    if _creates(value, classes):
        yield from (target.id for target in targets if isinstance(target, ast.Name))


def _submits(nodes: Iterable[ast.AST], classes: set[str], clients: set[str]) -> Iterator[ast.Call]:
    for node in nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "submit":
            owner = node.func.value
            if _creates(owner, classes) or (isinstance(owner, ast.Name) and owner.id in clients):
                yield node
