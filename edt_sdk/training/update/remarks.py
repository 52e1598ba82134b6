"""Find remarks for the user before a training starts: it works, but perhaps not as intended."""

from __future__ import annotations

from torch import nn

from edt_sdk.training.exchange.layout import Layout
from edt_sdk.training.sampling.order import Order

_NAMED = 5


def remarks(model: nn.Module, layout: Layout, order: Order) -> list[str]:
    """Return sentences for the log, none where all is as usual."""
    found: list[str] = []
    owned = {id(parameter) for parameter in layout.parameters}
    left = [name for name, p in model.named_parameters() if p.requires_grad and id(p) not in owned]
    if left:
        names = ", ".join(left[:_NAMED]) + (", …" if len(left) > _NAMED else "")
        found.append(
            f"{len(left)} parameters of the model need a gradient but do not belong to the optimizer, so they are not "
            f"trained: {names}."
        )
    batch = sum(order.sizes)
    if batch > order.samples:
        found.append(
            f"One update takes up to {batch} samples, but the data set has only {order.samples}: each epoch is one "
            f"update over all of them."
        )
    return found
