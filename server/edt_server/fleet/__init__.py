"""Own the hosts of a server: machines whose agents dial in, offer slots, and run supervisors and outposts.

Never: which job gets which slot, or how a job trains.

Read first: `fleet.py`, then `connection.py` (when a host is doubtful or lost) and `intake.py` (files that hosts send).
"""

from edt_server.fleet import scaling
from edt_server.fleet.addresses import interface_of
from edt_server.fleet.connection import MACHINE, HostLost
from edt_server.fleet.fleet import Fleet
from edt_server.fleet.kinds import kinds_here
from edt_server.fleet.local_agents import check_hosts
from edt_server.fleet.registry import TokenText, check_name, read_token

__all__ = [
    "MACHINE",
    "Fleet",
    "HostLost",
    "TokenText",
    "check_hosts",
    "check_name",
    "interface_of",
    "kinds_here",
    "read_token",
    "scaling",
]
