"""Map a Jupyter user to the owner of jobs.

Jupyter's own identity providers know one shared token or password and invent a new name for each request. Then every
authenticated user is the owner of the server, the account it runs as. A provider that identifies people (JupyterHub's,
an administrator's own) gives the user names.
"""

from __future__ import annotations

import os
import pwd

from jupyter_server.auth import IdentityProvider, User

from edt_server.service import owner_name

# A provider that overrides one of these methods identifies its users.
_IDENTIFYING = (
    "get_user",
    "_get_user",
    "get_user_token",
    "get_user_cookie",
    "user_from_cookie",
    "generate_anonymous_user",
)


def user_of(user: User, provider: IdentityProvider) -> str:
    """Return the owner of what this user submits."""
    return owner_name(user.username if identifies(provider) else account())


def identifies(provider: IdentityProvider) -> bool:
    """Return True when the provider's user names identify people."""
    own = IdentityProvider.__module__
    return any(getattr(type(provider), name).__module__ != own for name in _IDENTIFYING)


def several_people(provider: IdentityProvider) -> bool:
    """Return True when people with names of their own share this server.

    The server that a Hub started for a user is that user's own: a kernel of it runs any program anyway.
    """
    return identifies(provider) and (hub_service() or not os.environ.get("JUPYTERHUB_USER"))


def hub_service() -> bool:
    """Return True in a service of a JupyterHub, False in a user's server."""
    # The Hub sets a name for the services that it starts. A service that is started otherwise has no user.
    named = "JUPYTERHUB_SERVICE_NAME" in os.environ
    reached = bool(os.environ.get("JUPYTERHUB_SERVICE_PREFIX") and os.environ.get("JUPYTERHUB_API_TOKEN"))
    return reached and (named or not os.environ.get("JUPYTERHUB_USER"))


def account() -> str:
    """Return the account the server runs as, or its number. The environment is not trusted for this."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())
