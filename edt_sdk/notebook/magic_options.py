"""IPython's `magic_arguments`, with types, and with help that reads well.

IPython's decorators are untyped, which would make every magic untyped. These are the same functions.
"""

from __future__ import annotations

import argparse
import inspect
import re
import shlex
import textwrap
from collections.abc import Callable, Iterator
from typing import Any, TypeVar, cast

import msgspec
from IPython.core import magic, magic_arguments
from IPython.core.error import UsageError

from edt_sdk.schemas import fields

F = TypeVar("F", bound=Callable[..., Any])
C = TypeVar("C", bound=type)
_arguments = cast(Any, magic_arguments)
_LEFT = re.compile(r"\{([A-Za-z_][\w.\[\]'\"()]*)\}|\$([A-Za-z_]\w*)")
_WIDTH = 100
_COLUMN = 24


def parsed(function: F) -> F:
    """Make the parser of a magic from the `option`s below it, and `%name?` from both. The outermost decorator."""
    told = inspect.cleandoc(function.__doc__ or "")
    made = cast(F, _arguments.magic_arguments()(function))
    cast(Any, made).parser.allow_abbrev = False  # as in `edt`
    cell = made.__name__ in cast(Any, magic).magics["cell"]
    made.__doc__ = help_text(made.__name__, told, cast(Any, made).parser, cell=cell)
    return made


def help_text(name: str, told: str, parser: argparse.ArgumentParser, *, cell: bool) -> str:
    """Return what `%name?` shows: usage, description, examples if `told` has any, and every option."""
    positional = [action for action in parser._actions if not action.option_strings]
    optional = [action for action in parser._actions if action.option_strings]
    words = [f"[{action.dest.upper()}{' …' if action.nargs == '*' else ''}]" for action in positional]
    usage = [" ".join([f"%{name}", *words, *(["[options]"] if optional else [])])]
    if cell:
        usage.append(f"%%{name} [options]")
    lines = [*usage, "", told, *_described("", positional), *_described("Options:", optional)]
    return "\n".join(lines).rstrip() + "\n"


def _described(head: str, actions: list[argparse.Action]) -> Iterator[str]:
    if not actions:
        return
    yield from ["", *([head] if head else [])]
    for action in actions:
        value = action.metavar or ("|".join(map(str, action.choices)) if action.choices else action.dest.upper())
        names = ", ".join(action.option_strings) or action.dest.upper()
        left = f"  {names}" + ("" if not action.option_strings or action.nargs == 0 else f" {value}")
        text = textwrap.wrap(action.help or "", _WIDTH - _COLUMN)
        if len(left) >= _COLUMN - 1:
            yield left
            left = ""
        for line in text:
            yield f"{left:<{_COLUMN}}{line}"
            left = ""


def option(*names: str, **settings: Any) -> Callable[[F], F]:
    """Add one argument, with the parameters of argparse's `add_argument`."""
    return cast(Callable[[F], F], _arguments.argument(*names, **settings))


def options_of(struct: type[msgspec.Struct], *names: str, unset: bool = False) -> Callable[[F], F]:
    """Add an option for each of these fields of a struct (see `fields.options`)."""

    def add(function: F) -> F:
        # IPython reads stacked decorators from the top, so that the last field has to be added first.
        for flag, settings in reversed(list(fields.options(struct, names, unset=unset))):
            function = option(flag, **settings)(function)
        return function

    return add


job_argument = option("job", nargs="?", help="id of the job, or a variable that holds it; the last one by default")


def parse(function: Callable[..., Any], line: str) -> argparse.Namespace:
    """Return the arguments in `line`, or raise a UsageError on a single line."""
    # Not IPython's parse_argstring: it splits unlike a shell and tears --env A='b c' apart.
    try:
        found, unknown = cast(Any, function).parser.parse_known_args(words(line))
        if unknown:
            name = f"%{cast(Any, function).__name__}"
            scripts = name if "lone --" in (function.__doc__ or "") else ""
            text = fields.wrong_use(cast(Any, function).parser, unknown, words(line), scripts)
            raise UsageError(f"{text} See: {name}?")
        return cast(argparse.Namespace, found)
    except UsageError as wrong:
        # IPython has put variables in already, and leaves what it cannot find as it is.
        left = [braced or dollar for braced, dollar in _LEFT.findall(line)]
        if not left:
            raise
        raise UsageError(f"{wrong} (There is no variable {left[0]!r} in this notebook.)") from None


def words(line: str) -> list[str]:
    """Split `line` as a shell does, or raise UsageError when a quote is not closed."""
    try:
        return shlex.split(line)
    except ValueError as wrong:
        raise UsageError(f"{wrong}: {line}") from None


def line_magic(function: F) -> F:
    """Register `%name`."""
    return cast(F, cast(Any, magic).line_magic(function))


def line_cell_magic(function: F) -> F:
    """Register `%name` and `%%name`."""
    return cast(F, cast(Any, magic).line_cell_magic(function))


def as_typed(function: F) -> F:
    """Let IPython put no variables into the line of this magic."""
    return cast(F, cast(Any, magic).no_var_expand(function))


def magics(cls: C) -> C:
    """Register a class of magics."""
    return cast(C, cast(Any, magic).magics_class(cls))
