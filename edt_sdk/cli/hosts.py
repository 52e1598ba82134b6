"""`edt host …`: the machines that offer slots. `edt host join` runs on the machine that joins, the rest anywhere."""

from __future__ import annotations

import argparse
import ipaddress
import os
import shutil
import sys
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

from edt_sdk.cli.session import Verbs, add_actions, add_verb, client, print_json, show
from edt_sdk.display.cluster_view import host_text, hosts_text
from edt_sdk.formatting.number_words import duration, stamp
from edt_sdk.schemas.errors import InvalidRequest
from edt_sdk.schemas.hosts import NewHostToken

_AGENT = "edt_server.agent"
_GET_TOKEN = "`edt host token`, where the server is, prints the line to run here."
_about = partial(add_verb, about=("name", "the host"))


def add(verbs: Verbs, common: argparse.ArgumentParser) -> None:
    """Add the verbs of this group."""
    actions = add_actions(verbs, "host", "Look after hosts: list, show, token, join, drain, remove and logs.")
    listing = add_verb(actions, common, "list", _run_list, "List the machines that offer slots.", output="table")
    show_one = _about(actions, common, "show", _run_show, "Show a host.", output="text")
    for parser in (listing, show_one):
        parser.add_argument("--json", dest="output", action="store_const", const="json", help="as -o json")
    says = "Print the line that lets a machine join. It is shown this once."
    token = add_verb(actions, common, "token", _run_token, says, output="text")
    token.add_argument("--minutes", type=float, default=60.0, metavar="M", help="how long it can be used (default 60)")
    token.add_argument("--uses", type=int, default=1, metavar="N", help="how many machines may join (default 1)")
    _add_join(actions)
    drain = _about(actions, common, "drain", _run_drain, "Let a host give up its slots, each at its job's next update.")
    drain.add_argument("--undo", action="store_true", help="let it offer its slots again")
    drain.add_argument("--wait", action="store_true", help="wait until no job holds a slot there")
    remove = _about(actions, common, "remove", _run_remove, "Forget a host and its key.")
    remove.add_argument(
        "--force", action="store_true", help="also while jobs hold slots there, which they lose at once"
    )
    logs = _about(actions, common, "logs", _run_logs, "Print the last lines of the log of a host's agent.")
    logs.add_argument("-n", "--tail", type=int, default=200, metavar="N", help="so many lines (default 200)")


def _add_join(actions: Verbs) -> None:
    says = "Let this machine join a server, and run its agent until Ctrl-C or `edt host remove`."
    # Without the options of the server: the token has its addresses.
    # The agent checks its own options: it is also started without this program.
    join = add_verb(actions, argparse.ArgumentParser(add_help=False), "join", _run_join, says)
    join.add_argument("join_token", metavar="TOKEN", nargs="?", help="from the line of `edt host token`; once only")
    join.add_argument("--token-file", metavar="F", help="read the token from a file, - for standard input")
    join.add_argument("--name", metavar="N", help="how the host is called (default: the machine's name)")
    join.add_argument("--folder", metavar="D", help="where its key and the files of its jobs are kept")
    join.add_argument("--slots", type=int, metavar="N", help="slots that it offers (default: its GPUs, else its cores)")
    join.add_argument("--data", metavar="DIR", help="the folder of data sets on this machine")
    join.add_argument("--interface", metavar="ADDR", help="the IP address where other hosts reach its workers")


def _run_list(arguments: argparse.Namespace) -> None:
    found = client(arguments).hosts()
    show(arguments, {"hosts": found}, hosts_text(found, shutil.get_terminal_size((110, 24)).columns))


def _run_show(arguments: argparse.Namespace) -> None:
    found = client(arguments).host(arguments.name)
    show(arguments, found, host_text(found))


def _run_token(arguments: argparse.Namespace) -> None:
    NewHostToken(seconds=60 * arguments.minutes, uses=arguments.uses).check()
    made = client(arguments).host_token(minutes=arguments.minutes, uses=arguments.uses)
    if arguments.output == "json":
        print_json(made)
        return
    print(made.command)
    many = "one machine" if made.uses == 1 else f"{made.uses} machines"
    print(f"(for {many}, within {duration(60 * arguments.minutes)}: until {stamp(made.expires)})", file=sys.stderr)


def _run_drain(arguments: argparse.Namespace) -> None:
    host = client(arguments).drain_host(arguments.name, undo=arguments.undo, wait=arguments.wait)
    print(host.state.value)
    if host.used and not arguments.undo:
        print(f"(jobs still hold {host.used} there, until their next updates)", file=sys.stderr)


def _run_remove(arguments: argparse.Namespace) -> None:
    client(arguments).remove_host(arguments.name, force=arguments.force)
    print(arguments.name)


def _run_logs(arguments: argparse.Namespace) -> None:
    text = client(arguments).host_log(arguments.name, lines=arguments.tail)
    if text:
        print(text)
    else:
        print(f"(the server has no line of the agent of {arguments.name!r})", file=sys.stderr)


# --- on the machine that joins ----------------------------------------------------------------------------------------


def _run_join(arguments: argparse.Namespace) -> NoReturn:
    _check_join(arguments)
    token_file = arguments.token_file
    if arguments.join_token is not None:
        _as_input(arguments.join_token)
        token_file = "-"
    # The folder of the current shell is no concern of the agent.
    options = {
        "token-file": token_file if token_file == "-" else _absolute(token_file),
        "name": arguments.name,
        "folder": _absolute(arguments.folder),
        "slots": arguments.slots,
        "data": _absolute(arguments.data),
        "interface": arguments.interface,
    }
    words = [word for name, value in options.items() if value is not None for word in (f"--{name}", str(value))]
    os.execv(sys.executable, [sys.executable, "-P", "-m", _AGENT, "join", *words])


def _check_join(arguments: argparse.Namespace) -> None:
    token, file = arguments.join_token, arguments.token_file
    if token is not None and file is not None:
        raise InvalidRequest("There are two tokens: TOKEN and --token-file.", hint="Give one of both.", field="token")
    if token is not None and (not token.strip() or len(token.split()) != 1):
        raise InvalidRequest("The token is not complete.", hint=f"Copy the whole line. {_GET_TOKEN}", field="token")
    if file not in (None, "-") and not Path(file).expanduser().is_file():
        raise InvalidRequest(f"There is no file {file!r} with a token.", hint=_GET_TOKEN, field="token_file")
    if arguments.data is not None and not Path(arguments.data).expanduser().is_dir():
        raise InvalidRequest(f"There is no folder {arguments.data!r}.", hint="--data is a folder here.", field="data")
    if arguments.interface is not None:
        _check_address(arguments.interface)
    if find_spec("edt_server") is None:
        raise InvalidRequest(
            f"This Python ({sys.executable}) cannot run an agent: it has no edt_server.",
            hint="Install the whole package here: pip install jupyter-edt, in the server's version.",
        )


def _check_address(text: str) -> None:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        hint = "Give one of this machine's addresses, such as 10.0.0.5: `hostname -I` lists them."
        raise InvalidRequest(f"{text!r} is not an IP address.", hint=hint, field="interface") from None


def _absolute(path: str | None) -> Path | None:
    return None if path is None else Path(path).expanduser().absolute()


def _as_input(token: str) -> None:
    """Make the token this process's standard input."""
    # Not an argument, which every user of the machine could read in the list of processes. A token fits into a pipe.
    read, write = os.pipe()
    os.write(write, token.encode())
    os.close(write)
    os.dup2(read, 0)
    os.close(read)
