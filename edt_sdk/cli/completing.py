"""The verb and the values of Tab: `edt completion SHELL`, and what may follow a job, a group or a state.

argcomplete reads the parsers. Here are only the values that a server knows. It is asked once, without retries and with
a short timeout, because a key press waits for it.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from edt_sdk.cli.picturing import NAMES
from edt_sdk.cli.session import Verbs
from edt_sdk.schemas.errors import EdtError
from edt_sdk.schemas.job import JobState

if TYPE_CHECKING:
    from edt_sdk.http.connection import Connection

_PATIENCE = 2.0
_NEWEST = 200
# Verbs that an ended job refuses, and `update`, which changes only its notes and labels.
_FOR_LIVING = ("update", "what-if", "stop", "suspend")
_SHELLS = ("bash", "zsh", "fish")


def add(verbs: Verbs, common: argparse.ArgumentParser) -> None:
    """Add the verb, which needs no server."""
    says = 'Print what lets Tab complete, for the start file of a shell: eval "$(edt completion bash)".'
    parser = verbs.add_parser("completion", help=says, description=says)
    parser.add_argument("shell", choices=_SHELLS)
    parser.set_defaults(run=_run_completion)


def _run_completion(arguments: argparse.Namespace) -> None:
    from argcomplete.shell_integration import shellcode

    print(shellcode(["edt"], shell=arguments.shell))


def complete(parser: argparse.ArgumentParser) -> None:
    """Print what may follow the words of the shell, and exit. Returns at once when no shell asks."""
    from argcomplete import autocomplete

    for verb in _parsers(parser):
        for action in verb._actions:
            values = _values_of(verb.prog.split(), action.dest)
            if values is not None and action.choices is None:
                action.completer = values  # type: ignore[attr-defined]
    autocomplete(parser, always_complete_options=False)


def _parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for verb in action.choices.values():
                yield from _parsers(verb)


def _values_of(words: list[str], dest: str) -> Callable[..., list[str]] | None:
    """Return the completer of an argument of the verb with these words, such as edt dataset show."""
    if dest == "name":
        # A new thing gets a new name.
        return None if words[-1] in ("add", "create") else _NAMED.get(words[1])
    if dest in ("id", "ids") and words[-1] in _FOR_LIVING:
        return _asked(_living)
    if dest == "words":
        return _asked(_pictured) if words[-1] == "picture" else None
    return _VALUES.get(dest)


def _asked(ask: Callable[[Connection], Iterable[str]]) -> Callable[..., list[str]]:
    """Return a completer with the answer of a server, which is empty without one."""

    def completer(prefix: str, parsed_args: argparse.Namespace, **_: object) -> list[str]:
        from edt_sdk.http.connection import Connection
        from edt_sdk.http.discovery import connect

        try:
            server, _info = connect(getattr(parsed_args, "url", None), getattr(parsed_args, "token", None))
            connection = Connection(server.url, server.token, retries=0, timeout=_PATIENCE)
            return [each for each in ask(connection) if each.startswith(prefix)]
        except EdtError:
            return []

    return completer


def _names(path: str, key: str) -> Callable[[Connection], Iterable[str]]:
    return lambda server: [each["name"] for each in server.json("GET", path)[key]]


def _jobs(server: Connection, *, ended: bool = True) -> list[str]:
    """Return the newest jobs, each by its name where no other has that, else by its id."""
    jobs = server.json("GET", "jobs", params={"limit": _NEWEST})["jobs"]
    names = [job["name"] for job in jobs]
    shown = [job for job in jobs if ended or not JobState(job["state"]).final]
    # A name that is the beginning of its id would only stop the completion in the middle.
    return [job["id"] if names.count(job["name"]) > 1 else job["name"] for job in shown]


def _living(server: Connection) -> list[str]:
    return _jobs(server, ended=False)


def _pictured(server: Connection) -> list[str]:
    return [*_jobs(server), *NAMES]


def _states(prefix: str, **_: object) -> list[str]:
    return [state.word for state in JobState if state.word.startswith(prefix.lower())]


_NAMED = {
    "dataset": _asked(_names("datasets", "datasets")),
    "model": _asked(_names("models", "models")),
    "group": _asked(_names("instance-groups", "instance_groups")),
    "resource": _asked(_names("resource-groups", "resource_groups")),
}
_VALUES: dict[str, Callable[..., list[str]]] = {
    **dict.fromkeys(("id", "ids", "before", "warm_start"), _asked(_jobs)),
    "instance_group": _NAMED["group"],
    "parent": _NAMED["group"],
    "resource_group": _NAMED["resource"],
    "dataset": _NAMED["dataset"],
    "project": _asked(_names("projects", "projects")),
    "state": _states,
}
