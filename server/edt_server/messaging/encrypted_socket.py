"""Talk over ZeroMQ with CURVE: the socket that serves clients, and the client's end of one conversation.

Both sides identify each other by their keys.
"""

from __future__ import annotations

import asyncio
from typing import cast

import zmq
import zmq.asyncio
from zmq.utils.monitor import recv_monitor_message

from edt_sdk.schemas.wire.agent import AgentAddress
from edt_sdk.schemas.wire.control import HOST_SILENT, ServerAddress

# Each of these means that the other side is not, or no longer, the one that was connected to.
_LOST = (
    zmq.EVENT_DISCONNECTED
    | zmq.EVENT_CLOSED
    | zmq.EVENT_CONNECT_RETRIED
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
)


def key_pair() -> tuple[str, str]:
    """Make a CURVE key pair: (public, secret), Z85."""
    public, secret = zmq.curve_keypair()
    return public.decode("ascii"), secret.decode("ascii")


def listen(
    context: zmq.asyncio.Context, interface: str, keys: tuple[str, str], *more: str
) -> tuple[zmq.asyncio.Socket, str]:
    """Return a socket that serves clients on a free port of the interface, and its endpoint there.

    It serves at the endpoints `more` as well. ZMQError when it cannot.
    """
    socket = context.socket(zmq.ROUTER)
    socket.linger = 0
    socket.curve_server = True
    socket.curve_publickey, socket.curve_secretkey = (key.encode("ascii") for key in keys)
    _set_heartbeat(socket, HOST_SILENT)
    try:
        for each in more:
            socket.bind(each)
        socket.bind(f"tcp://{interface}:*")
    except zmq.ZMQError:
        socket.close()
        raise
    return socket, socket.getsockopt_string(zmq.LAST_ENDPOINT)


def sender_of(frame: zmq.Frame) -> str | None:
    """Return the name that the gatekeeper knows the sender of a message by, from one of its frames."""
    try:
        return str(frame.get("User-Id"))
    except (zmq.ZMQError, KeyError):
        return None


def send_now(socket: zmq.asyncio.Socket, *frames: bytes) -> BaseException | None:
    """Send without waiting. Return why that is not possible now, None when it was."""
    sent = cast(asyncio.Future[object], socket.send_multipart(frames, flags=zmq.DONTWAIT))
    if not sent.done():  # what was sent before it waits for the other side
        sent.cancel()
        return zmq.Again()
    # Reading the exception marks it as seen, or asyncio would log it.
    return sent.exception()


class ConversationLost(Exception):
    """The other side of a conversation is not there, or is gone."""


class Conversation:
    """The client's end of a conversation, until it is lost.

    ZeroMQ reconnects by itself, to any process that listens there by then. So the first sign of a reconnect ends the
    conversation. The keys are of this side. Once closed, it has `linger` ms to deliver what was sent. It is lost before
    nothing has come from the other side for `silent` seconds.
    """

    def __init__(
        self,
        context: zmq.asyncio.Context,
        address: ServerAddress | AgentAddress,
        keys: tuple[str, str],
        *,
        linger: int,
        silent: float = HOST_SILENT,
    ) -> None:
        self.socket = context.socket(zmq.DEALER)
        self.socket.linger = linger
        self.socket.curve_serverkey = address.public_key.encode("ascii")
        self.socket.curve_publickey, self.socket.curve_secretkey = (key.encode("ascii") for key in keys)
        _set_heartbeat(self.socket, silent)
        monitor = self.socket.get_monitor_socket(_LOST)
        assert monitor is not None
        self._monitor = monitor
        self._lost = asyncio.ensure_future(recv_monitor_message(monitor))
        self.socket.connect(address.endpoint)

    async def receive(self) -> list[bytes]:
        """Return the frames of the next message. ConversationLost when there will be none."""
        data = asyncio.ensure_future(self.socket.recv_multipart())
        try:
            await asyncio.wait([data, self._lost], return_when=asyncio.FIRST_COMPLETED)
            if not data.done():
                raise ConversationLost
            frames: list[bytes] = data.result()
            return frames
        except zmq.ZMQError as wrong:
            raise ConversationLost(str(wrong)) from wrong
        finally:
            data.cancel()

    async def close(self) -> None:
        """End the conversation. What was sent is delivered if the other side is there."""
        self._lost.cancel()
        await asyncio.wait({self._lost})
        self.socket.disable_monitor()
        self._monitor.close()
        self.socket.close()


def _set_heartbeat(socket: zmq.asyncio.Socket, silent: float) -> None:
    # In ms, 2 and 5 s by default: the loss of a peer that closes no connection would otherwise go unnoticed. Members of
    # a training wait for it (decision 059). ZeroMQ's own thread answers, so a busy process is not silent.
    socket.heartbeat_ivl = round(silent / 3 * 1000)
    socket.heartbeat_timeout = round(silent * 5 / 6 * 1000)
