"""Map paths to handlers. `/edt/api/spec.yaml` describes the same routes, and a test compares the two."""

from __future__ import annotations

from edt_jupyter.api import (
    catalogue,
    cluster,
    deployments,
    hosts,
    jobs,
    outputs,
    pictures,
    plan,
    projects,
    root,
    searches,
    submissions,
    versions,
)
from edt_jupyter.http.base import EdtHandler, pattern, routes_of

API = "/edt/api"
ROUTES = routes_of(
    *(root, jobs, searches, outputs, submissions, projects, catalogue, versions, deployments),
    *(cluster, hosts, plan, pictures),
)


def handlers() -> list[tuple[str, type[EdtHandler]]]:
    """Return patterns relative to the base URL. Unknown paths come last."""
    known = [(API + pattern(path), handler) for path, handler in ROUTES]
    return [*known, (rf"{API}/(.*)", root.UnknownHandler)]
