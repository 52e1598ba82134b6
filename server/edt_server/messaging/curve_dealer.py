"""The client's end of a conversation over ZeroMQ with CURVE: a socket, and one that tells when the other side is gone.

Who speaks is known by its key on both sides. ZeroMQ connects again by itself, to whoever listens there by then; whoever
uses this takes the first sign of that for the end of the conversation.
"""

from __future__ import annotations

import zmq
import zmq.asyncio

# Anything of this means that the other side is not, or not any more, the one that was connected to.
_LOST = (
    zmq.EVENT_DISCONNECTED
    | zmq.EVENT_CLOSED
    | zmq.EVENT_CONNECT_RETRIED
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
)


def dealer(
    context: zmq.asyncio.Context, *, server_key: str, public_key: str, secret_key: str, linger: int
) -> tuple[zmq.asyncio.Socket, zmq.asyncio.Socket]:
    """A socket that is not connected yet, and its monitor: the first message there says that the other side is gone.

    Args:
        context: of the event loop.
        server_key: the public key of the other side.
        public_key: of this side.
        secret_key: of this side.
        linger: milliseconds that what was sent may take once the socket is closed.
    """
    socket = context.socket(zmq.DEALER)
    socket.linger = linger
    socket.curve_serverkey = server_key.encode("ascii")
    socket.curve_publickey = public_key.encode("ascii")
    socket.curve_secretkey = secret_key.encode("ascii")
    socket.heartbeat_ivl = 2000
    socket.heartbeat_timeout = 10000
    monitor = socket.get_monitor_socket(_LOST)
    assert monitor is not None
    return socket, monitor
