"""Which state machine a job's framework needs, and what the supervisor asks of any of them."""

from __future__ import annotations

from typing import Protocol

from edt_sdk.schemas.control import Launch
from edt_sdk.schemas.frameworks import Framework
from edt_sdk.schemas.torchrun import TorchrunOptions
from edt_server.supervisor.elastic_agents import ElasticAgents
from edt_server.supervisor.events import Event, Instruction
from edt_server.supervisor.history import History
from edt_server.supervisor.membership import Membership
from edt_server.supervisor.plain import Plain


class Machine(Protocol):
    """Events in, instructions out; pure. One machine is one attempt of one job."""

    def apply(self, event: Event) -> list[Instruction]:
        """What to do about the event, in order."""
        ...

    @property
    def holding(self) -> tuple[int, ...]:
        """Slots for the hello, see `SlotLedger.holding`."""
        ...

    @property
    def taking_part(self) -> frozenset[int]:
        """Workers that the watchdog looks after: they should move."""
        ...

    @property
    def training(self) -> bool:
        """True while more workers may be needed at any time."""
        ...

    @property
    def processes(self) -> dict[int, int]:
        """Pids of the workers whose processes run, by worker."""
        ...

    @property
    def committed(self) -> int:
        """Updates of the running training that are known to be committed; 0 where there are none."""
        ...


def machine_of(orders: Launch, history: History) -> Machine:
    """The machine for the job's framework."""
    if Framework(orders.spec.framework) in (Framework.PYTORCH, Framework.DIST):
        return Plain(orders.spec, history)
    if Framework(orders.spec.framework) is Framework.TORCHRUN:
        options = orders.spec.torchrun or TorchrunOptions()
        return ElasticAgents(
            main=orders.spec.main or " ".join(orders.spec.command),
            interpreter=orders.interpreter,
            unit=orders.spec.slots_per_unit,
            max_restarts=options.max_restarts,
            shutdown_timeout=options.shutdown_timeout,
            history=history,
        )
    # A host's agent starts what it is told to; only here is a process's rank among others ours to change.
    standbys = 0 if orders.hosts_dir else orders.standbys
    return Membership(interpreter=orders.interpreter, history=history, standbys=standbys)
