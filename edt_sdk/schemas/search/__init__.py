"""Own the structs of a search for hyper-parameters that clients and the server share: its space, settings and trials.

Never: a decision about a trial (`edt_server.searching`), a random number, or any other package of ours but the schemas.

Read first: `spec.py` (a search's settings), then `space.py` and `views.py`.
"""

__all__ = ["cost", "space", "spec", "views"]
