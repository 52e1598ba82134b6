"""Choose how the jobs of a server are kept apart, and refuse what this machine cannot do."""

from __future__ import annotations

from collections.abc import Iterable

from edt_sdk.schemas.errors import EdtError, ServerUnreachable
from edt_sdk.schemas.wire.control import SAME, SANDBOX, Isolation
from edt_server.system import bubblewrap

KINDS = (SAME, SANDBOX)
OPEN = (
    "Jobs of several people run as this server's account: each can read the files of the others and of the server, and "
    "end their processes. c.EdtApp.isolation = 'sandbox' keeps them apart."
)


def isolation(
    kind: str, *, several: bool, hosts: bool, readable: Iterable[str] = (), network: bool = True
) -> Isolation:
    """Return the isolation of a server's jobs. Blocks while a sandbox is tried.

    Args:
        kind: one of `KINDS`, "" for the default: SAME for one person's server.
        several: whether several people share the server. They must have chosen.
        hosts: whether the machine is divided into named hosts.
        readable: as of `Isolation`.
        network: as of `Isolation`.

    Raises:
        ServerUnreachable: nothing was chosen where it must be, or this machine cannot do it.
    """
    if not kind and several:
        raise ServerUnreachable(
            "Several people share this server, and nothing says how their jobs are kept apart.",
            hint="Set c.EdtApp.isolation to 'sandbox', or to 'same' where all of them trust each other with their "
            "files, results and keys. docs/security.md compares them.",
        )
    if kind != SANDBOX:
        return Isolation()
    if hosts:
        raise ServerUnreachable(
            "Jobs on named hosts cannot run in a sandbox.",
            hint="Leave c.EdtApp.local_hosts empty, or set c.EdtApp.isolation to 'same'.",
        )
    try:
        bubblewrap.check()
    except EdtError as why:
        raise ServerUnreachable(why.message, hint=why.hint) from why
    return Isolation(kind=SANDBOX, readable=tuple(readable), network=network)
