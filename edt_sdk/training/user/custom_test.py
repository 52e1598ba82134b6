"""Run the user's own validation, WMLA's `fn_test`: rank 0 runs it over the whole test set while the others wait.

The function gets the model in evaluation mode and may change it. When it returns, modes, parameters, buffers and random
states are restored, so a validation never changes a training.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import nn

from edt_sdk.schemas.errors import Unprocessable
from edt_sdk.training.sampling.order import BatchKey
from edt_sdk.training.sampling.seeds import derive, preserved, set_states
from edt_sdk.training.state import state
from edt_sdk.training.update.update import Loader


class TestBatches:
    """Iterates over the test set in batches `(inputs, labels)` of `batch_size`, in order, any number of times."""

    __test__ = False  # pytest must not collect this class

    def __init__(self, loader: Loader, keys: Sequence[BatchKey]) -> None:
        self._loader = loader
        self._keys = keys

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Iterator[Any]:
        return (self._loader.take(key).data for key in self._keys)


def run(function: Callable[..., Any], facade: Any, model: nn.Module, batches: TestBatches, seed: int) -> float:
    """Return the validation loss of `function(model, test_iter, fn_args)`.

    Args:
        function: the user's.
        facade: passed as the model.
        model: the module behind the facade.
        batches: the test set.
        seed: of the job. The random states do not depend on the epoch, as in the engine's own validation.

    Raises:
        Unprocessable: the result is no number.
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
