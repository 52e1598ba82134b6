"""Own the connection to a server: finding it, one HTTP session, event streams that survive dropped connections.

Never: what the answers mean.

Read first: `connection.py`, then `discovery.py`.
"""

__all__ = ["announcement", "connection", "discovery", "following"]
