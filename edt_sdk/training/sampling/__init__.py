"""Own the assignment of samples to updates and shards, and every random state. Pure.

Never: data. It computes indices from (samples, seed, epoch).

Read first: `order.py`, then `schedule.py`.
"""

__all__ = ["order", "permutation", "schedule", "seeds"]
