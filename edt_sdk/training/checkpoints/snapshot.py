"""Copy a captured state into memory that is reused for the next copy, unless the mirror has just copied it.

What `state.capture` returns shares the model's memory and is valid until the next step. A copy stays valid while a file
is written from it. The copy is the only part of a checkpoint that the training waits for, so it allocates only once,
copies each tensor once, and uses page-locked memory for tensors of a GPU. Strides, types and bits are kept.
"""

from __future__ import annotations

import torch
from torch import Tensor

from edt_sdk.training.checkpoints import model_files as checkpoint
from edt_sdk.training.checkpoints.mirror import SlotState
from edt_sdk.training.state.state import State


class StateCopy:
    """Holds a copy of a state on the CPU, empty before the first `take`.

    `copies` are its tensors by the memory they were copied from.
    """

    def __init__(self) -> None:
        self.state = State({}, b"", [])
        self.copies: checkpoint.Memo = {}
        self._kept: SlotState | None = None

    @torch.no_grad()
    def take(self, state: State, kept: SlotState | None = None) -> None:
        """Copy `state` over the previous copy, except what the mirror has `kept`: that is used where it lies."""
        before, self._kept = self.state, kept

        def copy(tensor: Tensor, memory: Tensor | None) -> Tensor:
            there = None if kept is None else kept.view(tensor)
            return _copy(tensor, memory) if there is None else there

        own = {name: copy(tensor, before.own.get(name)) for name, tensor in state.own.items()}
        old = before.tensors
        tensors = [copy(t, old[i] if i < len(old) else None) for i, t in enumerate(state.tensors)]
        # Copies from a GPU are asynchronous, and the next step changes the original.
        _wait_for_copies(state)
        self.state = State(own, state.rest, tensors)
        originals = (*state.own.values(), *state.tensors)
        copies = (*own.values(), *tensors)
        self.copies = {checkpoint.key(a): b for a, b in zip(originals, copies, strict=True)}

    def give_back(self) -> None:
        """End the use of what the mirror has kept."""
        if self._kept is not None:
            self.state, self.copies = State({}, b"", []), {}
            self._kept.release()
            self._kept = None


def _copy(tensor: Tensor, memory: Tensor | None) -> Tensor:
    """Copy `tensor` into `memory` where that fits, else into new memory."""
    value = tensor.detach().resolve_conj().resolve_neg()
    # The layout of `to(copy=True)`: dense, in the order of the original's dimensions.
    wanted = torch.empty_like(value, device="meta")
    # Reuse the memory of the last copy: the kernel would first have to provide new pages (decision 025).
    if memory is None or _form(memory) != _form(wanted):
        memory = torch.empty_like(value, device="cpu", pin_memory=value.device.type == "cuda")
    return memory.copy_(value, non_blocking=True)


def _form(tensor: Tensor) -> tuple[object, ...]:
    return tensor.dtype, tensor.shape, tensor.stride()


def _wait_for_copies(state: State) -> None:
    devices = {t.device for t in (*state.own.values(), *state.tensors) if t.device.type == "cuda"}
    for device in devices:
        torch.cuda.synchronize(device)
