"""Apply an update: the combined gradients become `.grad`, the optimizer steps, buffers take their new values.

Every member does this with the same numbers and so ends with the same bits. The module also checks that the step needs
no closure, and whether it draws random numbers. It never communicates.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from edt_sdk.schemas.errors import Unprocessable
from edt_sdk.training.exchange.header import Summary
from edt_sdk.training.exchange.layout import Flat, Layout
from edt_sdk.training.sampling.seeds import derive, preserved, set_states
from edt_sdk.training.update.buffers import Buffers


@dataclass(frozen=True, slots=True)
class OptimizerStep:
    """Steps the optimizer.

    Attributes:
        seed: the job's. A step that draws random numbers is seeded with (seed, update).
        clip_grad_norm: largest norm of the combined gradient, None for no limit.
    """

    optimizer: torch.optim.Optimizer
    layout: Layout
    buffers: Buffers
    seed: int
    clip_grad_norm: float | None

    def take_gradients(self, summary: Summary, combined: Flat) -> None:
        """Put the combined gradients into `.grad`. It stays None where no shard has a gradient."""
        count = len(self.layout.parameters)
        for parameter, view, present in zip(
            self.layout.parameters, combined.views[:count], summary.present.tolist(), strict=True
        ):
            if present:
                value = view.detach()
                parameter.grad = value if value.dtype is parameter.dtype else _like(value, parameter)

    def divide_buffers(self, combined: Flat, divisor: float) -> None:
        """Turn the sums of buffers into means, where the gradients are already in `.grad`."""
        sums = combined.views[len(self.layout.parameters) :]
        if divisor != 1 and sums:
            torch._foreach_div_(sums, divisor)

    def apply(self, update: int) -> None:
        """Clip the gradients and step."""
        if self.clip_grad_norm is not None:
            nn.utils.clip_grad_norm_(self.layout.parameters, self.clip_grad_norm)
        if draws_nothing(self.optimizer):
            self.optimizer.step()
        else:
            with preserved():
                # By update and not by rank: every member must draw the same numbers.
                set_states(derive(self.seed, "optimizer", update))
                self.optimizer.step()

    def put_buffers(self, summary: Summary, combined: Flat, others: dict[int, Tensor]) -> None:
        """Update the buffers of the model. `others` are new values of the buffers without a mean, by number."""
        first = len(self.layout.floats)
        if first:
            floats = np.flatnonzero(summary.changed_floats).tolist()
            views = combined.views[len(self.layout.parameters) :]
            self.buffers.commit(floats, [_like(views[n], self.layout.floats[n].get()) for n in floats])
        self.buffers.commit([first + number for number in others], list(others.values()))


def draws_nothing(optimizer: torch.optim.Optimizer) -> bool:
    """Return whether a step surely draws no random numbers: an optimizer of torch's own, without user hooks.

    Such a step keeps the random states without saving them, which would take longer than a small model's step.
    """
    # A hook or a subclass may draw random numbers, so only plain optimizers of torch's own are exempt.
    hooks = optimizer._optimizer_step_pre_hooks or optimizer._optimizer_step_post_hooks
    return type(optimizer).__module__.startswith("torch.optim.") and not hooks


def check_step(optimizer: torch.optim.Optimizer) -> None:
    """Raise Unprocessable for an optimizer that evaluates the model within its step, such as LBFGS."""
    closure = inspect.signature(optimizer.step).parameters.get("closure")
    if closure is not None and closure.default is inspect.Parameter.empty:
        raise Unprocessable(
            f"{type(optimizer).__name__} evaluates the model within its step, which cannot be shared among workers.",
            hint="Use an optimizer whose step() needs no closure, such as SGD or AdamW.",
            field="optimizer",
        )


def _like(view: Tensor, tensor: Tensor | None) -> Tensor:
    """Return a part of the flat vector in the number type of its parameter or buffer."""
    if tensor is None:
        raise ValueError("a buffer is gone")
    value = torch.view_as_complex(view) if tensor.is_complex() else view
    return value.to(tensor.dtype)
