"""Own the structs and errors that clients and the server share. msgspec refuses a malformed one where it arrives.

Never: logic, torch, numpy, or any other package of ours.

Read first: `job.py` (a job's settings), then `errors.py`.
"""

__all__ = [
    "catalogue",
    "errors",
    "events",
    "fields",
    "forecast",
    "frameworks",
    "hosts",
    "job",
    "plan",
    "registered",
    "torchrun",
    "validation",
]
