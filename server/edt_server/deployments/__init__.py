"""Own what a deployment is in the store, how many replicas it needs, how its revisions change, and the edge's process.

Never: HTTP routes, or the requests that are answered (`edt_server.serving`).

Read first: `records.py`, then `scaling.py` and `rollout.py`.
"""

from edt_server.deployments.edge_process import INNER_HEADER, EdgeProcess
from edt_server.deployments.records import DeploymentRecord, KeyRecord, RevisionRecord
from edt_server.deployments.rollout import difference, verdict
from edt_server.deployments.scaling import Load

__all__ = [
    "INNER_HEADER",
    "DeploymentRecord",
    "EdgeProcess",
    "KeyRecord",
    "Load",
    "RevisionRecord",
    "difference",
    "verdict",
]
