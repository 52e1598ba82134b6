"""Own every change of a job: store and scheduling core change together, in one transaction.

Never: processes or sockets. What follows from a committed change is returned and happens outside.

Read first: `ledger.py`, then `writer.py` (the one writer thread).
"""

from edt_server.ledger import reports, suspension
from edt_server.ledger.arrival import arrival
from edt_server.ledger.forecast_rates import Paces
from edt_server.ledger.ledger import Change, Ledger, Outcome
from edt_server.ledger.recovery import STOP_REQUESTED, stop_requests, supervisor_lost
from edt_server.ledger.writer import STORE_AWAY, Commits

__all__ = [
    "STOP_REQUESTED",
    "STORE_AWAY",
    "Change",
    "Commits",
    "Ledger",
    "Outcome",
    "Paces",
    "arrival",
    "reports",
    "stop_requests",
    "supervisor_lost",
    "suspension",
]
