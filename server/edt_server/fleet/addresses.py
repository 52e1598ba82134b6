"""The addresses at which hosts reach this machine: where they dial, and where workers here listen for those there."""

from __future__ import annotations

import socket
from collections.abc import Sequence

from edt_sdk.schemas.errors import Unprocessable

LOOPBACK = "127.0.0.1"
_ANY = ("0.0.0.0", "*", "[::]")


def interface_of(listen: str) -> str:
    """Return the address at which this machine's workers listen so that hosts reach them, by `fleet_listen`.

    Unprocessable where that is no address with a port.
    """
    if not listen:
        return LOOPBACK
    address, _, port = listen.rpartition(":")
    if not address or not port.isdecimal() or not 0 < int(port) < 65536:
        raise Unprocessable(
            f"{listen!r} is no address with a port.",
            hint='Set c.EdtApp.fleet_listen to one such as "0.0.0.0:8790".',
            field="fleet_listen",
        )
    if address not in _ANY:
        return address.strip("[]")
    return next(iter(_own()), LOOPBACK)


def advertised(listen: str, given: Sequence[str]) -> tuple[str, ...]:
    """Return where a machine that joins dials: what was `given`, or what `listen` means from outside."""
    if not listen:
        return ()
    address, _, port = listen.rpartition(":")
    if given or address not in _ANY:
        return tuple(f"tcp://{each}" for each in given or [listen])
    return (f"tcp://{socket.getfqdn()}:{port}", *(f"tcp://{each}:{port}" for each in _own()))


def _own() -> list[str]:
    """Return the addresses of this machine's name, without those that only it reaches."""
    try:
        found = socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET, socket.SOCK_STREAM)
    except OSError:
        return []
    return sorted({str(each[4][0]) for each in found if not str(each[4][0]).startswith("127.")})
