"""Own one small process per host, which starts and reaps the workers of other hosts' jobs there (decision 015).

Never: decisions, torch or user code.

Read first: `host.py` (the agent), then `outpost.py` (one job's workers on this host) and `guard.py`.
"""

__all__ = ["guard"]
