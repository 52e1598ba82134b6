"""Keep which hosts there are and which tokens are valid, as small files (0600) below the server's control folder.

Of a token's key pair the server keeps the public half alone, so what it keeps lets nobody in. A host makes its pair
itself, and its secret half never leaves it.
"""

from __future__ import annotations

import binascii
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from edt_server.messaging import TokenText, key_pair, read_struct
from edt_server.system.private_files import make_private_dir, write_private
from edt_server.system.slots import Host

LOCAL, MACHINE_ITSELF = "local", "machine"
"""The providers of hosts of this machine: of a part of it, and of all of it, for supervisors on other hosts."""


class HostRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a host while no process of it is connected.

    Attributes:
        public_key: the host's (Z85).
        provider, provider_id: who has started the machine, "" for a person, "local" for the server itself.
        shared: whether the host has the server's files.
        joined: in seconds since the epoch.
        up: whether its slots were offered last. A server that starts goes on from there.
        draining: whether it gives up its slots.
        cores, gpus, offers: as in `slots.Host`.
        kind: as in `agent.HostHello`.
        lacks: why it can run no job of this server, in sentences, "" where it can.
    """

    name: str
    public_key: str
    provider: str = ""
    provider_id: str = ""
    shared: bool = False
    joined: float = 0.0
    up: bool = False
    draining: bool = False
    cores: int = 1
    gpus: tuple[int, ...] = ()
    offers: int = 0
    kind: str = ""
    lacks: str = ""

    @property
    def resources(self) -> Host:
        """The host as the slots are planned from."""
        return Host(self.name, self.gpus, self.cores, self.offers, self.kind)


class JoinToken(msgspec.Struct, frozen=True, kw_only=True):
    """The server's half of a token: `uses` machines may join until `expires`, in seconds since the epoch."""

    public_key: str
    expires: float
    uses: int
    provider: str = ""


class Registry:
    """The hosts and tokens of a server. Every change is on disk when the call returns."""

    def __init__(self, folder: Path) -> None:
        self._hosts_dir = folder / "hosts"
        self._tokens_dir = folder / "tokens"

    def hosts(self) -> Iterator[HostRecord]:
        """Yield every host."""
        yield from self._all(self._hosts_dir, HostRecord)

    def tokens(self) -> Iterator[tuple[str, JoinToken]]:
        """Yield every token that is still valid, with its id."""
        for path in sorted(self._tokens_dir.glob("*.json")):
            found = read_struct(path, JoinToken)
            if found is not None and found.uses > 0 and found.expires > time.time():
                yield path.stem, found
            else:
                path.unlink(missing_ok=True)

    def keep(self, host: HostRecord) -> None:
        """Store a host, new or changed."""
        make_private_dir(self._hosts_dir)
        write_private(self._hosts_dir / f"{host.name}.json", msgspec.json.encode(host))

    def forget(self, name: str) -> None:
        """Remove a host."""
        (self._hosts_dir / f"{name}.json").unlink(missing_ok=True)

    def make_token(self, servers: tuple[str, ...], server_key: str, *, seconds: float, uses: int, provider: str) -> str:
        """Return the text of a new token."""
        public, secret = key_pair()
        # The id is part of no secret: it names the file, and the key's owner in the control channel.
        name = binascii.crc32(public.encode()).to_bytes(4, "big").hex()
        self.keep_token(name, JoinToken(public_key=public, expires=time.time() + seconds, uses=uses, provider=provider))
        return TokenText(servers=servers, server_key=server_key, public_key=public, secret_key=secret).text()

    def keep_token(self, name: str, token: JoinToken) -> None:
        """Store a token, new or changed."""
        make_private_dir(self._tokens_dir)
        write_private(self._tokens_dir / f"{name}.json", msgspec.json.encode(token))

    def _all(self, folder: Path, kind: type[HostRecord]) -> Iterator[HostRecord]:
        for path in sorted(folder.glob("*.json")):
            found = read_struct(path, kind)
            if found is not None:
                yield found
