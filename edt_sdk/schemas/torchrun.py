"""What a torchrun command line says of a script, beside how many workers there are (`JobSpec` has those)."""

from __future__ import annotations

import msgspec

from edt_sdk.schemas.errors import Unprocessable


class TorchrunOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How each agent starts its processes; names and defaults are torchrun's where it has them.

    Attributes:
        module: `main` is a module's name (`-m`), not a file.
        no_python: `main` is a program of its own, not a script.
        max_restarts: times that an agent starts its processes again after one of them failed; changes of membership
            do not count.
        monitor_interval: seconds between an agent's looks at its processes and at the plan.
        role: of the processes, in their logs and variables.
        said: what of the command line has another meaning here, a sentence each, for the job's story.
    """

    module: bool = False
    no_python: bool = False
    max_restarts: int = 0
    monitor_interval: float = 0.05
    role: str = "default"
    said: tuple[str, ...] = ()

    def check(self) -> TorchrunOptions:
        """Return self, or raise Unprocessable naming the field."""
        if self.max_restarts < 0:
            raise Unprocessable(f"max_restarts is 0 or more, not {self.max_restarts}.", field="max_restarts")
        if not 0 < self.monitor_interval < float("inf"):
            raise Unprocessable(
                f"monitor_interval is a number of seconds above 0, not {self.monitor_interval:g}.",
                field="monitor_interval",
            )
        return self
