"""The frameworks that run a job's main script, by the names that WMLA clients use."""

from __future__ import annotations

from enum import StrEnum

from edt_sdk.schemas.errors import Unprocessable
from edt_sdk.schemas.fields import did_you_mean

SHELL = ("bash", "-c")
"""The shell that runs a command given as one string."""


class Framework(StrEnum):
    """The ways to turn a job's slots into processes.

    Attributes:
        EDT: our elastic engine. The script calls `FabricModel.train()`.
        PYTORCH: the script itself in one process that holds the job's slots.
        DIST: the script once for each of `max_workers` slots, all at once, with RANK, WORLD_SIZE, MASTER_ADDR and
            MASTER_PORT, for plain `torch.distributed`.
        SERVE: replicas of a deployment, one for each slot. Only the server submits such a job.
        TORCHRUN: a PyTorch Elastic script, as `torchrun` starts it, between `min_workers` and `max_workers`.
    """

    EDT = "edtPyTorch"
    PYTORCH = "PyTorch"
    DIST = "distPyTorch"
    TORCHRUN = "torchrun"
    SERVE = "serve"

    @property
    def elastic(self) -> bool:
        """True when the number of its workers may change while it runs."""
        return self in (Framework.EDT, Framework.TORCHRUN, Framework.SERVE)


OFFERED = tuple(each.value for each in Framework if each is not Framework.SERVE)
"""The names of those that a submission may name."""


def framework_named(name: str) -> Framework:
    """Return the framework of that name, or raise Unprocessable with the known names."""
    try:
        return Framework(name)
    except ValueError:
        raise Unprocessable(
            f"There is no framework {name!r}.",
            hint=f"{did_you_mean(name, OFFERED)} Use one of {', '.join(OFFERED)}.".strip(),
            field="framework",
        ) from None
