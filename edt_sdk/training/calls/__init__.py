"""Own the meaning of a `train()` call in its process: a driver's session, or a submission from a notebook.

Never: training.

Read first: `session.py`, then `call.py`.
"""

__all__ = ["call", "following", "serving_call", "session", "validation_call"]
