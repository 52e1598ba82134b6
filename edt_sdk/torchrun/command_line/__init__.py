"""Own torchrun's command line, in the words of a job: its options, and what `Client.submit` makes of them.

Never: torch. A client and the server import this room.

Read first: `options.py`, then `submission.py`.
"""

__all__ = ["command", "options", "submission"]
