"""The user's callbacks: they run on rank 0, and what they change there changes everywhere.

After each hook rank 0's learning rates and other numbers of the optimizer's groups go to all members, and so do
parameters and buffers that the hook wrote to, parameters it froze and modules it set to evaluation. The objects move
when rank 0 leaves. Hooks run under random states of their own, so that they neither disturb the training nor depend on
where it runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from edt_sdk.schemas.errors import Unprocessable
from edt_sdk.training import state
from edt_sdk.training.group import Group
from edt_sdk.training.logging_hooks import call_all
from edt_sdk.training.seeds import derive, preserved, set_states
from edt_sdk.training.twins import freeze, thaw


class Hooks:
    """The callbacks of one training, in one member.

    Args:
        callbacks: as they came with the payload; only rank 0's are used.
        model: the module that is trained.
        optimizer: its optimizer.
        epochs: of the training.
        seed: the job's.
    """

    def __init__(
        self, callbacks: Sequence[Any], model: nn.Module, optimizer: torch.optim.Optimizer, epochs: int, seed: int
    ) -> None:
        self._callbacks = list(callbacks)
        self._model = model
        self._optimizer = optimizer
        self._seed = seed
        self._parameters = _identities(optimizer)
        self._trainable = {id(parameter) for parameter in model.parameters() if parameter.requires_grad}
        self._params = {"optimizer": optimizer, "epochs": epochs}

    def run(self, group: Group, position: int, hook: str, *arguments: Any) -> None:
        """Call a hook on rank 0 and share what it changed; all members call this at the same step.

        Args:
            group: the generation's.
            position: of the step in the schedule; names the random states.
            hook: a method's name; objects without it are skipped.
            *arguments: its arguments.

        Raises:
            Unprocessable: a callback changed which parameters the optimizer trains.
        """
        if not self._callbacks:
            return
        changes = None
        if group.rank == 0:
            before = state.own_copies(self._model) if group.world > 1 else {}
            self._call(position, hook, arguments)
            self._check_parameters()
            if group.world > 1:
                changes = self._changes(before)
        if group.world > 1:
            changes = group.broadcast_bytes(changes, 0)
            if group.rank != 0:
                self._apply(changes)

    def hand_over(self, group: Group, *, to_me: bool) -> None:
        """Rank 0 leaves: give its callbacks to the others through the old group; the next rank 0 keeps them."""
        if not self._callbacks:
            return
        objects = None
        if group.rank == 0:
            objects = freeze(self._callbacks, self._model, self._optimizer, None)
        received = group.broadcast_bytes(objects, 0)
        if to_me:
            self._callbacks = thaw(received, self._model, self._optimizer, None)

    def _call(self, position: int, hook: str, arguments: tuple[Any, ...]) -> None:
        flags = state.flags(self._model)
        with preserved():
            set_states(derive(self._seed, "callback", position))
            self._bind()
            call_all(self._callbacks, hook, *arguments)
        if not self._model.training:
            # A hook that evaluates the model and leaves it so does not mean to go on training like that.
            state.put_flags(self._model, (flags[0], state.flags(self._model)[1]))

    def _bind(self) -> None:
        for callback in self._callbacks:
            callback.params = self._params
            callback.model = self._model

    def _changes(self, before: dict[str, torch.Tensor]) -> bytes:
        scalars, flags = state.group_scalars(self._optimizer), state.flags(self._model)
        changed = (scalars, flags, state.differing(self._model, before))
        return freeze(changed, self._model, self._optimizer, None)

    def _apply(self, changes: bytes) -> None:
        scalars, flags, tensors = thaw(changes, self._model, self._optimizer, None)
        state.put_group_scalars(self._optimizer, scalars)
        state.put_flags(self._model, flags)
        state.put_tensors(self._model, tensors)

    def _check_parameters(self) -> None:
        trainable = {id(parameter) for parameter in self._model.parameters() if parameter.requires_grad}
        if _identities(self._optimizer) != self._parameters or not trainable <= self._trainable:
            raise Unprocessable(
                "A callback gave the optimizer other parameters, or thawed some that were frozen when train() began.",
                hint="Start with all of them in the optimizer and requires_grad=True; a callback may freeze them in "
                "on_train_begin and thaw them later.",
                field="user_callback",
            )


def _identities(optimizer: torch.optim.Optimizer) -> list[list[int]]:
    return [[id(parameter) for parameter in group["params"]] for group in optimizer.param_groups]
