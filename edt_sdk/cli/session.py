"""Parts that the verbs share: the client for their options, the parser of a verb, text tables."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from edt_sdk.formatting.tables import text_table as table
from edt_sdk.schemas import fields
from edt_sdk.schemas.errors import InvalidRequest, NotAllowed, NotFound

__all__ = [
    "Run",
    "Verbs",
    "add_actions",
    "add_options",
    "add_verb",
    "client",
    "job",
    "print_json",
    "searches",
    "show",
    "table",
    "writing",
]

if TYPE_CHECKING:
    from edt_sdk.client import Client, Job
    from edt_sdk.schemas.search.views import SearchView

Verbs = Any  # argparse's subparsers action, a private class
Run = Callable[[argparse.Namespace], int | None]  # runs a verb and returns its exit code, None for 0


def add_verb(
    verbs: Verbs,
    common: argparse.ArgumentParser,
    name: str,
    run: Run,
    says: str,
    *,
    job: str | None = None,
    about: tuple[str, str] | None = None,
    output: str | None = None,
) -> argparse.ArgumentParser:
    """Add the parser for one verb.

    `job` is the help of its positional ID, None when it takes none. `about` are the name and the help of another
    positional argument, for a verb that is not about a job. `output` is the default of -o, None for no -o.
    """
    parser: argparse.ArgumentParser = verbs.add_parser(name, parents=[common], help=says, description=says)
    parser.set_defaults(run=run, parser=parser)
    if job is not None:
        parser.add_argument("id", metavar="ID", help=job)
    if about is not None:
        parser.add_argument(about[0], metavar=about[0].upper(), help=about[1])
    if output is not None:
        parser.add_argument("-o", "--output", choices=(output, "json"), default=output)
    return parser


def add_actions(verbs: Verbs, noun: str, says: str) -> Verbs:
    """Add a verb that is followed by an action, and return what the actions are added to."""
    parser = verbs.add_parser(noun, help=says, description=says)
    return parser.add_subparsers(dest="action", metavar="ACTION", required=True)


def add_options(
    parser: argparse.ArgumentParser, struct: type[msgspec.Struct], *names: str, unset: bool = False
) -> None:
    """Add an option for each of these fields of a struct (see `fields.options`)."""
    for flag, settings in fields.options(struct, names, unset=unset):
        parser.add_argument(flag, **settings)


def client(arguments: argparse.Namespace) -> Client:
    """Return the client for `--url` and `--token`. Its messages go to stderr."""
    from edt_sdk.client import Client

    # Messages never go to stdout, which a script reads.
    return Client(arguments.url, arguments.token, output=sys.stderr)


def job(arguments: argparse.Namespace) -> Job:
    """Return the job with the given ID."""
    return client(arguments).job(arguments.id)


def searches(server: Client, *, state: str | None = None, limit: int | None = None) -> list[SearchView]:
    """Return my searches: none of an older server, which has no searches, or where jobs are all that I may read."""
    try:
        return [each.view for each in server.searches(state=state, limit=limit)]
    except (NotFound, NotAllowed):
        return []


@contextmanager
def writing(path: str) -> Iterator[None]:
    """Write a file in the block. InvalidRequest where that is not possible."""
    try:
        yield
    except OSError as wrong:
        raise InvalidRequest(f"{path} cannot be written: {wrong.strerror}.", hint="Name another file.") from None


def show(arguments: argparse.Namespace, value: object, text: object) -> None:
    """Print the answer as `-o` wants it."""
    if arguments.output == "json":
        print_json(value)
    else:
        print(text)


def print_json(value: object) -> None:
    """Print plain data or structs as indented JSON."""
    print(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())
