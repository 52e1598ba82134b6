"""Own a replica of a deployment: the process that loads a version and answers the requests that the edge sends it.

Never: HTTP, or the decision how many replicas there are.

Read first: `replica.py` (the program), then `batching.py` and `forms.py`.
"""

__all__ = ["replica"]
