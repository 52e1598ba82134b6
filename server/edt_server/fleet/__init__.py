"""Own the hosts of a server: machines whose agents dial in, offer slots, and run supervisors and outposts.

Never: which job gets which slot, or how a job trains.

Read first: `fleet.py`, then `connection.py` (when a host is doubtful or lost) and `intake.py` (files that hosts send).
"""

from edt_server.fleet import scaling
from edt_server.fleet.addresses import interface_of
from edt_server.fleet.connection import HostLost
from edt_server.fleet.fleet import Fleet
from edt_server.fleet.local_agents import check_hosts

__all__ = [
    "Fleet",
    "HostLost",
    "check_hosts",
    "interface_of",
    "scaling",
]
