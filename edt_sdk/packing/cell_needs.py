"""Collect what a cell needs from its notebook: definitions of the names it uses, from cells that ran before.

Functions, classes and imports travel as source in the order they ran, with their own needs. Plain values (numbers,
texts, and lists of these) travel with their current value. Nothing is pickled and nothing is executed: the result is a
readable script. A name that cannot travel is refused by name.
"""

from __future__ import annotations

import ast
import builtins
import symtable
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from types import ModuleType

from edt_sdk.packing.cells import plain_cell
from edt_sdk.schemas.errors import PackageError

# Scopes that run immediately. The bodies of functions run later, when the whole script is defined.
_AT_ONCE = frozenset({"listcomp", "setcomp", "dictcomp", "genexpr"})
_SIMPLE = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Expr)
_MOST = 10_000  # characters of a value in a script
_SESSION = frozenset({"get_ipython", "display", "In", "Out"})
_DEFINING = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)
_GUARDING = (ast.If, ast.Try)
_IN_GUARDS = (*_DEFINING, *_GUARDING, ast.Assign, ast.AnnAssign, ast.Pass, ast.Raise)


@dataclass(frozen=True, slots=True)
class TakenAlong:
    """Holds the script that goes before a cell. `notes` are sentences for the user."""

    script: str
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Definition:
    place: tuple[int, int]  # cell and statement, in execution order
    statement: ast.stmt
    source: str


def take_along(cell: str, earlier: Sequence[str], namespace: Mapping[str, object]) -> TakenAlong:
    """Return the definitions that `cell` needs.

    Args:
        cell: code of a notebook cell, with magics.
        earlier: the cells that ran before, oldest first. Cells that are not Python are skipped.
        namespace: the current variables of the notebook.

    Raises:
        PackageError: the cell uses something that cannot travel, or is not Python.
    """
    text, _ = plain_cell(cell.replace("\r\n", "\n"), 1)
    wanted, star = _needed(ast.parse(text))
    taking = _Taking(_definitions(earlier), namespace)
    taking.take(wanted)
    if taking.stuck:
        raise _cannot(taking.stuck)
    missing = () if star else tuple(sorted(taking.missing))
    unknown = (f"nothing in this notebook defines {_list(missing)}, which the cell uses",) if missing else ()
    return TakenAlong(taking.script(), (*taking.notes(), *unknown))


class _Taking:
    """Collects definitions and values."""

    def __init__(self, definitions: Mapping[str, _Definition], namespace: Mapping[str, object]) -> None:
        self._definitions, self._namespace = definitions, namespace
        self._sources: dict[tuple[int, int], _Definition] = {}
        self._values: dict[str, str] = {}  # name → the line that defines it
        self._seen: set[str] = set()
        self._named: dict[str, list[str]] = {"class": [], "function": [], "import": []}
        self.stuck: dict[str, object] = {}
        self.missing: set[str] = set()

    def take(self, wanted: Iterable[str]) -> None:
        # Sorted, so that the same cell always gives the same script.
        waiting = sorted(wanted)
        while waiting:
            name = waiting.pop()
            if name not in self._seen:
                self._seen.add(name)
                waiting += self._take(name)

    def _take(self, name: str) -> list[str]:
        """Take one name and return the names it needs itself."""
        if name in _SESSION:
            self.stuck[name] = None
        elif name not in self._definitions and (hasattr(builtins, name) or name.startswith("__")):
            pass  # a builtin, even if IPython has put another object with this name into the notebook
        elif name not in self._namespace:
            self.missing.add(name)
        elif (definition := self._definitions.get(name)) is not None and _travels(definition.statement):
            self._sources[definition.place] = definition
            self._name(name, definition.statement)
            names = _names_of(definition.statement)
            return sorted((names.now | names.later) - names.binds)
        elif (line := _line(name, self._namespace[name])) is not None:
            self._values[name] = line
        else:
            self.stuck[name] = self._namespace[name]
        return []

    def _name(self, name: str, statement: ast.stmt) -> None:
        kind = "function"
        if isinstance(statement, ast.ClassDef):
            kind = "class"
        elif isinstance(statement, ast.Import | ast.ImportFrom | ast.If | ast.Try):
            kind = "import"
        self._named[kind].append(name)

    def script(self) -> str:
        """Return the source of everything taken."""
        sources = [self._sources[place].source for place in sorted(self._sources)]
        return "\n".join([*(self._values[name] for name in sorted(self._values)), *sources])

    def notes(self) -> tuple[str, ...]:
        words = [
            f"{_list(sorted(names))} ({kind if len(names) == 1 else _PLURAL[kind]})"
            for kind, names in self._named.items()
            if names
        ]
        words += [_short(self._values[name]) for name in sorted(self._values)]
        return (f"taken along from this notebook: {'; '.join(words)}",) if words else ()


_PLURAL = {"class": "classes", "function": "functions", "import": "imports"}


def _definitions(earlier: Sequence[str]) -> dict[str, _Definition]:
    """Return name → the last statement that bound it."""
    found: dict[str, _Definition] = {}
    for number, cell in enumerate(earlier):
        try:
            text, _ = plain_cell(cell.replace("\r\n", "\n"), number)
            tree = ast.parse(text)
        except (PackageError, SyntaxError, ValueError):
            continue  # it did not run either
        lines = text.split("\n")
        for at, statement in enumerate(tree.body):
            first = min([statement.lineno, *(each.lineno for each in getattr(statement, "decorator_list", ()))])
            alone = "\n".join(lines[first - 1 : statement.end_lineno])
            # Several statements may share a line (`a = 1; b = 2`). Then take this one's normalized source.
            shares = ast.unparse(ast.parse(alone)) != ast.unparse(statement) if _parses(alone) else True
            source = ast.unparse(statement) if shares else alone
            for name in _names_of(statement).binds:
                found[name] = _Definition((number, at), statement, source)
    return found


def _parses(text: str) -> bool:
    try:
        ast.parse(text)
    except SyntaxError:
        return False
    return True


def _travels(statement: ast.stmt) -> bool:
    """Return whether a statement may run again in a job, because it only defines something."""
    if isinstance(statement, _DEFINING):
        return True
    if isinstance(statement, ast.Assign):
        return isinstance(statement.value, ast.Lambda)
    if isinstance(statement, _GUARDING):
        inside = [each for each in ast.walk(statement) if isinstance(each, ast.stmt)]
        functions = [each for each in inside if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]
        later = {each for function in functions for each in ast.walk(function)}
        defines = any(isinstance(each, _DEFINING) for each in inside)
        return defines and all(isinstance(each, _IN_GUARDS) or each in later for each in inside)
    return False


@dataclass(slots=True)
class _Names:
    """Holds the names that module-level code binds, and those it needs from outside.

    Attributes:
        binds: at module level.
        now: needed when the code runs, if no earlier statement has bound them.
        later: needed by its functions when they are called.
        star: it imports everything from a module, so its bindings are unknown.
    """

    binds: set[str] = field(default_factory=set)
    now: set[str] = field(default_factory=set)
    later: set[str] = field(default_factory=set)
    star: bool = False


def _names_of(statement: ast.stmt) -> _Names:
    names = _Names(star=isinstance(statement, ast.ImportFrom) and any(alias.name == "*" for alias in statement.names))
    # Python's own symbol tables apply all rules of scopes: comprehensions, global, nonlocal.
    _look(symtable.symtable(ast.unparse(statement), "<cell>", "exec"), names, later=False, top=True)
    if not isinstance(statement, _SIMPLE):
        names.now -= names.binds  # a loop or a branch usually reads what it has bound itself
    elif isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Name):
        names.now.add(statement.target.id)  # it is read before it is written
    return names


def _needed(tree: ast.Module) -> tuple[set[str], bool]:
    """Return the names that a script needs and does not bind before, and whether it has a star import."""
    whole = _Names()
    for statement in tree.body:
        names = _names_of(statement)
        whole.now |= names.now - whole.binds
        whole.later |= names.later
        whole.binds |= names.binds
        whole.star |= names.star
    return whole.now | (whole.later - whole.binds), whole.star


def _look(table: symtable.SymbolTable, names: _Names, *, later: bool, top: bool) -> None:
    for symbol in table.get_symbols():
        name = symbol.get_name()
        if top:
            if symbol.is_assigned() or symbol.is_imported():
                names.binds.add(name)
            if symbol.is_referenced():
                names.now.add(name)
        elif symbol.is_global():
            if symbol.is_assigned():
                names.binds.add(name)  # declared global in a function that assigns it
            elif symbol.is_referenced():
                (names.later if later else names.now).add(name)
    for child in table.get_children():
        deferred = child.get_type() == "function" and child.get_name() not in _AT_ONCE
        _look(child, names, later=later or deferred, top=False)


def _line(name: str, value: object) -> str | None:
    """Return a line that recreates the value in a script, None where no line can."""
    if isinstance(value, ModuleType):
        return f"import {value.__name__} as {name}"
    if isinstance(value, PurePath):
        return f"{name} = __import__('pathlib').Path({str(value)!r})"
    if _plain_value(value) and len(text := repr(value)) <= _MOST:
        return f"{name} = {text}"
    module, inside = getattr(value, "__module__", None), getattr(value, "__qualname__", "")
    named = isinstance(module, str) and module != "__main__" and isinstance(inside, str) and inside.isidentifier()
    # Only where the import gives the same object: the notebook may have replaced it under this name.
    if named and getattr(sys.modules.get(str(module)), inside, None) is value:
        return f"from {module} import {inside} as {name}"
    return None


def _plain_value(value: object) -> bool:
    """Return whether `repr` of the value evaluates to an equal value."""
    # Checked before the text is parsed, which takes long for a large value.
    if type(value) in (list, tuple, dict, set) and len(repr(value)) > _MOST:
        return False
    if not isinstance(value, bool | int | float | complex | str | bytes | list | tuple | dict | set | None):
        return False
    try:
        return bool(ast.literal_eval(repr(value)) == value) and type(ast.literal_eval(repr(value))) is type(value)
    except (ValueError, SyntaxError, RecursionError):
        return False


def _cannot(stuck: Mapping[str, object]) -> PackageError:
    session = sorted(set(stuck) & _SESSION)
    if session:
        return PackageError(
            f"The cell uses {_list(session)}, which only a notebook has.", hint="A job can print.", field="source"
        )
    told = [f"{name} is {_what(value)}" for name, value in sorted(stuck.items())]
    return PackageError(
        f"What the cell uses cannot be taken along as source: {_list(told)}.",
        hint="Create it there, or in a function that the cell calls. FabricModel.train() in a cell accepts objects.",
        field="source",
    )


def _what(value: object) -> str:
    kind = type(value)
    if kind in (list, tuple, dict, set, str, bytes):
        return (
            f"a {kind.__name__} of {len(repr(value))} characters" if len(repr(value)) > _MOST else f"a {kind.__name__}"
        )
    name = (
        kind.__qualname__ if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}.{kind.__qualname__}"
    )
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"


def _short(line: str) -> str:
    return line if len(line) <= 60 else f"{line[:57]}…"


def _list(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
