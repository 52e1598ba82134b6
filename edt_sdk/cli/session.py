"""What the verbs share: the client their options name, the shape of a verb, text tables."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from edt_sdk.formatting.text_table import table

__all__ = ["Verbs", "add_verb", "client", "job", "print_json", "table"]

if TYPE_CHECKING:
    from edt_sdk.client import Client, Job

Verbs = Any  # argparse's subparsers action; its class is private


def add_verb(
    verbs: Verbs,
    common: argparse.ArgumentParser,
    name: str,
    run: Callable[[argparse.Namespace], int],
    says: str,
    *,
    job: str | None = None,
) -> argparse.ArgumentParser:
    """A parser for one verb. `job` is the help of its positional ID, None when it takes none."""
    parser: argparse.ArgumentParser = verbs.add_parser(name, parents=[common], help=says, description=says)
    parser.set_defaults(run=run)
    if job is not None:
        parser.add_argument("id", metavar="ID", help=job)
    return parser


def client(arguments: argparse.Namespace) -> Client:
    """The client for `--url` and `--token`; what it says to people goes to stderr."""
    from edt_sdk.client import Client

    return Client(arguments.url, arguments.token, output=sys.stderr)


def job(arguments: argparse.Namespace) -> Job:
    """The job whose ID was given."""
    return client(arguments).job(arguments.id)


def print_json(value: object) -> None:
    """Indented JSON of plain data or structs."""
    import msgspec

    print(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())
