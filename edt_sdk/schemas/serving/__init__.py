"""Own the structs of models that are used: their versions, and what server, edge and replicas tell each other.

Never: files or requests.

Read first: `versions.py`, then `deployments.py` and `replica_channel.py`.
"""

__all__ = ["deployments", "edge_file", "examples", "replica_channel", "versions"]
