"""Own the ZeroMQ sockets with CURVE that a server, its supervisors and its host agents talk over.

Never: what the messages mean. Their structs are in `edt_sdk.schemas.wire`.

Read first: `gatekeeper.py` (which keys may connect), then `encrypted_socket.py`.
"""

from edt_server.messaging.agent_client import AgentConnection, read_address, read_struct
from edt_server.messaging.encrypted_socket import (
    Conversation,
    ConversationLost,
    key_pair,
    listen,
    send_now,
    sender_of,
)
from edt_server.messaging.gatekeeper import Gatekeeper
from edt_server.messaging.join_token import TokenText, read_token

__all__ = [
    "AgentConnection",
    "Conversation",
    "ConversationLost",
    "Gatekeeper",
    "TokenText",
    "key_pair",
    "listen",
    "read_address",
    "read_struct",
    "read_token",
    "send_now",
    "sender_of",
]
