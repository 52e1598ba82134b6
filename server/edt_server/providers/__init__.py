"""Own the engines that provide machines: Ray, Slurm, Kubernetes and ssh, which start and stop host agents there.

Never: slots, jobs or fencing, which stay with the server whatever provides the machines, and Ray in the server's own
process.

Read first: `provider.py` (what a provider is), then `level.py` (what all of them share) and `ssh.py` (the simplest).
"""

from edt_server.providers.factory import make_provider
from edt_server.providers.provider import (
    NOTICE,
    Admission,
    Notice,
    Provided,
    ProvidedState,
    Provider,
    Wish,
    join_command,
)

__all__ = [
    "NOTICE",
    "Admission",
    "Notice",
    "Provided",
    "ProvidedState",
    "Provider",
    "Wish",
    "join_command",
    "make_provider",
]
