"""Keep what parts of an update log and measure, and give it to Lightning once for the whole batch.

`self.log` and torchmetrics in `training_step` see one part of a batch, in one worker. What they are called with is
kept, and reaches all workers with the gradients. There the calls are made once more with the values of the whole batch:
means by the number of samples, and a metric's inputs joined. So all workers have the same logs and metrics.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from lightning import LightningModule
from lightning.pytorch.trainer.connectors.logger_connector.result import _ResultCollection
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_unflatten
from torchmetrics import Metric, MetricCollection

_REDUCTIONS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "mean": lambda values, weights: (values * weights).sum() / weights.sum(),
    "sum": lambda values, weights: values.sum(),
    "max": lambda values, weights: values.max(),
    "min": lambda values, weights: values.min(),
}


@dataclass(slots=True)
class Recording:
    """Holds what a part has logged, the calls of its metrics, and numbers of the module that it has changed."""

    samples: int
    numbers: dict[str, float] = field(default_factory=dict)
    logs: list[tuple[str, str, Any, dict[str, Any]]] = field(default_factory=list)
    calls: list[tuple[str, str, tuple[Any, ...], dict[str, Any]]] = field(default_factory=list)


class RecordedResults(_ResultCollection):
    """Collects what is logged in a training. Within a part of an update it is kept in the part's recording instead."""

    def __init__(self) -> None:
        super().__init__(training=True)
        self.recording: Recording | None = None

    def log(self, fx: str, name: str, value: Any, **options: Any) -> None:
        """Log a value, or keep it."""
        if self.recording is None:
            super().log(fx, name, value, **options)
            return
        reduce_fx = options.pop("reduce_fx")
        for unneeded in ("sync_dist", "sync_dist_fn", "sync_dist_group", "enable_graph"):
            options.pop(unneeded, None)
        # Functions of torch cannot all be pickled, and Lightning knows them by these names as well.
        options["reduce_fx"] = getattr(reduce_fx, "__name__", reduce_fx).replace("avg", "mean")
        kept = None if isinstance(value, Metric) else value.detach().cpu()
        self.recording.logs.append((fx, name, kept, options))


class PartRecorder:
    """Records parts of updates, and replays them.

    Attributes:
        results: for the training loop, in place of Lightning's own.
    """

    def __init__(self, module: LightningModule) -> None:
        self._module = module
        self.results = RecordedResults()
        named = [(name, each) for name, each in module.named_modules() if isinstance(each, Metric | MetricCollection)]
        self.metrics = [(name, each) for name, each in named if isinstance(each, Metric)]
        self._originals: list[tuple[Any, str, Any]] = []
        self._inside = False
        for name, each in named:
            for method in ("forward", "update"):
                self._originals.append((each, method, vars(each).get(method)))
                setattr(each, method, self._watched(name, method, getattr(each, method)))

    def close(self) -> None:
        """Give the metrics their own methods back."""
        for metric, method, original in self._originals:
            if original is None:
                delattr(metric, method)
            else:
                setattr(metric, method, original)
        self._originals = []

    @contextmanager
    def on(self, recording: Recording) -> Iterator[None]:
        """Keep what is logged and measured in the block."""
        self.results.recording = recording
        try:
            yield
        finally:
            self.results.recording = None

    def states(self) -> dict[str, tuple[dict[str, Any], int]]:
        """Return the states of all metrics of the module, which are neither parameters nor buffers."""
        return {name: (each._copy_state_dict(), each._update_count) for name, each in self.metrics}

    def put(self, states: dict[str, tuple[dict[str, Any], int]]) -> None:
        """Set what `states` returned."""
        for name, metric in self.metrics:
            values, count = states[name]
            for attribute, value in values.items():
                setattr(metric, attribute, copy.copy(value))
            metric._update_count, metric._computed = count, None

    def replay(self, recordings: list[Recording]) -> None:
        """Log and measure what all parts of an update have."""
        for calls in zip(*(each.calls for each in recordings), strict=True):
            name, method, _, _ = calls[0]
            function = getattr(self._module.get_submodule(name), method)
            for args, kwargs in _joined([(args, kwargs) for _, _, args, kwargs in calls], self._module.device):
                function(*args, **kwargs)
        weights = [each.samples for each in recordings]
        for logs in zip(*(each.logs for each in recordings), strict=True):
            fx, name, first, options = logs[0]
            sizes = torch.tensor([log[3]["batch_size"] or weight for log, weight in zip(logs, weights, strict=True)])
            if first is None:
                value: Any = self._module.get_submodule(options["metric_attribute"])
            else:
                values = torch.stack([log[2] for log in logs])
                values = values if values.is_floating_point() else values.to(torch.float32)
                value = _REDUCTIONS[options["reduce_fx"]](values, sizes).to(self._module.device)
            self.results.log(fx, name, value, **{**options, "batch_size": int(sizes.sum())})

    def _watched(self, name: str, method: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            recording = self.results.recording
            if recording is None or self._inside:
                return original(*args, **kwargs)
            moved = [
                each.detach().cpu() if isinstance(each, Tensor) else each for each in tree_flatten((args, kwargs))[0]
            ]
            recording.calls.append((name, method, *tree_unflatten(moved, tree_flatten((args, kwargs))[1])))
            self._inside = True
            try:
                return original(*args, **kwargs)
            finally:
                self._inside = False

        return call


def numbers_of(module: LightningModule) -> dict[str, float]:
    """Return the numbers that are attributes of a module, such as counters."""
    return {name: value for name, value in vars(module).items() if isinstance(value, int | float)}


def _joined(calls: list[tuple[Any, Any]], device: torch.device) -> list[Any]:
    """Return the calls of all parts as one, or as they are where an argument is not a tensor with samples."""
    leaves = [tree_flatten(call)[0] for call in calls]
    spec = tree_flatten(calls[0])[1]
    if all(isinstance(leaf, Tensor) and leaf.ndim for part in leaves for leaf in part):
        leaves = [[torch.cat(list(of_parts)) for of_parts in zip(*leaves, strict=True)]]
    return [
        tree_unflatten([leaf.to(device) if isinstance(leaf, Tensor) else leaf for leaf in part], spec)
        for part in leaves
    ]
