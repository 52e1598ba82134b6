"""Make a host of this machine: `python -m edt_server.agent join`, which `edt host join` and providers run.

The first time it needs a token. It makes the host's keys, of which the secret half never leaves this machine, and tells
the server the public one under the key of the token. Later it needs nothing: the folder has the orders.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import socket
import sys
from pathlib import Path

import msgspec
import zmq.asyncio

from edt_sdk.schemas.errors import EdtError, ServerUnreachable, Unprocessable
from edt_sdk.schemas.hosts import check_host_name
from edt_sdk.schemas.wire import agent as wire
from edt_sdk.schemas.wire.agent import AGENT_PROTOCOL, AgentOrders
from edt_sdk.schemas.wire.control import ServerAddress
from edt_server.messaging import Conversation, ConversationLost, TokenText, key_pair, read_struct, read_token
from edt_server.system.detached import inherited
from edt_server.system.private_files import keep_private, make_private_dir
from edt_server.system.runtime import private_dir, runtime_dir

ORDERS = "agent.json"
_PATIENCE = 5.0


def main(argv: list[str]) -> int | list[str]:
    """Join, and return the arguments of the agent to run then. The exit code when that is not possible."""
    arguments = _parser().parse_args(argv)
    try:
        return _join(arguments)
    except EdtError as wrong:
        print(f"edt: {wrong.message}", file=sys.stderr)
        if wrong.hint:
            print(f"     {wrong.hint}", file=sys.stderr)
        return 1


def default_folder() -> Path:
    """Return where a host keeps its orders and the files of jobs, unless it is told otherwise."""
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local/share") / "edt-host"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m edt_server.agent join", description=__doc__)
    parser.add_argument("--token-file", help="a file with the token, - for the standard input")
    parser.add_argument("--name", default="", help="name of the host (default: that of the machine)")
    parser.add_argument("--folder", type=Path, help=f"for keys and the files of jobs (default: {default_folder()})")
    parser.add_argument("--slots", type=int, default=0, help="slots to offer (default: one per GPU, or per core)")
    parser.add_argument("--data", default="", help="folder of shared data sets on this machine, DLI_DATA_FS of jobs")
    parser.add_argument("--interface", default="", help="address that workers here are reached at")
    parser.add_argument("--provider", default="", help="what has started this machine")
    parser.add_argument("--provider-id", default="", help="its name there")
    return parser


def _join(arguments: argparse.Namespace) -> list[str]:
    folder = (arguments.folder or default_folder()).expanduser().absolute()
    make_private_dir(folder)
    orders = read_struct(folder / ORDERS, AgentOrders)
    if arguments.slots < 0:
        raise Unprocessable(f"A host cannot offer {arguments.slots} slots.", hint="Give 0 to find them automatically.")
    if arguments.token_file is not None:
        orders = _with_token(_token(arguments.token_file), arguments, folder, orders)
    elif orders is None:
        raise Unprocessable(
            f"This machine has not joined a server yet: there is no {folder / ORDERS}.",
            hint="An admin of the server gets the line to paste here with `edt host token`.",
        )
    changes = {"slots": arguments.slots, "data_fs": arguments.data, "interface": arguments.interface}
    orders = msgspec.structs.replace(orders, **{name: value for name, value in changes.items() if value})
    try:
        keep_private(folder / ORDERS, wire.encode(orders))
    except OSError as wrong:
        raise Unprocessable(f"The orders of this host cannot be kept: {wrong}.", field="folder") from wrong
    print(f"This machine is the host {orders.host} of the server at {_where(orders.servers)}.", flush=True)
    # Jobs see what programs need, and no secret of who has started this.
    kept = inherited(os.environ)
    os.environ.clear()
    os.environ.update(kept)
    # A machine that has been started again has lost it.
    return [str(folder / ORDERS), str(private_dir(Path(orders.runtime_dir)) / "host.lock")]


def _token(place: str) -> TokenText:
    try:
        return read_token(sys.stdin.readline() if place == "-" else Path(place).read_text(encoding="utf-8"))
    except OSError as wrong:
        raise Unprocessable(f"The token cannot be read: {wrong}.", field="token") from wrong


def _with_token(
    token: TokenText, arguments: argparse.Namespace, folder: Path, before: AgentOrders | None
) -> AgentOrders:
    name = arguments.name or socket.gethostname().partition(".")[0]
    check_host_name(name)
    same = before is not None and before.server_key == token.server_key
    # With its former key it is the same host as before.
    keys = (before.public_key, before.secret_key) if before is not None and same else key_pair()
    join = wire.Join(
        protocol=AGENT_PROTOCOL,
        name=name,
        public_key=keys[0],
        provider=arguments.provider,
        provider_id=arguments.provider_id,
    )
    host, server = asyncio.run(_ask(token, join))
    return AgentOrders(
        host=host,
        data_dir=str(folder),
        runtime_dir=str(runtime_dir(Path(os.environ.get("XDG_RUNTIME_DIR") or "/tmp"), folder)),
        public_key=keys[0],
        secret_key=keys[1],
        # The one that answered first.
        servers=(server, *(each for each in token.servers if each != server)),
        server_key=token.server_key,
        provider=arguments.provider,
        provider_id=arguments.provider_id,
    )


async def _ask(token: TokenText, join: wire.Join) -> tuple[str, str]:
    """Return the name that the server gives this host, and where the server is reached."""
    context = zmq.asyncio.Context()
    tried: list[str] = []
    try:
        for server in token.servers:
            address = ServerAddress(endpoint=server, public_key=token.server_key)
            try:
                conversation = Conversation(context, address, (token.public_key, token.secret_key), linger=500)
            except zmq.ZMQError as wrong:
                tried.append(f"{_where((server,))}: {wrong}")
                continue
            try:
                async with asyncio.timeout(_PATIENCE):
                    await conversation.socket.send(wire.encode(join))
                    answer = wire.decode_to_host((await conversation.receive())[0])
            except TimeoutError:
                tried.append(f"{_where((server,))} does not answer")
            except (ConversationLost, msgspec.MsgspecError):
                tried.append(f"{_where((server,))} does not take the token, or is not there")
            else:
                if isinstance(answer, wire.HostJoined):
                    return answer.host, server
                if isinstance(answer, wire.HostRefused):
                    raise Unprocessable(answer.why, hint=answer.hint, field="token")
            finally:
                await conversation.close()
    finally:
        context.destroy(linger=0)
    raise ServerUnreachable(
        f"The server cannot be reached: {'; '.join(tried)}.",
        hint="Is the port of c.EdtApp.fleet_listen open for this machine? A token is valid for an hour, and once, "
        "unless it was made for more.",
    )


def _where(servers: tuple[str, ...]) -> str:
    return ", ".join(each.removeprefix("tcp://") for each in servers)
