"""Own the translation between WMLA's words and ours, for jobs, logs, plans and its console (decision 021).

Never: the web, torch, or a truth of its own.

Read first: `request.py` (a submission), then `states.py`.
"""

__all__ = [
    "applications",
    "archive",
    "console",
    "execs",
    "frameworks",
    "hypersearch",
    "ids",
    "log_files",
    "plan_tree",
    "request",
    "states",
    "variables",
]
