"""Own what crosses the network of models that are used: their versions, with what they came from.

Never: files or requests.

Read first: `versions.py`.
"""

__all__ = ["versions"]
