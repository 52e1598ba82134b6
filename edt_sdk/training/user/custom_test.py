"""Run the user's own validation, WMLA's `fn_test`: rank 0 runs it over the whole test set while the others wait.

The function gets the model in evaluation mode and may change it. When it returns, modes, parameters, buffers and random
states are restored, so a validation never changes a training.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import nn

from edt_sdk.schemas.errors import Unprocessable
from edt_sdk.training.sampling.order import BatchKey
from edt_sdk.training.sampling.seeds import derive, preserved, set_states
from edt_sdk.training.state import state
from edt_sdk.training.update.update import Loader


@dataclass(frozen=True, slots=True)
class TestBatches:
    """Iterates over the test set in batches `(inputs, labels)` of `batch_size`, in order, any number of times."""

    __test__: ClassVar[bool] = False  # pytest must not collect this class

    loader: Loader
    keys: Sequence[BatchKey]

    def __len__(self) -> int:
        return len(self.keys)

    def __iter__(self) -> Iterator[Any]:
        return (self.loader.take(key).data for key in self.keys)


def run(function: Callable[..., Any], facade: Any, model: nn.Module, batches: TestBatches, seed: int) -> float:
    """Return the validation loss of the user's `function(facade, batches, None)`. Unprocessable if it is no number.

    The random states do not depend on the epoch, as in the engine's own validation.
    """
    flags = state.flags(model)
    before = state.own_copies(model)
    model.eval()
    try:
        with preserved(), torch.no_grad():
            set_states(derive(seed, "fn_test"))
            loss = function(facade, batches, None)
    finally:
        # In `finally`: a failing test function must not leave the model in evaluation mode.
        state.put_flags(model, flags)
        state.put_tensors(model, {name: before[name] for name in state.differing(model, before) if name in before})
    try:
        return float(loss)
    except (TypeError, ValueError):
        raise Unprocessable(
            f"fn_test must return the validation loss, one number, not {loss!r}.", field="fn_test"
        ) from None
