"""Own what crosses the network of experiments: projects, and the table of their runs.

Never: files or requests.

Read first: `runs.py`.
"""

__all__ = ["runs"]
