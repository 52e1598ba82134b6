"""Own one job's processes: the parent of its driver and workers, the owner of its generations and log files.

A detached process, `python -m edt_server.supervisor <launch.json>`. It goes on without a server, with the slots it has.

Never: decisions about slots (the server makes them), torch or user code.

Read first: `main.py` (joins the pure state machine with the edges), then `state_machines/`.
"""

__all__ = ["journal", "link_server", "starting", "stream_index", "template"]
