"""Own WMLA's REST routes: read a request as IBM's clients send it, and ask the same service as `/edt/api`.

Never: verbs of its own.

Read first: `routes.py`, then `execs.py`.
"""

from edt_jupyter.wmla.routes import handlers

__all__ = ["handlers"]
