"""Own what all handlers share: the user, authorization, uploads to disk, event streams, forwarding to the leader.

Never: a verb of the product.

Read first: `base.py` (one place turns errors into responses), then `authorization.py`.
"""

__all__ = [
    "authorization",
    "base",
    "edge",
    "forwarding",
    "identity",
    "job_server",
    "peers",
    "receiving",
    "remote",
    "sse",
    "state_events",
    "upload",
]
