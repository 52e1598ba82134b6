"""Allocate memory for an optimizer's state in advance, so that no member waits while the system finds and clears it.

And give back what was freed: glibc keeps it for later allocations, as workers ask it to.

The size of a parameter's state is not known before the first step. A small optimizer of the same class shows it in one
step over a parameter of its own. This is tried with torch's own classes only, because the constructor of another class
may have side effects.
"""

from __future__ import annotations

import ctypes
import inspect
import mmap

import torch
from torch import Tensor

from edt_sdk.training.exchange.layout import is_dense
from edt_sdk.training.state.state import memory_of


def space_for_state(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    """Return as many tensors as the state of all parameters will have, in their shapes, with undefined content.

    They are for `transfer.take`. Each page of them has been written to, so that the system has provided it. Parameters
    on a GPU get no tensors, because its allocator keeps memory ready.
    """
    space = [
        torch.empty_like(parameter, memory_format=torch.preserve_format)
        for _ in range(tensors_a_parameter(optimizer))
        for group in optimizer.param_groups
        for parameter in group["params"]
        if parameter.requires_grad and parameter.device.type == "cpu"
    ]
    for tensor in space:
        if is_dense(tensor):
            # One byte in each page is enough to make the kernel provide the page.
            memory_of(tensor.detach())[:: mmap.PAGESIZE].zero_()
    return space


def release_freed() -> None:
    """Give memory that was freed back to the system, after something that is not repeated."""
    if (trim := getattr(ctypes.CDLL(None), "malloc_trim", None)) is not None:  # of glibc alone
        trim(0)


def tensors_a_parameter(optimizer: torch.optim.Optimizer) -> int:
    """Return how many tensors of its shape a parameter has in the state after a step, 0 where that is unknown."""
    if not type(optimizer).__module__.startswith("torch.optim."):
        return 0
    parameter = torch.nn.Parameter(torch.ones(2, 2))
    known = inspect.signature(type(optimizer)).parameters
    options = {key: value for key, value in optimizer.param_groups[0].items() if key != "params" and key in known}
    # Not a step of the user's own optimizer: it would change what a rehearsal must leave alone (decision 025).
    small = type(optimizer)([parameter], **options)
    parameter.grad = torch.ones_like(parameter)
    small.step()
    state = small.state[parameter].values()
    return sum(isinstance(value, Tensor) and value.shape == parameter.shape for value in state)
