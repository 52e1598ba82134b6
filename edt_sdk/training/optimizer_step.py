"""What is asked of an optimizer's step: that it needs no closure, and whether it draws random numbers."""

from __future__ import annotations

import inspect

import torch

from edt_sdk.schemas.errors import Unprocessable


def draws_nothing(optimizer: torch.optim.Optimizer) -> bool:
    """Whether a step of it certainly needs no random numbers: one of torch's own, without hooks of the user's.

    Random states are left alone around such a step; keeping and setting them takes longer than a small model's step.
    """
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
