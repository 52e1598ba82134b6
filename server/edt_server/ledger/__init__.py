"""Own every change of a job: store and scheduling core change together, in one transaction.

Never: processes or sockets. What follows from a committed change is returned and happens outside.

Read first: `ledger.py`, then `writer.py` (the one writer thread).
"""

from edt_server.ledger import recovery, reports, suspension
from edt_server.ledger.ledger import Change, ChangeOutcome, Ledger, arrival
from edt_server.ledger.writer import STORE_AWAY, Changes, LedgerWriter, open_writer

__all__ = [
    "STORE_AWAY",
    "Change",
    "ChangeOutcome",
    "Changes",
    "Ledger",
    "LedgerWriter",
    "arrival",
    "open_writer",
    "recovery",
    "reports",
    "suspension",
]
