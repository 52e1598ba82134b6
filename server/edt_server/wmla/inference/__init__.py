"""Own models of WMLA's Elastic Distributed Inference: what their clients say of them, and their life as deployments.

Never: the web, torch, or a second way to answer requests (decision 057).

Read first: `models.py`, then `descriptions.py`.
"""

__all__ = ["archives", "descriptions", "models", "runtimes"]
