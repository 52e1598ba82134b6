"""Own `edt`: the verbs of the SDK at a shell prompt.

stdout carries only the answer (for `submit`, the job's id). Messages to people go to stderr. An error is one
line.

Exit codes: 0 fine, 1 the job failed (`wait`, `submit --wait`), 2 wrong use, also when the server reports it (no such
job, wrong state, a value it refuses), 3 timeout, 4 no server, or the server fails, 130 interrupted.

Never: a verb that the SDK does not have.

Read first: `session.py` (the client and the errors), then `jobs.py`.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import version
from textwrap import wrap

from edt_sdk.cli.terminal import visible_output
from edt_sdk.schemas.errors import EdtError, JobFailed, WaitTimeout
from edt_sdk.schemas.fields import OneLineParser

# The files with verbs, below the heads of `edt --help`. Each has `add(subparsers, common)`.
GROUPS = {
    "jobs": ("submitting", "jobs", "projects", "reading", "picturing"),
    "searches": ("searching",),
    "machine": ("top", "machine", "hosts"),
    "catalogue": ("catalogue", "versioning"),
    "deployments": ("deploying",),
    "administration": ("sharing", "simulating", "completing"),
}

# Verbs that take a script's own arguments after `--`.
TAKING_ARGS = ("submit", "clone", "search start", "model add", "model train", "model update")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    with visible_output():
        return _run(argv)


def _run(argv: Sequence[str] | None) -> int:
    words = list(sys.argv[1:] if argv is None else argv)
    # Split before argparse sees the words: it would take the script's options for ours.
    own, script_args = _split(words)
    parser = build_parser()
    if "_ARGCOMPLETE" in os.environ:
        from edt_sdk.cli.completing import complete

        complete(parser)
    if not words:
        parser.print_help(sys.stderr)
        return 2
    arguments = parser.parse_args(own)
    verb = f"{arguments.verb} {arguments.action}" if arguments.verb in ("model", "search") else arguments.verb
    if script_args is not None and verb not in TAKING_ARGS:
        parser.error(f"arguments after -- belong to {', '.join(f'`edt {name}`' for name in TAKING_ARGS)} only")
    arguments.args = script_args or []
    arguments.said_args = script_args is not None
    try:
        code: int = arguments.run(arguments) or 0
        # Flush here, so that a closed pipe raises within this `try` and not at the interpreter's exit.
        sys.stdout.flush()
    except EdtError as refused:
        return complain(refused)
    except KeyboardInterrupt as stopped:
        print(f"\n{stopped}".rstrip(), file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader closed the pipe (`edt logs … | head`). Without this Python reports it again when it flushes.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return code


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of all verbs."""
    common = OneLineParser(add_help=False)
    server = common.add_argument_group("server")
    server.add_argument("--url", help="address of the Jupyter Server (default: EDT_URL, else the one that runs here)")
    server.add_argument("--token", help="its token (default: EDT_TOKEN, else found with the server)")
    parser = OneLineParser(
        prog="edt",
        description="Submit elastic trainings to a Jupyter Server, and look after them.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action=_Version)
    verbs = parser.add_subparsers(
        dest="verb", metavar="VERB", required=True, help="see below; `edt VERB --help` has its options"
    )
    # argparse itself knows only one flat list of verbs.
    listed: list[str] = []
    for head, files in GROUPS.items():
        before = len(verbs.choices)
        for file in files:
            # A file imports the client only when its verb runs, so that `edt --help` and completion stay fast.
            import_module(f"edt_sdk.cli.{file}").add(verbs, common)
        listed.append(f"\n{head}:")
        for name, verb in list(verbs.choices.items())[before:]:
            listed += wrap(f"{verb.description}", 76, initial_indent=f"  {name:<13} ", subsequent_indent=" " * 16)
    verbs._choices_actions.clear()
    codes = "Exit codes: 0 fine, 1 the job failed, 2 wrong use, 3 timed out, 4 server unreachable."
    parser.epilog = "\n".join([*listed, "", codes]).lstrip("\n")
    return parser


def complain(refused: EdtError) -> int:
    """Print the error on stderr and return its exit code."""
    first, *rest = str(refused).splitlines() or [refused.code]
    print(f"edt: {first}", *rest, sep="\n", file=sys.stderr)
    # Before the status: these two never come from a server and have the base class's 500.
    if isinstance(refused, JobFailed):
        return 1
    if isinstance(refused, WaitTimeout):
        return 3
    return 2 if 400 <= refused.status < 500 else 4


class _Version(argparse.Action):
    """Looks the version up only when asked."""

    def __init__(self, option_strings: Sequence[str], dest: str) -> None:
        super().__init__(option_strings, dest, nargs=0, help="show the version and exit")

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        print(f"edt {version('jupyter-edt')}")
        parser.exit()


def _split(words: list[str]) -> tuple[list[str], list[str] | None]:
    """Split the words into our own and those after `--`, for the submitted script."""
    if "--" not in words:
        return words, None
    at = words.index("--")
    return words[:at], words[at + 1 :]
