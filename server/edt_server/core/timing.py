"""What the passing of time does: turns end, and so does the patience of jobs that wait for their first slot.

The core reads no clock. It says when it wants to be told that time has passed, and only that decides.
"""

from __future__ import annotations

from edt_sdk.schemas.plan import InstanceGroup
from edt_server.core.instructions import GiveUp, Instruction
from edt_server.core.job import Job
from edt_server.core.patience import NEVER, Patience
from edt_server.core.state import CoreState
from edt_server.core.turns import Party, Turner


class TimedCore(CoreState):
    """The state with its deadlines."""

    def __init__(self) -> None:
        super().__init__()
        self._patience = Patience(self._deadline)
        self._touched: dict[str, Job] = {}  # by the event under way

    def next_wake(self, now: float) -> float | None:
        """When TimePassed is to be applied next, in seconds, never before `now`; None when nothing waits for time."""
        wake = min(self._patience.next(), *(pool.turns.next_end() for pool in self._pools.values()))
        return None if wake == NEVER else max(wake, now)

    def _pass_time(self, now: float) -> list[Instruction]:
        given_up: list[Instruction] = []
        while (over := self._patience.over(now)) is not None:
            deadline, name = over
            job = self._jobs[name]
            job.given_up = True
            given_up.append(GiveUp(name, deadline - job.patient_since))
        for pool in self._pools.values():
            for turner in pool.turns.end(now, self._group_of_turner, self._contested):
                if isinstance(turner, Party):
                    pool.rule.line_up(turner.group, turner.user, turner.turn)
                    running = (self._jobs[name] for name in turner.jobs if self._jobs[name].target)
                    self._touched.update((job.name, job) for job in running)  # for those who stay its next turn begins
                else:
                    self._put(self._jobs[turner.name])
        return given_up

    def _group_of_turner(self, turner: Turner) -> InstanceGroup:
        return self._leaves[turner.group] if isinstance(turner, Party) else self._group(self._jobs[turner.name])

    def _contested(self, turner: Turner) -> bool:
        if isinstance(turner, Party):
            pool, user = self._pools[self._leaves[turner.group].resource_group], turner.user
            return pool.rule.contested(turner.group, user)
        job = self._jobs[turner.name]
        return self._pools[job.pool].rule.contested(self._group(job).name, job.owner)

    def _deadline(self, name: str) -> float:
        job = self._jobs.get(name)
        if job is None or job.served or job.given_up or job.suspended:
            return NEVER
        patience = job.pending_timeout
        if patience is None:
            patience = self._group(job).pending_timeout
        return NEVER if patience is None else job.patient_since + patience

    def _put(self, job: Job) -> None:
        """Tell the rule what the job asks for now."""
        raise NotImplementedError
