"""Own the SDK's answers as values that display themselves: the card, tables, logs, pictures as text.

Never: requests. A value shows the data it was given.

Read first: `card.py`, then `readings.py`.
"""

__all__ = [
    "card",
    "catalogue_view",
    "cluster_view",
    "jobs_text",
    "log_text",
    "picture",
    "readings",
    "runs_view",
    "search_view",
    "text_pictures",
    "top_view",
    "validation",
]
