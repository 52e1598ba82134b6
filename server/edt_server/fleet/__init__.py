"""Own the hosts that come and go: so far the decision how many hosts a provider should have.

Never: a decision on slots or jobs. These belong to the core, and a provider only gives and takes machines.

Read first: `scaling.py`.
"""

__all__ = ["scaling"]
