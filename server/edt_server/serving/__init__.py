"""Own the edge: the detached process that takes scoring requests over HTTP and gives them to the replicas.

Never: torch, code of users, the tensors of a request, the store, or a decision about slots.

Read first: `dispatch.py` (which replica answers what), then `target.py`, `edge.py` (what the edge knows) and `app.py`.
"""

__all__: list[str] = []
