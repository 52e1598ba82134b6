"""Define an update of a script's training: its parts, their gradients, and the steps of the optimizers.

The parts that are this worker's just now are computed one after the other. At the end of the loop over them gradients
are summed over all parts in a fixed order, so that all workers step with the same bits.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor
from torch.optim import Optimizer

from edt_sdk.elastic.batches import Section
from edt_sdk.elastic.place import ENDED
from edt_sdk.elastic.sides import Among, Moved
from edt_sdk.schemas.errors import Conflict
from edt_sdk.training.exchange.blocks import blocks
from edt_sdk.training.sampling.order import TrainStep
from edt_sdk.training.sampling.seeds import derive, preserved, set_states
from edt_sdk.training.state.nested import to_device
from edt_sdk.training.update.loader import Batch
from edt_sdk.training.update.optimizer_step import draws_nothing
from edt_sdk.training.update.update import Committed, ShardPart, weighted_loss
from edt_sdk.training.update.user_functions import plain

if TYPE_CHECKING:
    from edt_sdk.elastic.run import ElasticRun

T = TypeVar("T")


class Update:
    """Represents an update of a run: iterate over it, call `backward` for each part, then `step`.

    To go over the same samples again, as with two networks that train in turn, iterate over it again after `step`.

    Attributes:
        number: of the update, from 0 over the whole training.
        index: of the update in its pass over the data set, or in its steps.
        loss: mean of the losses of all parts of the last iteration, by their weights, the same in each worker. NaN
            before.
    """

    def __init__(self, run: ElasticRun, section: Callable[[], Section], index: int) -> None:
        self._run = run
        self._open = section
        self._passes = 0
        self._part: ShardPart | None = None
        self._losses: list[Any] = []
        self._weight: float | None = None
        self._correct: float | None = None
        self._kept: dict[str, Any] = {}
        self._all_kept: dict[int, dict[str, Any]] = {}
        self._complete = False
        self._stepped = False
        self._checks = False  # a part is computed once more, for its loss alone
        self.index = index
        self.number = run._side.current.updates
        self.loss = float("nan")

    def __iter__(self) -> Iterator[Any]:
        """Yield the batches that are this worker's just now. Returns when the gradients of all workers are summed."""
        side, engine = self._run._side, self._run._engine
        self._complete = self._stepped = False
        again, self._passes = self._passes, self._passes + 1
        calls = side.current.place.calls
        among = side.ready()
        # Only now: a data set may have grown, in a worker that joins by the state that it has just got.
        section = self.section
        step = TrainStep(section.pass_of(self.index), section.index_in_pass(self.index), self.number)
        engine.use(section.order)
        while among is not None:
            self._all_kept = {}
            with side.attempt():
                block = blocks(section.shards, among.world)[among.rank]
                if again == 0:
                    self._run._plan(section, self.index, block, among)
                for part in engine.parts(step, block, side.loading(section.loader), among.group, again=again):
                    self._begin(part)
                    yield to_device(part.batch.data, engine.device)
                    self._end(part)
                gathered = engine.gather(among.group, pending=side.pending)
                look = engine.second_look(gathered, among.group, again=again)
                result = None
                while (batch := _sent(look, result)) is not None:
                    self._losses, self._correct, self._kept, self._checks = [], None, {}, True
                    yield to_device(batch.data, engine.device)
                    self._checks = False
                    result = sum(self._losses[1:], self._losses[0]), self._correct
                self._share(among, any(shard.metrics["kept"] for shard in gathered.summary.shards))
            if not side.broke:
                loss = weighted_loss(gathered.summary.shards)
                self._completed(step, engine.settle(gathered), loss, first=again == 0)
                return
            among = side.recover()
            self._moved(calls)
        place, target = side.current.place, side.target
        assert target is not None, "a pass is skipped on the way to the others"
        if place.calls in target.passes:
            self.loss, kept = target.passes[place.calls]
            self._all_kept = pickle.loads(kept) if kept else {}
        self._run._called()
        if again == 0:
            place.updates += 1
        for parameter in self._run._things.model.parameters():
            # Code between two passes may read it. What that does here is replaced by the state of the others.
            parameter.grad = torch.zeros_like(parameter) if parameter.requires_grad else None

    @property
    def section(self) -> Section:
        """Return the updates that it belongs to, over the data set as it is now."""
        return self._open()

    def backward(
        self, loss: Tensor, *, weight: float | None = None, correct: float | None = None, scaler: Any = None
    ) -> None:
        """Compute the gradients of a loss, which is the mean over the samples of this part.

        Args:
            loss: one number.
            weight: what the loss is a mean over, if not over the samples: for example tokens without padding. Where it
                is 0, the loss counts as 0, also if it is a NaN.
            correct: number of right answers in this part, for the accuracy in logs and figures.
            scaler: a `torch.amp.GradScaler` that was given to `elastic()`.
        """
        if self._part is None and not self._checks:
            raise Conflict(
                "update.backward() was called outside of `for … in update`.",
                hint="Call it inside that loop, once for each loss.",
            )
        weight = None if weight is None else plain(weight)
        if self._part is not None and not self._checks:
            own = self._weight if weight is None else weight
            self._run._engine.backward(self._part, loss if scaler is None else scaler.scale(loss), own)
        self.note(loss, weight=weight, correct=correct)

    @property
    def samples(self) -> int:
        """Return the number of samples of the running part, 0 between parts."""
        return 0 if self._part is None else len(self._part.batch.indices)

    @property
    def size(self) -> int:
        """Return the number of samples of all parts."""
        section = self.section
        return sum(section.order.samples_of(section.pass_of(self.index), section.index_in_pass(self.index)))

    @property
    def checks(self) -> bool:
        """Return whether the running part is computed once more, for its loss alone: see `self_check.py`."""
        return self._checks

    def note(self, loss: Tensor, *, weight: float | None = None, correct: float | None = None) -> None:
        """Take note of a loss, of which the caller computes the gradients. Arguments as for `backward`."""
        weight = None if weight is None else plain(weight)
        self._losses.append(torch.zeros_like(loss.detach()) if weight == 0 else loss.detach())
        if weight is not None:
            self._weight = weight
        if correct is not None:
            self._correct = correct if self._checks else plain(correct)

    def keep(self, name: str, value: T) -> T:
        """Keep something of this part, which `kept` returns for all parts after the loop. Return it as it is."""
        self._kept[name] = value.detach() if isinstance(value, Tensor) else value
        return value

    def kept(self, name: str) -> Any:
        """Return what was kept in all parts, of all workers, in the order of the parts: tensors joined, else a list."""
        values = [of_part[name] for _, of_part in sorted(self._all_kept.items()) if name in of_part]
        return torch.cat(values) if values and all(isinstance(value, Tensor) for value in values) else values

    def step(self, *optimizers: Optimizer, clip: float | None = None, scaler: Any = None) -> None:
        """Step the optimizers, by default all that `elastic()` was given.

        Args:
            *optimizers: some of those that `elastic()` was given.
            clip: greatest norm of the gradients of their parameters together.
            scaler: as for `backward`. Its scale is the same in all workers.
        """
        run = self._run
        self._stepped = True
        if not self._complete:
            if run._side.target is not None:
                return  # on the way to the others, which have made this step
            raise Conflict("update.step() comes after the loop over the update's parts.")
        stepped = optimizers or tuple(run._things.optimizers.values())
        parameters = [p for optimizer in stepped for group in optimizer.param_groups for p in group["params"]]
        run.check_trained(parameters)
        if scaler is not None:
            for optimizer in stepped:
                scaler.unscale_(optimizer)
        if clip is not None:
            run._engine.clip(parameters, clip)
        for optimizer in stepped:
            if isinstance(optimizer, torch.optim.SparseAdam):
                _make_sparse(optimizer)
            step = optimizer.step if scaler is None else lambda o=optimizer: scaler.step(o)
            if draws_nothing(optimizer):
                step()
                continue
            with preserved():
                set_states(derive(run._seed, "optimizer", self.number))
                step()
        if scaler is not None:
            scaler.update()

    @property
    def followed(self) -> bool:
        """Return whether the others have made more calls after this update, or are in one. For workers that skip it."""
        target, place = self._run._side.target, self._run._side.current.place
        if target is None:
            return False
        index, calls, _ = target.sections.get(self._run._first, (0, 0, 0))
        return calls > place.calls if index == ENDED else index == self.index

    def check(self) -> None:
        """Raise where the script has not used the update as it is meant to be."""
        if self._passes == 0:
            raise Conflict(
                "An update was taken from run.updates() and not iterated over.",
                hint="Loop over its parts: for x, y in update: …",
            )
        if not self._stepped and self._run._side.target is None:
            raise Conflict(
                "An update ended without update.step().", hint="Call update.step(optimizer) after the loop over it."
            )

    # --- parts --------------------------------------------------------------------------------------------------------

    def _moved(self, calls: int) -> None:
        if self._run._side.current.place.calls != calls:
            raise Moved

    def _begin(self, part: ShardPart) -> None:
        self._run._engine.begin(part)
        self._part = part
        self._losses, self._weight, self._correct, self._kept = [], None, None, {}

    def _end(self, part: ShardPart) -> None:
        if not self._losses:
            raise Conflict(
                "A part of an update had no update.backward().",
                hint="Call update.backward(loss) for each part, also where its loss is 0.",
            )
        loss = sum(self._losses[1:], self._losses[0])
        self._run._engine.end(part, loss, self._correct, weight=self._weight, kept=bool(self._kept))
        if self._kept:
            self._all_kept[part.shard] = self._kept
        self._part = None

    def _share(self, among: Among, kept: bool) -> None:
        """Give what was kept to the other members."""
        if kept and among.world > 1:
            for data in among.group.gather_bytes(pickle.dumps(self._all_kept)):
                self._all_kept.update(pickle.loads(data))

    def _completed(self, step: TrainStep, committed: Committed, loss: float, *, first: bool) -> None:
        run = self._run
        self.loss = loss
        place = run._side.current.place
        place.passes[place.calls] = self.loss, pickle.dumps(self._all_kept) if self._all_kept else b""
        self._complete = True
        set_states(derive(run._seed, "after", place.calls))
        run._called()
        if first:
            place.updates += 1
            run._side.committed(step, committed, self.section.shards)


def _sent(look: Generator[Batch, tuple[Any, Any], None], result: tuple[Any, Any] | None) -> Batch | None:
    """Return what a generator yields after it got a result, None at its end."""
    try:
        return next(look) if result is None else look.send(result)
    except StopIteration:
        return None


def _make_sparse(optimizer: Optimizer) -> None:
    """Give an optimizer for sparse gradients such ones: they were made dense to be summed in a fixed order."""
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if parameter.grad is not None and parameter.grad.layout is torch.strided:
                parameter.grad = parameter.grad.to_sparse(1)
