"""Computes one shard: forward, loss, backward; what came out goes into a flat vector and an `Outcome`.

Every shard of an update starts from the same buffers and from random states of its own. The contribution of a shard is
its gradient times its number of samples, so that the sum over shards divided by all samples is the gradient of their
mean; the same for floating-point buffers. The step is `loss_function(model(x), y).backward()` or the user's own (WMLA's
`fn_step_train`). Knows no other shard; never steps the optimizer.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from edt_sdk.schemas.errors import Unprocessable
from edt_sdk.training.accuracy import count_correct, eva
from edt_sdk.training.buffers import Buffers
from edt_sdk.training.header import Bits
from edt_sdk.training.layout import Flat, Layout, real
from edt_sdk.training.loader import Batch
from edt_sdk.training.nested import to_device
from edt_sdk.training.order import Indices
from edt_sdk.training.seeds import set_states

log = logging.getLogger(__name__)

# Elements of a gradient up to which a call costs more than a pass over cold memory.
_SMALL = 1 << 14

LossFunction = Callable[[Any, Any], Tensor]
Metric = Callable[[Any, Any], Any]
StepFunction = Callable[..., tuple[Any, Any]]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one shard gave, before it is told to others; tensors are still on their device.

    Attributes:
        loss: mean over the samples, as the loss function returned it.
        correct: number of correct samples, NaN or None where labels are no classes.
        metrics: value of each metric, in the order of their names.
        present: which parameters have a gradient, in the layout's order; empty in a validation.
        changed: which buffers changed, bool [floats + others]; empty in a validation.
        others: values of the buffers that cannot be averaged, of shard 0 alone.
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


@dataclass(slots=True)
class Contribution:
    """Where a shard's gradients and buffers go.

    Attributes:
        vector: takes them.
        weight: what they are multiplied with.
        add: add to what the vector holds instead of overwriting it.
        settled: called with the number of each entry of the layout, when its value in the vector is final; that is
            during the backward pass where possible.
    """

    vector: Flat
    weight: float
    add: bool = False
    settled: Callable[[int], None] | None = None


class ModelFacade:
    """The model as WMLA's custom steps see it: call it, read any attribute, ask for optimizer and loss function."""

    def __init__(self, module: nn.Module, optimizer: torch.optim.Optimizer, loss_function: LossFunction) -> None:
        object.__setattr__(self, "_module", module)
        object.__setattr__(self, "_optimizer", optimizer)
        object.__setattr__(self, "_loss_function", loss_function)
        object.__setattr__(self, "_outputs", None)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The forward pass."""
        outputs = self._module(*args, **kwargs)
        object.__setattr__(self, "_outputs", outputs)
        return outputs

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._module, name, value)

    def get_optimizer(self) -> torch.optim.Optimizer:
        """The optimizer; it is stepped by the engine, never by the custom step."""
        optimizer: torch.optim.Optimizer = self._optimizer
        return optimizer

    def get_loss_function(self) -> LossFunction:
        """The loss function given to FabricModel."""
        loss_function: LossFunction = self._loss_function
        return loss_function


class ShardRunner:
    """Runs shards of one model.

    Args:
        layout: made from the same model and optimizer.
        device: where inputs of the default step go; a custom step gets its data on the CPU and moves them itself.
        fn_step_train: `(model, data, eva, train_loader, fn_args) → (number correct, loss)`; train_loader and fn_args
            are None.
        metrics: functions of (outputs, labels) → number; names from `metric_names`.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        loss_function: LossFunction,
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
        # On CUDA, recurrent layers move their weights about in a forward pass, which is harmless.
        moving = {id(p) for m in model.modules() if isinstance(m, nn.RNNBase) for p in m.parameters()}
        self._watched = [p for p in self._parameters if id(p) not in moving]
        self._densified: set[int] = set()
        self.single_arrivals: bool | None = None  # whether a backward pass finishes each gradient once; None: unknown

    def train(self, shard: int, batch: Batch, *, seed: int, contribution: Contribution) -> Outcome:
        """Forward and backward; what comes out goes into the contribution's vector."""
        self._buffers.restore()
        self.clear_gradients()
        versions = self._versions()
        set_states(seed)
        arrivals = _Arrivals(self, contribution)
        if self._fn_step_train:
            outputs, labels, correct, loss = self._custom(batch)
        else:
            outputs, labels, correct, loss = self._default(batch, arrivals)
        if versions != self._versions():
            raise Unprocessable(
                "A parameter was changed in place during a training step.",
                hint="The engine steps the optimizer: take optimizer.step() out of fn_step_train, and max_norm= out of "
                "nn.Embedding.",
                field="fn_step_train",
            )
        present = arrivals.rest()
        changed = self._buffers.changed()
        self._add_buffers(contribution)
        return Outcome(
            shard=shard,
            samples=len(batch.indices),
            indices=batch.indices,
            loss=loss.detach() if isinstance(loss, Tensor) else loss,
            correct=correct,
            metrics=self._measure(outputs, labels),
            present=present,
            changed=changed,
            others=self._others(changed) if shard == 0 else (),
        )

    @torch.no_grad()
    def evaluate(self, shard: int, batch: Batch, *, seed: int) -> Outcome:
        """Forward and loss only; the caller has put the model into evaluation mode."""
        self._buffers.restore()
        set_states(seed)
        outputs, labels, loss = self._forward(batch)
        return Outcome(
            shard=shard,
            samples=len(batch.indices),
            indices=batch.indices,
            loss=loss,
            correct=count_correct(outputs, labels),
            metrics=self._measure(outputs, labels),
        )

    def clear_gradients(self) -> None:
        """`.grad` of every parameter becomes None."""
        for parameter in self._parameters:
            parameter.grad = None

    def _default(self, batch: Batch, arrivals: _Arrivals) -> tuple[Any, Any, Any, Tensor]:
        outputs, labels, loss = self._forward(batch)
        with arrivals.watched(self._layout.parameters):
            loss.backward()  # type: ignore[no-untyped-call]
        return outputs, labels, count_correct(outputs, labels), loss

    def _forward(self, batch: Batch) -> tuple[Any, Any, Tensor]:
        if not isinstance(batch.data, (tuple, list)) or len(batch.data) != 2:
            raise Unprocessable(
                f"A batch must be (features, labels), not a {type(batch.data).__name__}.",
                hint="Let the data set return pairs, or give fn_batch_collate or fn_step_train.",
                field="datasets_function",
            )
        features, labels = to_device(tuple(batch.data), self._device)
        outputs = self._model(features)
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

    def take(self, numbers: Sequence[int], contribution: Contribution) -> None:
        """The gradients of these parameters go into the vector; one that is not there counts as zero."""
        views, gradients = [], []
        for number in numbers:
            view, gradient = contribution.vector.views[number], self._layout.parameters[number].grad
            if gradient is None:
                # Adding zero is not the same as leaving it: it turns −0.0 into 0.0, wherever the other summand is.
                view.add_(0.0) if contribution.add else view.zero_()
                continue
            if gradient.layout is not torch.strided:
                self._say_densified(number)
                gradient = gradient.to_dense()
            views.append(view)
            gradients.append(real(gradient))
        _give(views, gradients, contribution)

    @torch.no_grad()
    def _add_buffers(self, contribution: Contribution) -> None:
        floats = range(len(self._layout.floats))
        first = len(self._layout.parameters)
        values = [real(value) for value in self._buffers.values(floats)]
        _give(contribution.vector.views[first:], values, contribution)
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

    @torch.no_grad()
    def _measure(self, outputs: Any, labels: Any) -> tuple[float, ...]:
        on_device = to_device(labels, self._device) if self._metrics else labels
        return tuple(plain(metric(outputs, on_device)) for metric in self._metrics)

    def _versions(self) -> int:
        return sum(parameter._version for parameter in self._watched)

    def _say_densified(self, number: int) -> None:
        if number not in self._densified:
            self._densified.add(number)
            log.warning(
                "The gradient of %s is sparse; it is made dense, so that it can be added in a fixed order.",
                self._layout.names[number],
            )


class _Arrivals:
    """Which gradients of one shard have come.

    Each is taken, and its memory given back, when the backward pass has finished it: it is still in the caches then,
    and the next gradient finds memory that needs no clearing by the system. Small ones are taken together at the end,
    unless somebody waits for them: a call each would cost more. Some models finish one several times
    (re-entrant checkpoints): the first shard of a process only looks whether that is so, and then all are left to the
    end.
    """

    def __init__(self, runner: ShardRunner, contribution: Contribution) -> None:
        self._runner = runner
        self._contribution = contribution
        self._count = len(runner._layout.parameters)
        self._taken: set[int] = set()
        self._present: set[int] = set()

    @contextmanager
    def watched(self, parameters: Sequence[Tensor]) -> Iterator[None]:
        """Look on during a backward pass."""
        runner = self._runner
        trial = runner.single_arrivals is None
        if runner.single_arrivals is False:
            yield
            return
        seen: list[int] = []
        arrived = seen.append if trial else self._arrived
        least = 0 if trial or self._contribution.settled is not None else _SMALL
        handles = [
            parameter.register_post_accumulate_grad_hook(  # type: ignore[no-untyped-call]
                lambda _, number=number: arrived(number)
            )
            for number, parameter in enumerate(parameters)
            if parameter.requires_grad and parameter.numel() > least
        ]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()
        if trial:
            runner.single_arrivals = len(seen) == len(set(seen))

    def rest(self) -> tuple[bool, ...]:
        """Take what has not been taken; which parameters have a gradient."""
        missing = [number for number in range(self._count) if number not in self._taken]
        parameters = self._runner._layout.parameters
        present = tuple(number in self._taken or parameters[number].grad is not None for number in range(self._count))
        with torch.no_grad():
            self._runner.take(missing, self._contribution)
        if self._contribution.settled is not None:
            for number in missing:
                self._contribution.settled(number)
        return present

    def _arrived(self, number: int) -> None:
        if number in self._taken:
            raise Unprocessable(
                f"The gradient of {self._runner._layout.names[number]} was finished twice in one backward pass.",
                hint="Use torch.utils.checkpoint with use_reentrant=False.",
                field="model",
            )
        self._taken.add(number)
        self._runner.take((number,), self._contribution)  # a backward pass has switched gradients off
        self._runner._layout.parameters[number].grad = None
        if self._contribution.settled is not None:
            self._contribution.settled(number)


def _give(views: Sequence[Tensor], values: list[Tensor], contribution: Contribution) -> None:
    """Into the views, times the weight; computed in the views' kind of number."""
    if not values:
        return
    if len(values) == 1 and contribution.weight == 1:
        views[0].add_(values[0]) if contribution.add else views[0].copy_(values[0])
        return
    if contribution.weight != 1:
        values = [
            torch.mul(value.to(view.dtype), contribution.weight) if contribution.add else value
            for view, value in zip(views, values, strict=True)
        ]
        if not contribution.add:
            for view, value in zip(views, values, strict=True):
                torch.mul(value.to(view.dtype), contribution.weight, out=view)
            return
    if contribution.add:
        torch._foreach_add_(list(views), values)
    else:
        torch._foreach_copy_(list(views), values)


def metric_names(metrics: Sequence[Metric]) -> tuple[str, ...]:
    """A name for each metric: its `__name__`, else its class; a number behind the second of the same name."""
    names: list[str] = []
    for metric in metrics:
        name = str(getattr(metric, "__name__", type(metric).__name__))
        taken = names.count(name) + sum(other.startswith(f"{name}_") for other in names)
        names.append(f"{name}_{taken + 1}" if name in names else name)
    return tuple(names)


def plain(value: Any) -> float:
    """A tensor of one element, or a number, as a Python float."""
    return float(value.detach() if isinstance(value, Tensor) else value)


def number_or_none(value: Any) -> float | None:
    """A count of correct samples as a plain number; None for None and NaN."""
    if value is None:
        return None
    number = plain(value)
    return None if math.isnan(number) else number
