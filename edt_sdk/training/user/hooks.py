"""Run the user's callbacks on rank 0, and apply their changes on every member.

After each hook all members get rank 0's learning rates and other numbers of the optimizer's groups, the parameters and
buffers the hook wrote, the parameters it froze, and the modules it set to evaluation mode. The callback objects travel
as bytes that only the next rank 0 unpickles, so their state survives a worker. Hooks run under their own random states.
So they do not disturb the training, and their draws do not depend on the worker.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from edt_sdk.callbacks import Callback
from edt_sdk.schemas.errors import Unprocessable
from edt_sdk.training.exchange.group import Group
from edt_sdk.training.sampling.seeds import derive, preserved, set_states
from edt_sdk.training.state import state
from edt_sdk.training.state.tied_objects import freeze, thaw
from edt_sdk.training.user.logging_hooks import call_all

log = logging.getLogger(__name__)


class Hooks:
    """Runs the callbacks of a training in one member. Only rank 0's are used.

    `frozen` are the pickled callback objects after the last hook, for `adopt` in another member. It is None while they
    equal the payload's, or when they cannot be pickled.
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
        self._params = {"optimizer": optimizer, "epochs": epochs, "loss": None, "test_loss": None}
        self.frozen: bytes | None = None
        self._ours = True  # whether `_callbacks` equal `frozen`
        self._portable = True

    def adopt(self, frozen: bytes | None) -> None:
        """Continue with the objects of another member or a checkpoint. None continues with those of the payload."""
        if frozen != self.frozen:
            self.frozen, self._ours = frozen, False

    def tell(self, *, loss: float | None, test_loss: float | None) -> None:
        """Set `callback.params` for the next hooks: the newest mean losses, None before the first."""
        self._params["loss"], self._params["test_loss"] = loss, test_loss

    def run(self, group: Group, position: int, hook: str, *arguments: Any, done: Callable[[], None]) -> None:
        """Call a hook on rank 0 and share its changes. All members call this at the same step.

        The position of the step seeds the random states. `done` is called once in every member as soon as all changes
        of the hook are applied there. On rank 0 this is before the other members get them, so that the loss of a member
        never makes the hook run twice.

        Raises:
            RuntimeError: a member is gone. If `done` was not called, nothing has changed.
            Unprocessable: a callback changed which parameters the optimizer trains.
        """
        if not self._callbacks:
            done()
            return
        if group.rank != 0:
            changes = group.broadcast_bytes(None, 0)
            self._apply(changes)
            done()
            return
        # Copies are made only where other members need the differences.
        before = state.own_copies(self._model) if group.world > 1 else {}
        self._call(position, hook, arguments)
        self._check_parameters()
        # Freeze after every hook: callbacks may keep state, and the next rank 0 continues with these bytes.
        known, self.frozen = self.frozen, self._freeze()
        changes = self._changes(before, known) if group.world > 1 else b""
        # Done before the others get the result: a death in between must not run the hook twice here (decision 010).
        done()
        if group.world > 1:
            group.broadcast_bytes(changes, 0)

    def _call(self, position: int, hook: str, arguments: tuple[Any, ...]) -> None:
        if not self._ours and self.frozen is not None:
            self._callbacks = thaw(self.frozen, self._model, self._optimizer, None)
        self._ours = True
        flags = state.flags(self._model)
        with preserved():
            set_states(derive(self._seed, "callback", position))
            for callback in self._callbacks:
                callback.params = self._params
                callback.model = self._model
            call_all(self._callbacks, hook, *arguments)
        if not self._model.training:
            # A hook that leaves the model in evaluation mode did not intend to train in that mode.
            state.put_flags(self._model, (flags[0], state.flags(self._model)[1]))

    def _freeze(self) -> bytes | None:
        if not self._portable:
            return None
        try:
            return freeze(self._callbacks, self._model, self._optimizer, None)
        except Exception as error:  # pickle and user __reduce__ methods may raise anything
            log.info(
                "The callbacks cannot be pickled (%s: %s): should this worker leave, another one goes on with "
                "the objects that train() was given.",
                type(error).__name__,
                error,
            )
            self._portable = False
            return None

    def _changes(self, before: dict[str, torch.Tensor], known: bytes | None) -> bytes:
        """Return the hook's changes. `known` are the callback objects that all members have."""
        scalars, flags = state.group_scalars(self._optimizer), state.flags(self._model)
        # Objects that have not changed are not sent again.
        objects = None if self.frozen == known else self.frozen
        changed = (scalars, flags, state.differing(self._model, before), objects)
        return freeze(changed, self._model, self._optimizer, None)

    def _apply(self, changes: bytes) -> None:
        scalars, flags, tensors, objects = thaw(changes, self._model, self._optimizer, None)
        state.put_group_scalars(self._optimizer, scalars)
        state.put_flags(self._model, flags)
        state.put_tensors(self._model, tensors)
        if objects is not None:
            self.adopt(objects)

    def _check_parameters(self) -> None:
        trainable = {id(parameter) for parameter in self._model.parameters() if parameter.requires_grad}
        if _identities(self._optimizer) != self._parameters or not trainable <= self._trainable:
            raise Unprocessable(
                "A callback gave the optimizer other parameters, or thawed some that were frozen when train() began.",
                hint="Start with all of them in the optimizer and requires_grad=True. A callback may freeze them in "
                "on_train_begin and thaw them later.",
                field="user_callback",
            )


def follows_updates(callback: object) -> bool:
    """Return whether a callback has an `on_update_end` of its own, which is called after each update."""
    method = getattr(callback, "on_update_end", None)
    return method is not None and getattr(method, "__func__", method) is not Callback.on_update_end


def _identities(optimizer: torch.optim.Optimizer) -> list[list[int]]:
    return [[id(parameter) for parameter in group["params"]] for group in optimizer.param_groups]
