"""The server of `jupyter edt serve`: the routes of jobs and the event stream of their states, and nothing else.

A whole Jupyter Server runs kernels and terminals as its account, and shows its files. A service for several people must
offer them none of these. So its web application keeps only the handlers that are listed here, whatever Jupyter, its
configuration or an extension adds, and its Authorizer refuses every other resource.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

from jupyter_core.utils import ensure_async
from jupyter_server.auth import Authorizer, User
from jupyter_server.base.handlers import JupyterHandler, Template404
from jupyter_server.serverapp import ServerApp
from jupyter_server.services.events.handlers import default_handlers as event_handlers
from tornado.routing import RuleRouter
from tornado.web import RequestHandler
from traitlets import Instance, default

from edt_jupyter.http.base import EdtHandler
from edt_jupyter.http.identity import hub_service

_NO_HUB = (
    "edt | This is a service of a JupyterHub, whose users it has to know, and jupyterhub is not installed here. "
    "Install it: pip install jupyterhub"
)
REFUSED = (
    "edt | This is a whole Jupyter Server as a service of a JupyterHub. Its kernels, terminals and files would be open "
    "to all users, as the account of the service. Start it with `jupyter edt serve` instead, which serves jobs alone "
    "(docs/jupyterhub.md)."
)
# Bytes of a body that is held in memory, as JSON is. Uploads go to the disk and have a limit of their own.
_MAX_BODY = 8 << 20


class JobsOnly(Authorizer):
    """Allow what the configured Authorizer allows, on jobs and for listening to events. Nothing else is allowed."""

    configured = Instance(Authorizer)

    async def is_authorized(self, handler: JupyterHandler, user: User, action: str, resource: str) -> bool:
        """Return whether the user may do this."""
        # "execute" listens to events. "write" would send other users states that their jobs do not have.
        ours = resource.startswith("edt:") or (resource, action) == ("events", "execute")
        return ours and bool(await ensure_async(self.configured.is_authorized(handler, user, action, resource)))


class JobServer(ServerApp):
    """A server for jobs alone. Its settings are those of `ServerApp`."""

    @default("max_body_size")
    def _default_max_body_size(self) -> int:
        # Jupyter's own is for notebooks, 512 MB, which any user could make the server hold several times.
        return _MAX_BODY

    def init_server_extensions(self) -> None:
        """Load our own extension alone, and the one that identifies a Hub's users."""
        # In a service of a Hub its extension also sets the address, and the certificates between its parts.
        hub = hub_service()
        if hub and find_spec("jupyterhub") is None:
            self.log.critical(_NO_HUB)
            self.exit(1)
        self.jpserver_extensions = {"edt_jupyter": True, **({"jupyterhub": True} if hub else {})}
        self.reraise_server_extension_failures = True
        super().init_server_extensions()

    def init_configurables(self) -> None:
        """Put our Authorizer in front of the configured one."""
        super().init_configurables()
        self.authorizer = JobsOnly(
            parent=self, log=self.log, identity_provider=self.identity_provider, configured=self.authorizer
        )

    def running_server_info(self, kernel_count: bool = True) -> str:
        """Return what the log says at the start, without the kernels and notebooks of a whole server."""
        return f"Serving jobs, and nothing else, at {self.display_url}"

    def load_server_extensions(self) -> None:
        """Load the extensions, and keep the routes that this server answers."""
        super().load_server_extensions()
        # The pages of logging on and off are the identity provider's own.
        routes: list[Any] = [*event_handlers, *self.identity_provider.get_handlers()]
        kept = {Template404, *(route[1] for route in routes)}
        # One router for Jupyter's routes and one for each extension's.
        for rule in self.web_app.default_router.rules:
            assert isinstance(rule.target, RuleRouter)
            rule.target.rules = [route for route in rule.target.rules if _served(route.target, kept)]
        # A Hub asks for this address every minute, to see that the service answers. It takes the 404 for an answer.
        log = self.web_app.settings["log_function"]
        self.web_app.settings["log_function"] = lambda each: None if each.request.path == self.base_url else log(each)


def _served(handler: Any, kept: set[type[RequestHandler]]) -> bool:
    return handler in kept or issubclass(handler, EdtHandler)
