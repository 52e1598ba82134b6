"""Find what a user should know of a training that works, but perhaps not as intended."""

from __future__ import annotations

from collections.abc import Container

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from edt_sdk.training.exchange.layout import Layout
from edt_sdk.training.sampling.order import Order

# The most parameters that a remark names.
_NAMED = 5

# What torch's losses ignore by default.
_IGNORED = -100
_PADDING = (
    "Some labels are -100, which torch's losses leave out of their mean. Each part of a batch weighs by its samples, "
    "so labels in a part with much padding weigh more than in one large batch. For equal weights let the loss sum with "
    'reduction="sum", and divide by the samples and a constant, such as the length of the longest sample.'
)
_MIXED = (
    "fn_batch_collate makes labels that are shares of several classes (mixup, label smoothing), and the validation "
    "uses it too: its loss is over mixed samples, and it has no accuracy. For a validation on plain samples give "
    "fn_test_collate=torch.utils.data.default_collate."
)


def remarks(
    model: nn.Module, layout: Layout, order: Order, *, own_loop: bool = False, optimized: Container[int] = ()
) -> list[str]:
    """Return sentences for the user's log about a training that works, but perhaps not as intended.

    `optimized`: ids of all parameters that the optimizer has.
    """
    found: list[str] = []
    larger = "fewer shards" if own_loop else "a larger batch_size and fewer engines_number"
    owned = {id(parameter) for parameter in layout.parameters}
    left = [name for name, p in model.named_parameters() if p.requires_grad and id(p) not in owned]
    # A loop of one's own may hold weights that it changes itself, such as an average.
    if left and not own_loop:
        names = ", ".join(left[:_NAMED]) + (", …" if len(left) > _NAMED else "")
        found.append(
            f"{len(left)} parameters of the model need a gradient but do not belong to the optimizer, so they are not "
            f"trained: {names}."
        )
    frozen = [name for name, p in model.named_parameters() if not p.requires_grad and id(p) in optimized]
    if frozen and own_loop:
        found.append(
            f"The optimizer has {len(frozen)} frozen parameters, among them {frozen[0]}. To train them later, call "
            "elastic() before requires_grad_(False)."
        )
    kinds = {type(module).__name__ for module in model.modules() if isinstance(module, _BatchNorm)}
    batch, largest = sum(order.sizes), max(order.sizes)
    if kinds and largest < batch:
        found.append(
            f"In {' and '.join(sorted(kinds))} each part of a batch, here {largest} samples, is normalised by itself, "
            f"as in DistributedDataParallel, and not all {batch} of an update together. With {larger} the parts are "
            "larger. GroupNorm and LayerNorm do not depend on them."
        )
    # By its name: importing torch's compiler takes seconds.
    if any(type(module).__name__ == "OptimizedModule" for module in model.modules()):
        found.append("The model is compiled in each worker: the first update takes longer, up to minutes.")
    if batch > order.samples:
        found.append(
            f"One update takes up to {batch} samples, but the data set has only {order.samples}: each epoch is one "
            f"update over all of them."
        )
    return found


def label_remarks(labels: Tensor, *, mixes_tests: bool) -> list[str]:
    """Return sentences for the user's log about the labels of a training batch.

    `mixes_tests`: a collate function of the user's makes the batches of the validation too.
    """
    if not labels.is_floating_point():
        ignored = labels.dim() > 1 and not labels.is_complex() and bool((labels == _IGNORED).any())
        return [_PADDING] if ignored else []
    shares = labels.dim() == 2 and labels.shape[1] > 1 and bool(((labels > 0) & (labels < 1)).any())
    mixed = shares and bool(torch.isclose(labels.sum(1), labels.new_ones(())).all())
    return [_MIXED] if mixed and mixes_tests else []
