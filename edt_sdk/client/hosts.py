"""`HostClient`: the verbs of `Client` about hosts, the machines that offer slots.

Every user may read. A change raises NotAllowed for users that are no admins of the server (`c.EdtApp.admins`).
"""

from __future__ import annotations

import time
from typing import Any
from urllib.parse import quote

import msgspec

from edt_sdk.client.session import ServerSession
from edt_sdk.display.cluster_view import host_text, hosts_html, hosts_text, left_words
from edt_sdk.schemas.errors import InvalidRequest, WaitTimeout
from edt_sdk.schemas.fields import names_checked
from edt_sdk.schemas.hosts import HostDrain, HostToken, HostView, NewHostToken

_HOSTS = "hosts"
_LOOK = 0.5  # seconds between two looks at a host that is drained


class HostReading(HostView, frozen=True, kw_only=True):
    """A `HostView` with its description as its repr. `HostView` describes its fields."""

    def __repr__(self) -> str:
        return host_text(self)


class HostList(list[HostReading]):
    """Lists hosts as of the time of the request. Behaves like a list otherwise."""

    def __repr__(self) -> str:
        return hosts_text(self)

    def _repr_html_(self) -> str:
        return hosts_html(self)


@names_checked
class HostClient(ServerSession):
    """A client for the hosts of a server."""

    def hosts(self) -> HostList:
        """Return the hosts, the server's own first: how each stands, what it has, and how many of its slots are used.

        The ids in `jobs` are those of my jobs.
        """
        return HostList(msgspec.convert(self._connection.json("GET", _HOSTS)["hosts"], list[HostReading]))

    def host(self, name: str) -> HostReading:
        """Return the host of this name. NotFound when there is none."""
        return msgspec.convert(self._connection.json("GET", _path(name)), HostReading)

    def host_token(self, *, minutes: float = 60.0, uses: int = 1) -> HostToken:
        """Return a token that lets machines join: `command` is the line to run there. It is shown this once.

        Args:
            minutes: how long it can be used, at most 30 days.
            uses: how many machines may join with it.

        Raises:
            Unprocessable: the server accepts no hosts (`c.EdtApp.fleet_listen`), or a value cannot be used.
            NotAllowed: I am no admin.
        """
        new = NewHostToken(seconds=60 * minutes, uses=uses).check()
        return msgspec.convert(self._connection.json("POST", f"{_HOSTS}/tokens", body=new), HostToken)

    def drain_host(
        self, name: str, *, undo: bool = False, wait: bool = False, timeout: float | None = None
    ) -> HostReading:
        """Withdraw the slots of a host, each at its job's next update, and return the host. No job stops.

        A job with other slots goes on with these, and one without waits for others.

        Args:
            name: the host.
            undo: let it offer its slots again.
            wait: wait until no job holds a slot there.
            timeout: seconds after which `wait` gives up. None for never. The host goes on draining.

        Raises:
            NotFound: there is no such host.
            Unprocessable: it is the server's own machine.
            WaitTimeout: jobs still hold slots there.
            NotAllowed: I am no admin.
        """
        answer = self._connection.json("POST", f"{_path(name)}/drain", body=HostDrain(draining=not undo))
        host = msgspec.convert(answer, HostReading)
        begun = time.monotonic()
        while wait and not undo and host.used:
            waited = time.monotonic() - begun
            if timeout is not None and waited >= timeout:
                raise WaitTimeout(left_words(host, waited), hint="It goes on draining. Look again later.")
            time.sleep(_LOOK)
            host = self.host(name)
        return host

    def remove_host(self, name: str, *, force: bool = False) -> None:
        """Forget a host and its key. It joins again with a new token only.

        Args:
            name: the host.
            force: also while jobs hold slots there. Their workers on this host end at once, and the jobs go on from
                their last update or checkpoint.

        Raises:
            Conflict: jobs hold slots there.
            NotFound: there is no such host.
            Unprocessable: it is the server's own machine.
            NotAllowed: I am no admin.
        """
        self._connection.json("DELETE", _path(name), params={"force": 1 if force else None})

    def host_log(self, name: str, *, lines: int = 200) -> str:
        """Return the last lines of the log of the host's agent, "" when the server knows none. NotFound."""
        answer: dict[str, Any] = self._connection.json("GET", f"{_path(name)}/log", params={"lines": lines})
        return str(answer["log"])


def _path(name: str) -> str:
    if not name or name in (".", "..") or "/" in name:
        raise InvalidRequest(f"{name!r} is not the name of a host.", field="name")
    return f"{_HOSTS}/{quote(name, safe='')}"
