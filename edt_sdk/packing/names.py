"""Find the names a piece of Python needs from outside and those it binds, from its symbol tables.

Nothing is executed.
"""

from __future__ import annotations

import ast
import symtable
from dataclasses import dataclass, field

# Scopes that run immediately. The bodies of functions run later, when the whole script is defined.
_AT_ONCE = frozenset({"listcomp", "setcomp", "dictcomp", "genexpr"})
_SIMPLE = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Expr)


@dataclass(frozen=True, slots=True)
class Names:
    """Holds the names of a module-level statement.

    Attributes:
        binds: at module level.
        now: needed when the statement runs, if no earlier statement has bound them.
        later: needed by its functions when they are called.
        star: it imports everything from a module, so its bindings are unknown.
    """

    binds: frozenset[str]
    now: frozenset[str]
    later: frozenset[str]
    star: bool = False


@dataclass(slots=True)
class _Found:
    binds: set[str] = field(default_factory=set)
    reads: set[str] = field(default_factory=set)
    later: set[str] = field(default_factory=set)


def names_of(statement: ast.stmt) -> Names:
    """Return the names of a statement."""
    found = _Found()
    # Python's own symbol tables apply all rules of scopes: comprehensions, global, nonlocal.
    _look(symtable.symtable(ast.unparse(statement), "<cell>", "exec"), found, later=False, top=True)
    now = set(found.reads)
    if isinstance(statement, _SIMPLE):
        if isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Name):
            now.add(statement.target.id)  # it is read before it is written
    else:
        now -= found.binds  # a loop or a branch usually reads what it has bound itself
    star = isinstance(statement, ast.ImportFrom) and any(alias.name == "*" for alias in statement.names)
    return Names(frozenset(found.binds), frozenset(now), frozenset(found.later), star)


def needed(tree: ast.Module) -> tuple[frozenset[str], bool]:
    """Return the names that a script needs and does not bind before, and whether it has a star import."""
    bound: set[str] = set()
    now: set[str] = set()
    later: set[str] = set()
    star = False
    for statement in tree.body:
        names = names_of(statement)
        now |= names.now - bound
        later |= names.later
        bound |= names.binds
        star |= names.star
    return frozenset(now | (later - bound)), star


def _look(table: symtable.SymbolTable, found: _Found, *, later: bool, top: bool) -> None:
    for symbol in table.get_symbols():
        name = symbol.get_name()
        if top:
            if symbol.is_assigned() or symbol.is_imported():
                found.binds.add(name)
            if symbol.is_referenced():
                found.reads.add(name)
        elif symbol.is_global():
            if symbol.is_assigned():
                found.binds.add(name)  # declared global in a function that assigns it
            elif symbol.is_referenced():
                (found.later if later else found.reads).add(name)
    for child in table.get_children():
        deferred = child.get_type() == "function" and child.get_name() not in _AT_ONCE
        _look(child, found, later=later or deferred, top=False)
