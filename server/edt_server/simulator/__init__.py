"""Own the simulator: a workload, or a recorded past, played against the same core that the service runs.

`docs/simulate.md` is its manual, also for driving the core from another simulator.

Never: a clock, threads or processes. Files are read by `command.py` and the readers only.

Read first: `engine.py`, then `workload.py`.
"""

__all__ = ["engine", "recorded", "speed", "workload"]
