"""Which state machine a job's framework needs."""

from __future__ import annotations

from edt_sdk.schemas.frameworks import Framework
from edt_sdk.schemas.torchrun import TorchrunOptions
from edt_sdk.schemas.wire.control import Launch
from edt_server.supervisor.machines.elastic_agents import ElasticAgents
from edt_server.supervisor.machines.history import History
from edt_server.supervisor.machines.machine import Machine
from edt_server.supervisor.machines.membership import Membership
from edt_server.supervisor.machines.plain import Plain


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
