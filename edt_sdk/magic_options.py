"""IPython's `magic_arguments`, with types.

IPython's decorators are untyped, which would make every magic untyped; these are the same functions.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any, TypeVar, cast

from IPython.core import magic, magic_arguments
from IPython.utils import process

F = TypeVar("F", bound=Callable[..., Any])
C = TypeVar("C", bound=type)
_arguments = cast(Any, magic_arguments)
_process = cast(Any, process)


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
    return cast(argparse.Namespace, _arguments.parse_argstring(function, line))


def words(line: str) -> list[str]:
    """`line` split as a shell would."""
    return cast(list[str], _process.arg_split(line, posix=True))


def line_magic(function: F) -> F:
    """`%name`."""
    return cast(F, cast(Any, magic).line_magic(function))


def line_cell_magic(function: F) -> F:
    """`%name` and `%%name`."""
    return cast(F, cast(Any, magic).line_cell_magic(function))


def magics(cls: C) -> C:
    """Class of magics."""
    return cast(C, cast(Any, magic).magics_class(cls))
