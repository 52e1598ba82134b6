"""Own which of several servers over one store leads: a lease with a fencing token (decision 014).

Never: what the leader does with its lead.

Read first: `leader.py`.
"""

from edt_server.leadership.leader import MANY_HOSTS, ONE_HOST, Member
from edt_server.leadership.shared_secret import shared_secret

__all__ = ["MANY_HOSTS", "ONE_HOST", "Member", "shared_secret"]
