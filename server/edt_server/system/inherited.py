"""Which of the server's variables a process that it starts may have: all but its secrets. Pure."""

from __future__ import annotations

from collections.abc import Mapping

# Tokens and addresses of the server and the Hub, and what tells a process that it is one of theirs.
_SERVER_PREFIXES = ("JPY_", "JUPYTERHUB_", "EDT_")
_SERVER_NAMES = frozenset({"JUPYTER_TOKEN", "JUPYTER_PASSWORD", "CONFIGPROXY_AUTH_TOKEN"})


def inherited(environ: Mapping[str, str]) -> dict[str, str]:
    """The server's environment without its tokens: a job gets rights from nobody but its owner."""
    return {
        name: value
        for name, value in environ.items()
        if not name.startswith(_SERVER_PREFIXES) and name not in _SERVER_NAMES
    }
