"""Compute a shard: forward, loss, backward. The result goes into a flat vector and an `ShardOutcome`.

Every shard of an update starts from the same buffers and from its own random states. The contribution of a shard is its
gradient times its number of samples. So the sum over shards divided by all samples is the gradient of the mean loss.
Floating-point buffers are averaged the same way. The step is `loss_function(model(x), y).backward()` or the user's own
(WMLA's `fn_step_train`). This module knows no other shard and never steps the optimizer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor, nn

from edt_sdk.schemas.errors import Unprocessable
from edt_sdk.training.exchange.header import Bits
from edt_sdk.training.exchange.layout import Layout, real
from edt_sdk.training.sampling.permutation import Indices
from edt_sdk.training.sampling.seeds import set_states
from edt_sdk.training.state.nested import to_device
from edt_sdk.training.update.accuracy import count_correct, eva
from edt_sdk.training.update.buffers import Buffers
from edt_sdk.training.update.gradients import Arrivals, Contribution, Gradients, give
from edt_sdk.training.update.loader import Batch
from edt_sdk.training.update.user_functions import LossFunction, Metric, ModelFacade, Observer, StepFunction, plain

_version = attrgetter("_version")


@dataclass(frozen=True, slots=True)
class ShardOutcome:
    """Holds the result of a shard before it is shared with other members. Tensors are still on their device.

    Attributes:
        loss: mean over the samples, as the loss function returned it.
        correct: number of correct samples, NaN or None where labels are no classes.
        metrics: value of each metric, in the order of their names.
        present: which parameters have a gradient, in the layout's order. Empty in a validation.
        changed: which buffers this shard, or an earlier shard of this rank in the update, changed: bool [floats +
            others]. None in a validation.
        others: values of the buffers that cannot be averaged, from shard 0 alone.
    """

    shard: int
    samples: int
    indices: Indices
    loss: Any
    correct: Any
    metrics: tuple[float, ...]
    present: tuple[bool, ...] = ()
    changed: Bits | None = None
    others: tuple[Tensor, ...] = ()


class ShardRunner:
    """Runs the shards of a model.

    The inputs of the default step are moved to `device`. A custom step gets its data on the CPU and moves them:
    `fn_step_train(model, data, eva, train_loader, fn_args) → (number correct, loss)`, where the last two arguments are
    None. `leaves` is whether gradients of several shards may accumulate in `.grad`.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        loss_function: LossFunction | None,
        *,
        layout: Layout,
        buffers: Buffers,
        device: torch.device,
        fn_step_train: StepFunction | None,
        metrics: Sequence[Metric],
    ) -> None:
        self._model = model
        self._loss_function = loss_function
        self._layout = layout
        self._buffers = buffers
        self._device = device
        self._fn_step_train = fn_step_train
        self._metrics = tuple(metrics)
        self._facade = ModelFacade(model, optimizer, loss_function)
        self._parameters = list({id(p): p for p in (*model.parameters(), *layout.parameters)}.values())
        # On CUDA, recurrent layers move their weights in a forward pass. That is harmless, so their versions are
        # ignored.
        # `_version` counts in-place writes. The check below compares sums of all versions, one addition per parameter.
        moving = {id(p) for m in model.modules() if isinstance(m, nn.RNNBase) for p in m.parameters()}
        self._watched = [p for p in self._parameters if id(p) not in moving]
        owned = {id(p) for p in layout.parameters}
        self._strangers = [p for p in self._parameters if id(p) not in owned]
        # Autograd may sum shards in `.grad` (mode `fast`, decision 032), with three exceptions: half precision needs a
        # sum in single precision, for which `.grad` has no room. A custom step clears `.grad`. A hook on it must see
        # one shard's gradient.
        self.leaves = fn_step_train is None and all(
            real(p.detach()).dtype.itemsize >= 4 and not getattr(p, "_post_accumulate_grad_hooks", None)
            for p in layout.parameters
        )
        self._versions_before = 0
        self._gradients = Gradients(layout)

    def train(self, shard: int, batch: Batch, *, seed: int, contribution: Contribution) -> ShardOutcome:
        """Run forward and backward. Gradients and buffers go into the contribution's vector."""
        arrivals = self.begin(seed, contribution)
        if self._fn_step_train:
            outputs, labels, correct, loss = self._custom(batch)
        else:
            outputs, labels, correct, loss = self._default(batch, arrivals)
        return self.end(shard, batch, arrivals, loss, correct, metrics=lambda: self._measure(outputs, labels))

    def begin(self, seed: int, contribution: Contribution) -> Arrivals:
        """Prepare model and random states for the forward pass of a shard. Return what takes its gradients."""
        self._buffers.restore()
        if not contribution.left:
            self.clear_gradients()
        if not contribution.follows:
            self._versions_before = self._versions()
        self._buffers.lend()
        set_states(seed)
        return Arrivals(self._gradients, contribution)

    def end(
        self,
        shard: int,
        batch: Batch,
        arrivals: Arrivals,
        loss: Any,
        correct: Any,
        *,
        metrics: Callable[[], tuple[float, ...]],
    ) -> ShardOutcome:
        """Take gradients and buffers of a shard after its backward pass.

        Raises:
            Unprocessable: a parameter was changed in place.
        """
        # A step inside the shard would leave this rank with other weights than the other ranks.
        if self._versions_before != self._versions():
            raise Unprocessable(
                "A parameter was changed in place during a training step.",
                hint="The engine steps the optimizer: take optimizer.step() out of fn_step_train, and max_norm= out of "
                "nn.Embedding.",
                field="fn_step_train",
            )
        present = arrivals.rest()
        changed = self._buffers.changed_so_far()
        self._add_buffers(arrivals.contribution)
        return ShardOutcome(
            shard=shard,
            samples=len(batch.indices),
            indices=batch.indices,
            loss=loss.detach() if isinstance(loss, Tensor) else loss,
            correct=correct,
            # Copied before the metrics run, which are user code and may change buffers.
            others=self._others(changed) if shard == 0 else (),
            metrics=metrics(),
            present=present,
            changed=changed,
        )

    @torch.no_grad()
    def evaluate(self, shard: int, batch: Batch, *, seed: int, observe: Observer | None = None) -> ShardOutcome:
        """Run forward and loss only. The caller has set evaluation mode. `observe` receives outputs and labels."""
        self._buffers.restore()
        self._buffers.lend()
        set_states(seed)
        outputs, labels, loss = self._forward(batch)
        if observe is not None:
            observe(outputs, labels)
        return ShardOutcome(
            shard=shard,
            samples=len(batch.indices),
            indices=batch.indices,
            loss=loss,
            correct=count_correct(outputs, labels),
            metrics=self._measure(outputs, labels),
        )

    def again(self, batch: Batch, *, seed: int) -> tuple[Any, Any]:
        """Compute the loss and the number of correct samples of a training shard, and leave out what follows.

        The caller restores buffers and random states.
        """
        self._buffers.lend()
        set_states(seed)
        if self._fn_step_train:
            _, _, correct, loss = self._custom(batch)
            return loss, correct
        outputs, labels, loss = self._forward(batch)
        return loss, count_correct(outputs, labels)

    def clear_gradients(self) -> None:
        """Set `.grad` of every parameter to None."""
        for parameter in self._parameters:
            parameter.grad = None

    def keep_gradients(self, divisor: float) -> None:
        """Divide the gradients left in `.grad` for the optimizer. Parameters outside the layout get None."""
        self._gradients.divide_left(divisor)
        for parameter in self._strangers:
            parameter.grad = None

    def _default(self, batch: Batch, arrivals: Arrivals) -> tuple[Any, Any, Any, Tensor]:
        outputs, labels, loss = self._forward(batch)
        with arrivals.watched():
            loss.backward()  # type: ignore[no-untyped-call]
        return outputs, labels, count_correct(outputs, labels), loss

    def _forward(self, batch: Batch) -> tuple[Any, Any, Tensor]:
        if not isinstance(batch.data, (tuple, list)) or len(batch.data) != 2:
            raise Unprocessable(
                f"A batch must be (features, labels), not a {type(batch.data).__name__}.",
                hint="Let the data set return pairs, or give fn_batch_collate or fn_step_train.",
                field="datasets_function",
            )
        features, labels = batch.data
        if self._device.type != "cpu" or not isinstance(features, Tensor) or not isinstance(labels, Tensor):
            features, labels = to_device((features, labels), self._device)
        outputs = self._model(features)
        assert self._loss_function is not None, "a loop of one's own calls the model itself"
        loss = self._loss_function(outputs, labels)
        if not isinstance(loss, Tensor) or loss.numel() != 1:
            what = f"a tensor of shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else f"a {type(loss).__name__}"
            raise Unprocessable(
                f"The loss function must return one number as a tensor, not {what}.",
                hint="Use reduction='mean', so that the loss is the mean over the samples.",
                field="loss_function",
            )
        return outputs, labels, loss

    def _custom(self, batch: Batch) -> tuple[Any, Any, Any, Any]:
        assert self._fn_step_train is not None
        result = self._fn_step_train(self._facade, batch.data, eva, None, None)
        if not isinstance(result, tuple) or len(result) != 2:
            raise Unprocessable(
                f"fn_step_train must return (accuracy, loss), not {result!r}.",
                hint="End it with: return acc, loss",
                field="fn_step_train",
            )
        correct, loss = result
        data = batch.data
        labels = data[1] if isinstance(data, (tuple, list)) and len(data) > 1 else None
        return self._facade.__dict__["_outputs"], labels, correct, loss

    @torch.no_grad()
    def _add_buffers(self, contribution: Contribution) -> None:
        floats = range(len(self._layout.floats))
        if not floats:
            return
        first = len(self._layout.parameters)
        values = [real(value) for value in self._buffers.values(floats)]
        give(contribution.vector.views[first:], values, contribution)
        if contribution.settled is not None:
            for number in floats:
                contribution.settled(first + number)

    def _others(self, changed: Bits) -> tuple[Tensor, ...]:
        first = len(self._layout.floats)
        values = self._buffers.values(range(first, first + len(self._layout.others)))
        return tuple(
            value.clone() if is_changed else value
            for value, is_changed in zip(values, changed[first:].tolist(), strict=True)
        )

    def _measure(self, outputs: Any, labels: Any) -> tuple[float, ...]:
        if not self._metrics:
            return ()
        self._buffers.lend()
        on_device = to_device(labels, self._device)
        with torch.no_grad():
            return tuple(plain(metric(outputs, on_device)) for metric in self._metrics)

    def _versions(self) -> int:
        return sum(map(_version, self._watched))
