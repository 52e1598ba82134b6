"""Own data sets, models and algorithms under a name: their files, and what a job takes from them (decision 026).

Never: HTTP or scheduling.

Read first: `catalogue.py` (the verbs), then `shelf.py` (a row and its files, changed together).
"""

__all__ = ["answering", "catalogue", "intake", "places", "records", "shelf", "training"]
