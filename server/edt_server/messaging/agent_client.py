"""Hold the client's end of an agent's connection: one conversation with it, until it is lost.

An agent that exits closes its socket, so its loss is known at once. After a loss the client reads the address again.
"""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import msgspec
import zmq.asyncio

from edt_sdk.schemas.wire import agent as wire
from edt_sdk.schemas.wire.agent import AGENT_PROTOCOL, AgentAddress
from edt_sdk.schemas.wire.control import HOST_SILENT
from edt_server.messaging.encrypted_socket import Conversation, ConversationLost, send_now

T = TypeVar("T")


class AgentConnection:
    """A conversation with an agent, in messages. `silent` is as for any `Conversation`."""

    def __init__(self, context: zmq.asyncio.Context, address: AgentAddress, silent: float = HOST_SILENT) -> None:
        self.address = address
        keys = address.client_public, address.client_secret
        self._conversation = Conversation(context, address, keys, linger=500, silent=silent)
        self.close = self._conversation.close

    def send(self, job: str, message: wire.ToAgent | wire.ToOutpost, *data: bytes) -> None:
        """Send, with the bytes of a file, if the agent is there. A loss shows in `receive`."""
        send_now(self._conversation.socket, job.encode(), wire.encode(message), *data)

    async def receive(self) -> tuple[str, wire.FromAgent | wire.FromOutpost]:
        """Return the next message and its job. ConversationLost when there will be none."""
        try:
            job, body = await self._conversation.receive()
            return job.decode(), wire.decode_to_client(body)
        except (ValueError, msgspec.MsgspecError) as wrong:
            raise ConversationLost(str(wrong)) from wrong


def read_address(hosts_dir: Path, host: str) -> AgentAddress | None:
    """Return the address of a host's agent, None when there is none that this process understands."""
    found = read_struct(hosts_dir / f"{host}.json", AgentAddress)
    return found if found is not None and found.protocol == AGENT_PROTOCOL else None


def read_struct(path: Path, kind: type[T]) -> T | None:
    """Return the struct in a JSON file, None when there is no such file now."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (OSError, msgspec.MsgspecError):
        return None
