"""Own the sum of gradients over the members in a fixed binary tree, and the process group that carries it.

Never: models or optimizers. It adds flat vectors.

Read first: `tree.py` (the order of the sum), then `group_exchange.py` and `shared_exchange.py`.
"""

__all__ = [
    "blocks",
    "buffer_sync",
    "group",
    "group_exchange",
    "group_sockets",
    "header",
    "hosts_exchange",
    "layout",
    "peer_errors",
    "reduction_plan",
    "shared_exchange",
    "strategy",
]
