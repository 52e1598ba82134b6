"""Own the processes of a job as the kernel sees them: forked, watched through pidfds, reaped, and ended.

Never: decisions. The state machines of `../state_machines/` decide which process starts or ends.

Read first: `children.py`, then `forker.py`.
"""

__all__ = [
    "children",
    "forker",
    "liveness",
    "memory",
    "memory_left",
    "orphans",
    "ports",
    "predecessors",
    "sandbox",
    "standby_processes",
    "zygote",
]
