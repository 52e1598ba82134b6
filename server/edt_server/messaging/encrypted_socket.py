"""Connect the client's end of a conversation over ZeroMQ with CURVE: a socket, and a monitor that reports its loss.

Both sides identify each other by their keys. ZeroMQ reconnects by itself, to any process that listens there by then. So
the user of this socket takes the first sign of a reconnect for the end of the conversation.
"""

from __future__ import annotations

import zmq
import zmq.asyncio

# Each of these means that the other side is not, or no longer, the one that was connected to.
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
    """Return an unconnected socket and its monitor. The monitor's first message means that the other side is gone.

    Args:
        context: the ZeroMQ context of the event loop.
        server_key: the public key of the other side.
        public_key: of this side.
        secret_key: of this side.
        linger: milliseconds to deliver what was sent once the socket is closed.
    """
    socket = context.socket(zmq.DEALER)
    socket.linger = linger
    socket.curve_serverkey = server_key.encode("ascii")
    socket.curve_publickey = public_key.encode("ascii")
    socket.curve_secretkey = secret_key.encode("ascii")
    # Heartbeats, in ms: the loss of a peer that closes no connection would otherwise go unnoticed.
    socket.heartbeat_ivl = 2000
    socket.heartbeat_timeout = 10000
    monitor = socket.get_monitor_socket(_LOST)
    assert monitor is not None
    return socket, monitor
