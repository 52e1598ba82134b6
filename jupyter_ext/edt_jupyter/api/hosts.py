"""Hosts, the machines that offer slots: list, show, let join, drain, remove, read the agent's log."""

from __future__ import annotations

from edt_jupyter.http.base import EdtHandler
from edt_sdk.schemas.hosts import MOST_LOG_LINES, HostDrain, NewHostToken
from edt_sdk.schemas.job import parse_change

_LINES = 200


class _HostsHandler(EdtHandler, path="/hosts", resource="edt:hosts"):
    async def get(self) -> None:
        """Return all hosts."""
        self.reply({"hosts": await self.service.hosts.hosts(self.user)})


class _TokensHandler(EdtHandler, path="/hosts/tokens", resource="edt:hosts"):
    async def post(self) -> None:
        """Make a token that lets machines join. Only this answer ever has it."""
        new = parse_change(self.request.body or b"{}", NewHostToken)
        self.reply(await self.service.hosts.make_token(self.user, new), 201)


class _HostHandler(EdtHandler, path="/hosts/{name}", resource="edt:hosts"):
    async def get(self, name: str) -> None:
        """Return the host."""
        self.reply(await self.service.hosts.host(self.user, name))

    async def delete(self, name: str) -> None:
        """Forget the host and its key. Refused while jobs hold slots there, unless `force`."""
        await self.service.hosts.remove(self.user, name, force=self.flag("force"))
        self.set_status(204)
        self.finish()


class _DrainHandler(EdtHandler, path="/hosts/{name}/drain", resource="edt:hosts"):
    async def post(self, name: str) -> None:
        """Withdraw its slots, each at its job's next update, or offer them again. Returns the host."""
        asked = parse_change(self.request.body or b"{}", HostDrain)
        self.reply(await self.service.hosts.drain(self.user, name, draining=asked.draining))


class _LogHandler(EdtHandler, path="/hosts/{name}/log", resource="edt:hosts"):
    async def get(self, name: str) -> None:
        """Return the last lines of the agent's log, as far as the server knows them."""
        lines = self.number("lines", _LINES, low=1, high=MOST_LOG_LINES)
        self.reply({"log": await self.service.hosts.logs(self.user, name, lines)})
