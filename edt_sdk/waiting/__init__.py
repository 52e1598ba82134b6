"""Own waiting for a job: one thread reads its events, whatever happens to the connection in the meantime.

Never: changes of the job.

Read first: `waiting.py`.
"""

__all__ = ["waiting"]
