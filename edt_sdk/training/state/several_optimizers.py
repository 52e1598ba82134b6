"""Show several optimizers as one, to those who need their parameters and their state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

from torch.optim import Optimizer


class SeveralOptimizers(Optimizer):
    """Holds optimizers that a script steps itself. Attributes as those of an optimizer, where they have a meaning."""

    def __init__(self, each: Sequence[Optimizer]) -> None:
        # Without super().__init__(), which would copy the groups: each optimizer keeps its own.
        self.each = tuple(each)

    @property
    def param_groups(self) -> list[dict[str, Any]]:  # type: ignore[override]
        """Return the groups of all optimizers."""
        return [group for optimizer in self.each for group in optimizer.param_groups]

    def state_dict(self) -> dict[str, Any]:
        """Return the states of all optimizers, of a single one as it is."""
        states = [optimizer.state_dict() for optimizer in self.each]
        return states[0] if len(states) == 1 else {"optimizers": states}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load what `state_dict` returned."""
        for optimizer, state in zip(self.each, state_dict.get("optimizers", [state_dict]), strict=True):
            optimizer.load_state_dict(state)

    def step(self, closure: Any = None) -> NoReturn:
        """Raise: the script steps each optimizer."""
        raise AssertionError("each optimizer is stepped by itself")


def separate(optimizer: Optimizer) -> tuple[Optimizer, ...]:
    """Return the optimizers that are shown as one, or the one."""
    return optimizer.each if isinstance(optimizer, SeveralOptimizers) else (optimizer,)
