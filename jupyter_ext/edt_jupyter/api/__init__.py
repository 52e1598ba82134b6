"""Own the routes under `/edt/api`: one thin handler for each resource, over `edt_server.service`.

Never: SQL, processes, or decisions.

Read first: `routes.py` (which handler answers where), then `jobs.py`.
"""

from edt_jupyter.api.cluster import kernels_of
from edt_jupyter.api.outputs import send_archive
from edt_jupyter.api.routes import API, handlers

__all__ = ["API", "handlers", "kernels_of", "send_archive"]
