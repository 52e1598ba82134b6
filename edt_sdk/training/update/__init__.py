"""Own an update from start to end: compute shards, exchange gradients, step the optimizer.

Never: files, the supervisor, or the choice of members.

Read first: `update.py` (the facade), then `shard.py`.
"""

__all__ = [
    "accuracy",
    "determinism",
    "gradients",
    "loader",
    "not_a_number",
    "optimizer_step",
    "shard",
    "totals",
    "update",
    "user_functions",
]
