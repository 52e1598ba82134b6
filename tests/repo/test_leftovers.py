"""With `EDT_LEFTOVERS` set, what a test leaves open is found behind it."""

import asyncio
import socket

from tornado.iostream import IOStream

from tests import leftovers


def in_a_cycle() -> None:
    cycle: list[object] = [socket.socket()]
    cycle.append(cycle)


def test_a_socket_is_named():
    assert leftovers.collected() == []
    in_a_cycle()
    (found,) = leftovers.collected()
    assert "unclosed <socket" in found
    assert leftovers.collected() == []


def test_what_a_closed_loop_holds_is_found_too():
    """Tornado keeps such a loop until somebody makes another one."""

    async def leave() -> None:
        stream = IOStream(socket.create_server(("127.0.0.1", 0)))
        stream.io_loop.add_handler(stream.socket, stream.close, stream.io_loop.READ)

    asyncio.run(leave())
    assert any("unclosed <socket" in each for each in leftovers.collected())
