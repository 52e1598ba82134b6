"""Find the notebook file that this kernel belongs to.

The server that started the kernel knows the file by the kernel's id. A name in the environment would not follow a
rename. VS Code names the file in a variable.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import requests

from edt_sdk.http.connection import TokenAuth
from edt_sdk.http.discovery import RunningServer, running_servers
from edt_sdk.schemas.errors import PackageError

_SECONDS = 5.0
_VS_CODE = "__vsc_ipynb_file__"
_BY_NAME = "Name the file: %edt_submit my.ipynb --tag edt"


def notebook_path(namespace: Mapping[str, object], environ: Mapping[str, str] = os.environ) -> Path:
    """Return the file of this kernel's notebook, with these variables.

    Raises:
        PackageError: there is none, it is not on this machine, or was never saved.
    """
    # First, because VS Code starts kernels that no Jupyter server knows.
    told = namespace.get(_VS_CODE)
    if isinstance(told, str) and told:
        return _saved(Path(told))
    kernel = _kernel_id()
    if not kernel:
        raise PackageError("This is no kernel of a notebook.", hint=_BY_NAME, field="source")
    for server, token in _servers(environ):
        path = _of_kernel(_sessions(server, token), kernel)
        if path:
            return _saved(Path(server.root_dir) / path)
    raise PackageError(
        "No Jupyter server of yours on this machine has a notebook with this kernel.", hint=_BY_NAME, field="source"
    )


def _kernel_id() -> str:
    """Return the id from the name of the connection file, kernel-<id>.json, "" outside of a kernel."""
    try:
        from ipykernel.connect import get_connection_file

        name = Path(get_connection_file()).stem
    except (ImportError, RuntimeError):
        return ""
    return name.removeprefix("kernel-")


def _servers(environ: Mapping[str, str]) -> Iterator[tuple[RunningServer, str]]:
    """Yield the running servers with their tokens. The server that started this kernel comes first."""
    parent = environ.get("JPY_PARENT_PID", "")
    # False sorts first: usually the server that started the kernel answers, and no other is asked.
    for server in sorted(running_servers(), key=lambda server: str(server.pid) != parent):
        # requests cannot speak over a Unix socket.
        if not server.sock:
            # A Hub's single-user server has no token of its own and takes the Hub's.
            yield server, server.token or environ.get("JUPYTERHUB_API_TOKEN", "")


def _sessions(server: RunningServer, token: str) -> Any:
    try:
        answer = requests.get(urljoin(server.url, "api/sessions"), auth=TokenAuth(token), timeout=_SECONDS)
        return answer.json() if answer.ok else []
    except requests.RequestException:
        return []  # another one may know


def _of_kernel(sessions: Any, kernel: str) -> str:
    for session in sessions if isinstance(sessions, list) else []:
        # A console can share the kernel of a notebook and has a session too.
        if session.get("kernel", {}).get("id") == kernel and session.get("type") == "notebook":
            return str(session.get("path", ""))
    return ""


def _saved(path: Path) -> Path:
    if not path.is_file():
        raise PackageError(
            f"The notebook {path.name} is not saved on this machine's disk.",
            hint="Save it, then run this again.",
            field="source",
        )
    return path
