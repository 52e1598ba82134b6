"""Own the two logs that rank 0 writes of a training: the commit log and the metrics.

Never: anything about the state that a training resumes from.

Read first: `recorder.py`, then `lines.py`.
"""

__all__ = ["full_disk", "lines", "recorder"]
