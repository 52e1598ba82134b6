"""Memory for an optimizer's state before it is there, so that it need not be found and cleared when the others wait.

How much state a parameter gets is not known before the first step. A small optimizer of the same kind tells, in one
step over a parameter of its own. Only torch's own kinds are asked: what another one does when it is made, nobody knows.
"""

from __future__ import annotations

import inspect
import mmap

import torch
from torch import Tensor

from edt_sdk.training.state.state import is_dense, memory_of


def space_for_state(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    """As many tensors as the state of all parameters will have, in their shapes, with whatever is in them.

    They are for `transfer.take`. Each page of them has been written to, so that the system has provided it. None for
    parameters on a GPU, whose allocator has no need of it.
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
            memory_of(tensor.detach())[:: mmap.PAGESIZE].zero_()
    return space


def tensors_a_parameter(optimizer: torch.optim.Optimizer) -> int:
    """How many tensors like itself a parameter has in the state after a step; 0 where that is not known."""
    if not type(optimizer).__module__.startswith("torch.optim."):
        return 0
    parameter = torch.nn.Parameter(torch.ones(2, 2))
    known = inspect.signature(type(optimizer)).parameters
    options = {key: value for key, value in optimizer.param_groups[0].items() if key != "params" and key in known}
    small = type(optimizer)([parameter], **options)
    parameter.grad = torch.ones_like(parameter)
    small.step()
    state = small.state[parameter].values()
    return sum(isinstance(value, Tensor) and value.shape == parameter.shape for value in state)
