"""Own the verbs: one method for each thing that a user can ask of the scheduler, and the object that joins all rooms.

Never: HTTP. `edt_jupyter` calls these methods and turns answers and errors into responses.

Read first: `service.py` (the verbs), then `assembly.py` (what a service is made of, start and stop).
"""

from edt_server.service.access import owner_name
from edt_server.service.assembly import open_service
from edt_server.service.hub import Subscription
from edt_server.service.service import Service
from edt_server.service.sharing import configured_plan, find_group, version

__all__ = ["Service", "Subscription", "configured_plan", "find_group", "open_service", "owner_name", "version"]
