"""The Jupyter Server extension: HTTP, identity and event streams in front of `edt_server`. No SQL, no processes."""

from __future__ import annotations

from typing import Any


def _jupyter_server_extension_points() -> list[dict[str, Any]]:
    """Return where Jupyter Server finds the extension."""
    from edt_jupyter.app import EdtApp

    return [{"module": "edt_jupyter", "app": EdtApp}]
