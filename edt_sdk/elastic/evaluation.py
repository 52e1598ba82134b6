"""Compute the mean of a script's function over a data set, each worker a part of it, and the same result in all."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from edt_sdk.elastic.batches import TestSection
from edt_sdk.elastic.place import Place
from edt_sdk.elastic.sides import Among, Loads
from edt_sdk.schemas.errors import InvalidRequest, Unprocessable
from edt_sdk.training.exchange.blocks import blocks
from edt_sdk.training.records.recorder import TestLine
from edt_sdk.training.sampling.order import BatchKey
from edt_sdk.training.sampling.seeds import derive, preserved, set_states
from edt_sdk.training.state.nested import to_device
from edt_sdk.training.update.update import evaluation_mode
from edt_sdk.training.update.user_functions import plain

_ONE = ""  # the name of a function's only number
_LOSSES, _ACCURACIES = ("loss", "test_loss", "val_loss"), ("accuracy", "acc", "test_accuracy", "val_accuracy")


class Evaluation:
    """Evaluates a function over a test section. `alike`: all members call it equally often."""

    def __init__(
        self,
        section: TestSection,
        function: Callable[[Any], Any],
        model: nn.Module,
        device: torch.device,
        seed: int,
        *,
        alike: bool = False,
    ) -> None:
        if not callable(function):
            raise InvalidRequest(f"evaluate() needs a function of a batch, not {function!r}.", field="function")
        self._section = section
        self._function = function
        self._model = model
        self._device = device
        self._seed = seed
        self._alike = alike
        self.loader = section.loader

    def together(self, among: Among, loads: Loads) -> Any:
        """Return the mean over all batches: a number, or a dictionary of numbers."""
        shares = [self._section.keys(block) for block in blocks(self._section.shards, among.world)]
        keys = list(shares[among.rank])
        if self._alike:
            # Rank 0 always has the most. What is computed once more is the same.
            most = list(shares[0]) if among.rank else keys
            keys += (keys or most)[-1:] * (len(most) - len(keys))
        own = self._own(keys, loads)
        found: dict[tuple[int, int], Mapping[str, tuple[float, float]]] = {}
        for data in among.group.gather_bytes(pickle.dumps(own)) if among.world > 1 else [pickle.dumps(own)]:
            found.update(pickle.loads(data))
        sums: dict[str, float] = {}
        weights: dict[str, float] = {}
        # In the order of the batches, so that the sums do not depend on who computed what.
        for place in sorted(found):
            for name, (total, weight) in found[place].items():
                sums[name] = sums.get(name, 0.0) + total
                weights[name] = weights.get(name, 0.0) + weight
        if not sums:
            raise Unprocessable("There is nothing to evaluate: the data set is empty.", field="dataset")
        means = {name: sums[name] / weights[name] if weights[name] else float("nan") for name in sums}
        return means[_ONE] if list(means) == [_ONE] else means

    def _own(self, keys: list[BatchKey], loads: Loads) -> dict[tuple[int, int], dict[str, tuple[float, float]]]:
        found: dict[tuple[int, int], dict[str, tuple[float, float]]] = {}
        self.loader.plan(dict.fromkeys(keys))
        batch = None
        with preserved(), torch.no_grad(), evaluation_mode(self._model):
            for key in keys:
                if batch is None or (key.step, key.shard) not in found:
                    batch = loads.take(key)
                set_states(derive(self._seed, "test-shard", key.step, key.shard))
                values = self._function(to_device(batch.data, self._device))
                found[key.step, key.shard] = _numbers(values, len(batch.indices))
        return found


def test_line(result: Any, name: str, place: Place) -> TestLine:
    """Return the result of an evaluation as a line of the metrics."""
    means = result if isinstance(result, Mapping) else {"score": result}
    loss = next((means[key] for key in _LOSSES if key in means), None)
    accuracy = next((means[key] for key in _ACCURACIES if key in means), None)
    rest = {key: value for key, value in means.items() if key not in (*_LOSSES, *_ACCURACIES)}
    return TestLine(
        epoch=max(0, place.epoch),
        update=place.updates - 1,
        loss=loss,
        accuracy=accuracy,
        time=time.time(),
        metrics=rest,
        name=name,
        drawn=name == place.drawn,
        number=place.calls,
    )


def _numbers(values: Any, samples: int) -> dict[str, tuple[float, float]]:
    """Return (sum, weight) by name."""
    named = values if isinstance(values, Mapping) else {_ONE: values}
    found = {}
    for name, value in named.items():
        try:
            if isinstance(value, tuple):
                total, weight = value
                found[str(name)] = plain(total), plain(weight)
            else:
                found[str(name)] = plain(value) * samples, float(samples)
        except (TypeError, ValueError, RuntimeError):
            raise InvalidRequest(
                f"evaluate() got {value!r:.60} from the function{f' for {name!r}' if name else ''}.",
                hint="Return a number, a tensor with one element, a pair (sum, weight), or a dictionary of these.",
                field="function",
            ) from None
    return found
