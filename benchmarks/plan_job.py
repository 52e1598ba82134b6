"""A job of ours that grows and shrinks because slots come free and are taken, as they do when others come and go.

It asks for all slots from the beginning; how many of them are kept back for a queue without jobs is changed in the
server's plan. Where the server keeps workers ready for slots to come, a request waits until they are.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from benchmarks.our_jobs import SLOTS, OurJob
from benchmarks.server_processes import wait_for_standbys
from edt_sdk.testing import LocalServer

_OTHERS = "others"


class PlanJob(OurJob):
    """A job that gets as many slots as it is to have workers.

    Args:
        on: the server; it has no other job.
        name: of the job.
        arguments: of the script.
        slots: to begin with.
        standbys: workers that the server keeps ready at most.
        from_nothing, main: as for `OurJob`.
    """

    def __init__(
        self,
        on: LocalServer,
        name: str,
        arguments: Sequence[str],
        slots: int,
        *,
        standbys: int,
        from_nothing: bool,
        main: str = "train.py",
    ) -> None:
        self._client = on.client()
        if _OTHERS not in {group.name for group in self._client.instance_groups()}:
            self._client.create_instance_group(_OTHERS, lend=0)
        self._offer(slots)
        super().__init__(on, name, arguments, SLOTS, main=main, from_nothing=from_nothing)
        self._wanted = slots
        self._standbys = standbys
        self._pid = on.pid

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        self._offer(SLOTS)

    def resize(self, workers: int) -> float:
        """Let it have so many slots; when that was begun, seconds since the epoch."""
        if workers > self._wanted and self._standbys:
            wait_for_standbys(self._pid, self._wanted, min(self._standbys, SLOTS - self._wanted))
        if workers > self._wanted and self._server is not None:
            self._kill_zygotes(self._server)
        self._wanted = workers
        begun = time.time()
        self._offer(workers)
        return begun

    def _offer(self, slots: int) -> None:
        self._client.update_instance_group(_OTHERS, own=SLOTS - slots)
