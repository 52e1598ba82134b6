"""IPython's `magic_arguments`, with types.

IPython's decorators are untyped, which would make every magic untyped; these are the same functions.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable
from typing import Any, TypeVar, cast

from IPython.core import magic, magic_arguments
from IPython.core.error import UsageError

F = TypeVar("F", bound=Callable[..., Any])
C = TypeVar("C", bound=type)
_arguments = cast(Any, magic_arguments)


def parsed(function: F) -> F:
    """Outermost decorator of a magic: makes its parser from the `option`s below."""
    return cast(F, _arguments.magic_arguments()(function))


def option(*names: str, **settings: Any) -> Callable[[F], F]:
    """One argument, as argparse's `add_argument` takes it."""
    return cast(Callable[[F], F], _arguments.argument(*names, **settings))


def job_argument(function: F) -> F:
    """The positional argument of magics about one job."""
    says = "id of the job, or a variable that holds it; the last one by default"
    return option("job", nargs="?", help=says)(function)


def parse(function: Callable[..., Any], line: str) -> argparse.Namespace:
    """The arguments in `line`; UsageError, one clean line, when they are wrong."""
    # Not IPython's parse_argstring: it splits unlike a shell and tears --env A='b c' apart.
    return cast(argparse.Namespace, cast(Any, function).parser.parse_args(words(line)))


def words(line: str) -> list[str]:
    """`line` split as a shell would; UsageError when a quote is left open."""
    try:
        return shlex.split(line)
    except ValueError as wrong:
        raise UsageError(f"{wrong}: {line}") from None


def line_magic(function: F) -> F:
    """`%name`."""
    return cast(F, cast(Any, magic).line_magic(function))


def line_cell_magic(function: F) -> F:
    """`%name` and `%%name`."""
    return cast(F, cast(Any, magic).line_cell_magic(function))


def magics(cls: C) -> C:
    """Class of magics."""
    return cast(C, cast(Any, magic).magics_class(cls))
