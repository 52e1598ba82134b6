"""Own which samples belong to which update and shard, and every random state. Pure.

Never: data. It computes indices from (samples, seed, epoch).

Read first: `order.py`, then `schedule.py`.
"""

__all__ = ["order", "permutation", "schedule", "seeds"]
