"""The benchmark's own service and probes, a few of them: it measures something, whatever the figure is."""

import asyncio

from benchmarks import decision
from edt_sdk.schemas import events as kinds
from edt_server.settings import Settings
from edt_server.system.runtime import runtime_dir


def test_every_change_is_heard_of_by_the_supervisors(tmp_path):
    data_dir = tmp_path / "edt"
    settings = Settings(
        data_dir=data_dir,
        runtime_dir=runtime_dir(tmp_path / "run", data_dir),
        local_slots=8,
        threads_per_slot=1,
        warm_workers=0,
    )
    begun = asyncio.run(decision.rounds(settings, decision.empty_package(tmp_path), jobs=3, number=2))
    times = decision.told(settings, begun)
    assert len(times[kinds.JOB_CHANGED]) >= 2
    assert all(seconds > 0 for some in times.values() for seconds in some)
