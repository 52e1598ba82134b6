"""Which user a request speaks for.

Jupyter's own identity providers know one shared token or password and invent a new name for each request; then
everybody who is let in is the owner of the server, the account it runs as. A provider that really identifies people
(JupyterHub's, an administrator's own) gives the user names.
"""

from __future__ import annotations

import os
import pwd

from jupyter_server.auth import IdentityProvider, User

from edt_server.service import owner_name

# Whoever overrides one of these says who the user is.
_IDENTIFYING = (
    "get_user",
    "_get_user",
    "get_user_token",
    "get_user_cookie",
    "user_from_cookie",
    "generate_anonymous_user",
)


def user_of(user: User, provider: IdentityProvider) -> str:
    """The owner of what this user submits."""
    return owner_name(user.username if identifies(provider) else account())


def identifies(provider: IdentityProvider) -> bool:
    """True when the provider's user names mean people."""
    own = IdentityProvider.__module__
    return any(getattr(type(provider), name).__module__ != own for name in _IDENTIFYING)


def account() -> str:
    """The account the server runs as, or its number; never from the environment, which anybody may set."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())
