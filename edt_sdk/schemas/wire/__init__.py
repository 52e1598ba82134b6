"""Own the messages between server, supervisors, agents and training processes, and the places of a job's files.

Never: logic, torch or numpy. Both ends may be of different versions, so fields are only ever added.

Read first: `control.py` (server and supervisor), then `link.py` (supervisor and worker).
"""

__all__ = [
    "agent", "context", "control", "link", "parts", "paths", "preallocation", "pulse", "regular", "saved", "task",
    "zygote",
]  # fmt: skip
