"""Own the election of a leader among several servers over one store: a lease with a fencing token (decision 014).

Never: the work of a leader.

Read first: `leader.py`.
"""

from edt_server.leadership.leader import MANY_HOSTS, ONE_HOST, LeaderElection
from edt_server.leadership.shared_secret import shared_secret

__all__ = ["MANY_HOSTS", "ONE_HOST", "LeaderElection", "shared_secret"]
