"""Hold what a Trainer knows besides model, optimizer and schedule, so that a worker that joins knows it too."""

from __future__ import annotations

import copy
import dataclasses
from typing import TYPE_CHECKING, Any

from transformers.trainer_callback import ExportableState

if TYPE_CHECKING:
    from edt_sdk.transformers.trainer import ElasticTrainer

# Numbers of the Trainer's loop, by the names that it gives them.
_NUMBERS = ("_total_loss_scalar", "_globalstep_last_logged", "_initial_global_step", "current_flos")
# A worker's own.
_OWN = {"is_local_process_zero", "is_world_process_zero"}


class MovingState:
    """Represents the progress of a Trainer: its `TrainerState`, its control, its callbacks and its running loss.

    Attributes:
        grad_norm, learning_rate: of the last update, for the next line of the log.
    """

    def __init__(self, trainer: ElasticTrainer) -> None:
        self._trainer = trainer
        self.grad_norm: Any = None
        self.learning_rate: float | None = None

    def state_dict(self) -> dict[str, Any]:
        """Return the progress as plain data."""
        trainer = self._trainer
        fields = {each.name for each in dataclasses.fields(trainer.state)} - _OWN
        return {
            "state": {name: copy.copy(getattr(trainer.state, name)) for name in sorted(fields)},
            "control": dict(vars(trainer.control)),
            "callbacks": [
                (type(each).__name__, found)
                for each in trainer.callback_handler.callbacks
                if (found := _state_of(each)) is not None
            ],
            "numbers": {name: getattr(trainer, name) for name in _NUMBERS},
            "loss": trainer._tr_loss.item(),
            "grad_norm": self.grad_norm,
            "learning_rate": self.learning_rate,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from the progress of another worker."""
        trainer = self._trainer
        _set(trainer.state, state["state"])
        _set(trainer.control, state["control"])
        _set(trainer, state["numbers"])
        # In place: the Trainer's loop holds this very tensor.
        trainer._tr_loss.fill_(state["loss"])
        self.grad_norm, self.learning_rate = state["grad_norm"], state["learning_rate"]
        left = list(state["callbacks"])
        # By their names, as the Trainer puts those that it reads from a checkpoint in another order.
        for callback in trainer.callback_handler.callbacks:
            found = next((each for each in left if each[0] == type(callback).__name__), None)
            if found is None:
                continue
            left.remove(found)
            if hasattr(callback, "load_state_dict"):
                callback.load_state_dict(found[1])
            else:
                _set(callback, found[1])


def _state_of(callback: Any) -> Any:
    if hasattr(callback, "state_dict") and hasattr(callback, "load_state_dict"):
        return callback.state_dict()
    return dict(callback.state()["attributes"]) if isinstance(callback, ExportableState) else None


def _set(target: Any, values: dict[str, Any]) -> None:
    for name, value in values.items():
        setattr(target, name, copy.copy(value))
