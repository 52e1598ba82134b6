"""Own what a `train()` call means to the process that makes it: a driver's session, or a submission from a notebook.

Never: training.

Read first: `session.py`, then `call.py`.
"""

__all__ = ["call", "session", "validation_call"]
