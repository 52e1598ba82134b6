"""Own the state of a training: captured from a member, sent to a joiner, restored bit for bit.

Never: files.

Read first: `state.py`, then `transfer.py`.
"""

__all__ = ["former", "nested", "space", "state", "tied_objects", "transfer", "warm_start"]
