"""Own the control channel to supervisors: start them, take their reports, send their slots, notice their end.

Never: scheduling decisions. It carries out what the ledger has committed.

Read first: `supervision.py`, then `control.py` for the socket and `launcher.py` for the process.
"""

from edt_server.channel.spare_supervisors import SpareSupervisors
from edt_server.channel.supervision import Supervision

__all__ = ["Hosts", "SpareSupervisors", "Supervision"]
