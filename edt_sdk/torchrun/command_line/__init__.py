"""Own torchrun's command line: its options, and their translation for `Client.submit`.

Never: torch. A client and the server import this room.

Read first: `options.py`, then `submission.py`.
"""

__all__ = ["options", "submission"]
