"""What a job's orders become on a host: its own folders in place of the server's, and the same sandbox."""

from __future__ import annotations

import msgspec

from edt_sdk.schemas.wire.agent import AgentOrders
from edt_sdk.schemas.wire.control import SANDBOX, Isolation
from edt_server.agent.orders import localized


def test_a_sandbox_shows_the_folders_of_the_host(orders):
    shown = Isolation(kind=SANDBOX, readable=(f"{orders.data_dir}/models", f"{orders.data_dir}s", "/srv/models"))
    launch = msgspec.structs.replace(orders, isolation=shown, data_fs="/data")
    here = AgentOrders(
        host="a", data_dir="/host", runtime_dir="/run/host", public_key="", secret_key="", data_fs="/mnt/data"
    )
    found = localized(launch, here, "10.0.0.1", supervises=False)
    assert found.isolation.kind == SANDBOX
    assert found.isolation.readable == ("/host/models", f"{orders.data_dir}s", "/srv/models")
    assert (found.data_dir, found.data_fs, found.runtime_dir) == ("/host", "/mnt/data", f"/run/host/{orders.job_id}")
    shared = msgspec.structs.replace(here, shared=True)
    assert localized(launch, shared, "10.0.0.1", supervises=False).isolation == shown
