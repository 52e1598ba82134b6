"""Hold the client's end of an agent's connection: one conversation with it, until it is lost.

An agent that exits closes its socket, so its loss is known at once. After a loss the client reads the address again.
"""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import cast

import msgspec
import zmq
import zmq.asyncio
from zmq.utils.monitor import recv_monitor_message

from edt_sdk.schemas.wire import agent as wire
from edt_sdk.schemas.wire.agent import AGENT_PROTOCOL, AgentAddress
from edt_sdk.schemas.wire.control import ProcessIdentity
from edt_server.messaging.encrypted_socket import dealer


class AgentLost(Exception):
    """There is no agent at this address, or it is gone."""


class AgentConnection:
    """A conversation with an agent.

    Args:
        context: the ZeroMQ context of the event loop.
        address: the agent's address.
    """

    def __init__(self, context: zmq.asyncio.Context, address: AgentAddress) -> None:
        self.address = address
        self._socket, self._monitor = dealer(
            context,
            server_key=address.public_key,
            public_key=address.client_public,
            secret_key=address.client_secret,
            linger=500,
        )
        self._lost = asyncio.ensure_future(recv_monitor_message(self._monitor))
        self._socket.connect(address.endpoint)

    def send(self, job: str, message: wire.ToAgent | wire.ToOutpost) -> None:
        """Send, if the agent is there. A loss shows in `receive`."""
        frames = [job.encode(), wire.encode(message)]
        sent = cast(asyncio.Future[object], self._socket.send_multipart(frames, flags=zmq.DONTWAIT))
        # The result is known when the call returns (DONTWAIT). Reading the exception marks it as seen, or asyncio would
        # log it.
        sent.exception()

    async def receive(self) -> tuple[str, wire.FromAgent | wire.FromOutpost]:
        """Return the next message and its job. AgentLost when there will be none."""
        data = asyncio.ensure_future(self._socket.recv_multipart())
        try:
            await asyncio.wait([data, self._lost], return_when=asyncio.FIRST_COMPLETED)
            if not data.done():
                raise AgentLost
            job, body = data.result()
            return job.decode(), wire.decode_to_client(body)
        except (zmq.ZMQError, ValueError, msgspec.MsgspecError) as wrong:
            raise AgentLost(str(wrong)) from wrong
        finally:
            data.cancel()

    async def close(self) -> None:
        """End the conversation. What was sent is delivered if the agent is there."""
        self._lost.cancel()
        with contextlib.suppress(asyncio.CancelledError, zmq.ZMQError):
            await self._lost
        self._socket.disable_monitor()
        self._monitor.close()
        self._socket.close()


class Stranger(msgspec.Struct, frozen=True, kw_only=True):
    """The part of an address that every version of an agent writes."""

    protocol: int
    identity: ProcessIdentity


def read_stranger(hosts_dir: Path, host: str) -> Stranger | None:
    """Return a host's agent that has another protocol version than this process, None when there is none."""
    try:
        found = msgspec.json.decode((hosts_dir / f"{host}.json").read_bytes(), type=Stranger)
    except (OSError, msgspec.MsgspecError):
        return None
    return found if found.protocol != AGENT_PROTOCOL else None


def read_address(hosts_dir: Path, host: str) -> AgentAddress | None:
    """Return the address of a host's agent, None when there is none that this process understands."""
    try:
        address = msgspec.json.decode((hosts_dir / f"{host}.json").read_bytes(), type=AgentAddress)
    except (OSError, msgspec.MsgspecError):
        return None
    return address if address.protocol == AGENT_PROTOCOL else None
