"""Own what is run for a job: the programs of driver and workers, and the environment each one gets.

Never: a process of its own. Everything here is computed from the job's orders.

Read first: `programs.py`, then `environment.py`.
"""

__all__ = ["environment", "programs"]
