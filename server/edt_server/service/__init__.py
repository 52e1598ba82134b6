"""Own the verbs: one method for each thing that a user can ask of the scheduler, and the object that joins all rooms.

Never: HTTP. `edt_jupyter` calls these methods and turns answers and errors into responses.

Read first: `service.py` (start and stop), then `changing.py` and `reading.py` (the verbs).
"""

from edt_server.service.access import owner_name
from edt_server.service.hub import Watch
from edt_server.service.service import Service
from edt_server.service.sharing import configured_plan, instance_group, resource_group, version

__all__ = ["Service", "Watch", "configured_plan", "instance_group", "owner_name", "resource_group", "version"]
