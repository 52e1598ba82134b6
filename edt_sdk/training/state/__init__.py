"""Own the state of a training: capture it from a member, send it to a joiner, restore it bit for bit.

Never: files.

Read first: `state.py`, then `transfer.py`.
"""

__all__ = [
    "named_tensors",
    "nested",
    "pickling",
    "preallocation",
    "previous_version",
    "several_optimizers",
    "state",
    "tied_objects",
    "transfer",
    "warm_start",
]
