"""Move the gradients of a shard into a flat vector, each as soon as the backward pass has finished it.

A contribution is gradient times number of samples. A missing gradient counts as zero. This module knows nothing of
forward passes and never communicates.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor
from torch.utils.hooks import RemovableHandle

from edt_sdk.schemas.errors import Unprocessable
from edt_sdk.training.exchange.layout import Flat, Layout, real

log = logging.getLogger(__name__)

# Up to this many elements, a call costs more than a pass over cold memory.
_SMALL = 1 << 14
# Up to this many bytes, all gradients are still in a core's caches at the end of a backward pass.
_CACHED = 4 << 20


@dataclass(slots=True)
class Contribution:
    """Describes where a shard's gradients and buffers go.

    Attributes:
        weight: factor of the gradients and buffers.
        add: add to the content of the vector instead of overwriting it.
        settled: called with the number of each layout entry once its value in the vector is final, during the backward
            pass where possible.
        practice: the content of the vector will be discarded.
        follows: another shard of the same update was computed directly before.
        left: `.grad` still holds the gradients of earlier shards. This shard adds to them, and the vector takes the
            sum.
        leave: keep the gradients in `.grad` for the next shard or for the optimizer.
    """

    vector: Flat
    weight: float
    add: bool = False
    settled: Callable[[int], None] | None = None
    practice: bool = False
    follows: bool = False
    left: bool = False
    leave: bool = False

    @property
    def of_gradients(self) -> Contribution:
        """Return the contribution for gradients, where it differs from that for buffers."""
        return replace(self, add=False) if self.left else self


class Gradients:
    """Watches the gradients of a model's parameters.

    The hooks stay on the parameters from the first shard on, because registering them for each pass would take longer
    than the work they do. Backward passes outside a shard are ignored.

    Attributes:
        least: gradients with more elements should be taken as soon as they are finished.
        all_present: the result of `Arrivals.rest` when no gradient is missing. A single object, fast to compare.
        single_arrivals: whether a backward pass finishes each gradient once. None until the first pass has shown it.
    """

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.single_arrivals: bool | None = None
        in_all = sum(parameter.nbytes for parameter in layout.parameters)
        # Taking gradients early pays off only if they would leave the cache before the end of the pass (decision 027).
        self.least = _SMALL if in_all > _CACHED else sys.maxsize
        self.all_present = (True,) * len(layout.parameters)
        self._densified: set[int] = set()
        self._arrived: Callable[[int], None] | None = None
        self._handles: dict[int, RemovableHandle] = {}
        self._least_watched = sys.maxsize

    @contextmanager
    def watched(self, arrived: Callable[[int], None], least: int) -> Iterator[None]:
        """Call the callback `arrived` with a parameter's number as soon as a backward pass has finished its gradient.

        This covers gradients with more than `least` elements, and may cover smaller ones.
        """
        if least < self._least_watched:
            self._least_watched = least
            for number, parameter in enumerate(self.layout.parameters):
                if number not in self._handles and parameter.numel() > least and parameter.requires_grad:
                    self._handles[number] = parameter.register_post_accumulate_grad_hook(  # type: ignore[no-untyped-call]
                        partial(self._finished, number)
                    )
        self._arrived = arrived
        try:
            yield
        finally:
            self._arrived = None

    def unwatch(self, most: int) -> None:
        """Remove the hooks on parameters of up to `most` elements until the next request for them."""
        self._least_watched = most
        for number in [n for n in self._handles if self.layout.parameters[n].numel() <= most]:
            self._handles.pop(number).remove()

    def _finished(self, number: int, _: Tensor) -> None:
        if self._arrived is not None:
            self._arrived(number)

    def take_one(self, number: int, contribution: Contribution) -> None:
        """Move the gradient of a parameter into the vector, without the general path of `take` where possible."""
        gradient = self.layout.parameters[number].grad
        if gradient is None or gradient.layout is not torch.strided or contribution.weight != 1:
            self.take((number,), contribution)
        elif contribution.add:
            contribution.vector.views[number].add_(real(gradient))
        else:
            contribution.vector.views[number].copy_(real(gradient))

    def take(self, numbers: Sequence[int], contribution: Contribution) -> None:
        """Move the gradients of these parameters into the vector. A missing gradient counts as zero."""
        views, gradients = [], []
        all_views, parameters = contribution.vector.views, self.layout.parameters
        for number in numbers:
            gradient = parameters[number].grad
            if gradient is None:
                # Adding zero differs from skipping: it turns −0.0 into 0.0, as it does where another rank holds the
                # other summand.
                all_views[number].add_(0.0) if contribution.add else all_views[number].zero_()
                continue
            if gradient.layout is not torch.strided:
                self._say_densified(number)
                gradient = gradient.to_dense()
            views.append(all_views[number])
            gradients.append(real(gradient))
        give(views, gradients, contribution)

    def divide_left(self, divisor: float) -> None:
        """Divide the gradients left in `.grad`, and make sparse gradients dense."""
        gradients = []
        for number, parameter in enumerate(self.layout.parameters):
            gradient = parameter.grad
            if gradient is None:
                continue
            if gradient.layout is not torch.strided:
                self._say_densified(number)
                gradient = parameter.grad = gradient.to_dense()
            gradients.append(gradient)
        if divisor != 1 and gradients:
            with torch.no_grad():
                torch._foreach_div_(gradients, divisor)

    def _say_densified(self, number: int) -> None:
        if number not in self._densified:
            # Once per parameter: the log must not grow with the number of updates.
            self._densified.add(number)
            log.warning(
                "The gradient of %s is sparse. It is made dense, so that it can be summed in a fixed order.",
                self.layout.names[number],
            )


class Arrivals:
    """Tracks which gradients of a shard have arrived.

    Each gradient is taken and its memory freed when the backward pass has finished it. It is still in the caches then,
    and the next gradient reuses memory that the kernel need not clear. Small gradients are taken together at the end,
    because a call for each would cost more, unless an exchange waits for them. Some models finish a gradient several
    times (re-entrant checkpoints). The first shard of a process only tests for that, and such a model leaves all to the
    end.
    """

    def __init__(self, gradients: Gradients, contribution: Contribution) -> None:
        self.contribution = contribution
        self._gradients = gradients
        self._contribution = contribution.of_gradients
        self._count = len(gradients.layout.parameters)
        self._taken: set[int] = set()
        self._present: set[int] = set()

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Watch a backward pass."""
        gradients = self._gradients
        if self._contribution.leave:
            yield
            return
        if gradients.single_arrivals is not None:
            least = 0 if self._contribution.settled is not None else gradients.least
            with gradients.watched(self._arrived, least) if gradients.single_arrivals else nullcontext():
                yield
            return
        seen: list[int] = []
        with gradients.watched(partial(self._seen, seen) if self._contribution.practice else seen.append, 0):
            yield
        gradients.single_arrivals = len(seen) == len(set(seen))
        gradients.unwatch(gradients.least if gradients.single_arrivals else sys.maxsize)

    def rest(self) -> tuple[bool, ...]:
        """Take the gradients that are left. Return which parameters have a gradient."""
        taken = self._taken
        missing = [number for number in range(self._count) if number not in taken] if taken else range(self._count)
        parameters = self._gradients.layout.parameters
        absent = {number for number in missing if parameters[number].grad is None}
        present = self._gradients.all_present
        if absent:
            present = tuple(number not in absent for number in range(self._count))
        if self._contribution.leave:
            return present
        with torch.no_grad():
            self._gradients.take(missing, self._contribution)
        if self._contribution.settled is not None:
            for number in missing:
                self._contribution.settled(number)
        return present

    def _seen(self, seen: list[int], number: int) -> None:
        """Take a gradient in a practice shard, even if the pass may add to that gradient again."""
        seen.append(number)
        self._take(number)

    def _arrived(self, number: int) -> None:
        if number in self._taken:
            raise Unprocessable(
                f"The gradient of {self._gradients.layout.names[number]} was finished twice in one backward pass.",
                hint="Use torch.utils.checkpoint with use_reentrant=False.",
                field="model",
            )
        self._take(number)
        if self._contribution.settled is not None:
            self._contribution.settled(number)

    def _take(self, number: int) -> None:
        self._taken.add(number)
        self._gradients.take_one(number, self._contribution)  # a backward pass has switched autograd off
        # Free the memory now, so that the next gradient of this pass reuses it while it is in the cache.
        self._gradients.layout.parameters[number].grad = None


def give(views: Sequence[Tensor], values: list[Tensor], contribution: Contribution) -> None:
    """Copy or add the values into the views, times the weight, computed in the number type of the views."""
    if not values:
        return
    if len(values) == 1 and contribution.weight == 1:
        views[0].add_(values[0]) if contribution.add else views[0].copy_(values[0])
        return
    if contribution.weight != 1:
        # The weight is applied in the type of the view: half precision would round before the sum.
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
