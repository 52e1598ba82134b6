"""Own what a job has written, as its readers want it: logs merged by time, metrics, curves, results as a zip.

Never: changes. Everything here only reads files of a job.

Read first: `logs.py`, then `training_curve.py`.
"""

__all__ = ["logs", "metrics", "results", "training_curve"]
