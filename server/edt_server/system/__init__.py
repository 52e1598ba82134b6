"""Own what the operating system gives: processes, private folders, slots of a host, interpreters.

Never: the scheduler, the store or the network.

Read first: `processes.py` (how a process is identified), then `slots.py`.
"""

__all__ = [
    "bubblewrap",
    "detached",
    "device_claims",
    "host_kind",
    "interpreters",
    "isolation",
    "private_files",
    "processes",
    "runtime",
    "slots",
    "standstill",
    "steady_clock",
]
