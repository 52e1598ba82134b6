"""List the micro-batches a member takes from a position in the schedule to the end, if nothing changes. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from edt_sdk.training.sampling.order import BatchKey, Order, TestOrder, TestStep, TrainStep
from edt_sdk.training.sampling.schedule import Cursor


class Agenda:
    """Lists the keys of a training's micro-batches.

    Args:
        order: of the training samples.
        test_order: of the validation samples.
        alone: whether the validation is the user's own function: a single step, in which rank 0 takes the whole test
            set.
    """

    def __init__(self, order: Order, test_order: TestOrder, *, alone: bool) -> None:
        self._order = order
        self._test_order = test_order
        self._alone = alone

    def keys(self, cursor: Cursor, block: range, rank: int) -> Iterator[BatchKey]:
        """Yield the keys that a member with this block of shards takes from `cursor` on."""
        for position in range(cursor.position, len(cursor.schedule)):
            step = cursor.schedule[position]
            if isinstance(step, TrainStep):
                yield from self._order.keys(step, block)
            elif isinstance(step, TestStep):
                if not self._alone:
                    yield from self._test_order.keys(step, block)
                elif rank == 0:
                    yield from self.whole_test(step)

    def whole_test(self, step: TestStep) -> Iterator[BatchKey]:
        """Yield the keys of the whole test set, in order."""
        for index in range(self._test_order.steps):
            yield from self._test_order.keys(TestStep(step.epoch, index), range(self._order.number_of_shards))
