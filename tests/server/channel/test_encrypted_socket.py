"""Sending without waiting, to a side that is not there."""

import asyncio

import pytest
import zmq
import zmq.asyncio

from edt_server.messaging.encrypted_socket import send_now

pytestmark = pytest.mark.asyncio


async def test_a_message_behind_one_that_waits_is_refused_and_never_sent() -> None:
    with zmq.asyncio.Context() as context, context.socket(zmq.DEALER) as sender, context.socket(zmq.ROUTER) as receiver:
        waits = asyncio.ensure_future(sender.send(b"first"))
        await asyncio.sleep(0)
        assert isinstance(send_now(sender, b"second"), zmq.Again)
        port = receiver.bind_to_random_port("tcp://127.0.0.1")
        sender.connect(f"tcp://127.0.0.1:{port}")
        await waits
        assert send_now(sender, b"third") is None
        received = [(await receiver.recv_multipart())[1] for _ in range(2)]
        assert received == [b"first", b"third"]
