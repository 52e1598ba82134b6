"""Own the conversation with supervisors: start them, listen to them, give them slots, notice that they are gone.

Never: scheduling decisions. It carries out what the ledger has committed.

Read first: `supervision.py`, then `control.py` for the socket and `launcher.py` for the process.
"""

from edt_server.channel.hosts import Hosts
from edt_server.channel.spare_supervisors import SpareSupervisors
from edt_server.channel.supervision import Supervision

__all__ = ["Hosts", "SpareSupervisors", "Supervision"]
