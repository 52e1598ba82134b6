"""Define what a script holds of its training: the run, and each of its updates.

The script keeps its own loop. It takes epochs and updates from the run, computes the parts of an update that are this
worker's just now, and steps its optimizers itself. Before the step, gradients are summed over all parts in a fixed
order. So all workers step with the same bits, and these do not depend on their number.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from edt_sdk.elastic.batches import Section, Sections
from edt_sdk.elastic.evaluation import Evaluation, test_line
from edt_sdk.elastic.place import ENDED
from edt_sdk.elastic.sides import Among, LoopEngine, Moved, Side
from edt_sdk.elastic.things import Things
from edt_sdk.schemas.errors import Conflict, InvalidRequest, Unprocessable
from edt_sdk.schemas.job import DEFAULT_SHARDS
from edt_sdk.training.checkpoints import model_files
from edt_sdk.training.exchange.blocks import blocks
from edt_sdk.training.sampling.order import TrainStep
from edt_sdk.training.sampling.seeds import derive, preserved, set_states
from edt_sdk.training.state.nested import to_device
from edt_sdk.training.update.loader import Batch
from edt_sdk.training.update.optimizer_step import draws_nothing
from edt_sdk.training.update.update import Committed, ShardPart, weighted_loss
from edt_sdk.training.update.user_functions import plain

if TYPE_CHECKING:
    from edt_sdk.elastic.divided_model import DividedModel

T = TypeVar("T")


class ElasticRun:
    """Holds the training of a script.

    `elastic()` makes it. In a job each worker runs the script from its top. A worker that joins later skips what is
    done: `epochs` and `updates` go to the running one, and `evaluate` returns what it returned.
    """

    def __init__(
        self,
        things: Things,
        side: Side,
        engine: LoopEngine,
        *,
        seed: int,
        folder: Path,
        divided: DividedModel | None = None,
    ) -> None:
        self._things = things
        self._divided = divided
        self._side = side
        self._engine = engine
        self._seed = seed
        self._folder = folder
        self._sections = Sections(seed)
        self._epochs = 0
        self._first = 0  # call of the running section
        self._planned: tuple[Any, ...] = ()  # order, loader, section and group of the last plan

    # --- where the run is ---------------------------------------------------------------------------------------------

    @property
    def first(self) -> bool:
        """Return whether this worker writes files and prints: True in exactly one worker of a job, and outside a job.

        Ask again each time: another worker may be the first one later.
        """
        return self._side.first

    @property
    def device(self) -> torch.device:
        """Return the device of this worker. `elastic()` has moved the models to it, and batches come on it."""
        return self._engine.device

    @property
    def update(self) -> int:
        """Return the number of updates that are done."""
        return self._side.current.updates

    @property
    def loss(self) -> float:
        """Return the mean of the losses over the samples of this epoch so far, the same in every worker.

        NaN before its first update.
        """
        totals = self._side.current.epoch
        return totals.loss if totals.samples else float("nan")

    @property
    def epoch(self) -> int:
        """Return the running epoch, from 0."""
        return max(0, self._side.current.place.epoch)

    @property
    def arriving(self) -> bool:
        """Return whether this worker has joined, and skips what is done. Its state is not yet that of the others."""
        return self._side.target is not None

    # --- the loop -----------------------------------------------------------------------------------------------------

    def epochs(self, count: int, *, start: int = 0) -> Iterator[int]:
        """Yield the epochs of a training, from 0. Leave the loop by `break` to stop early.

        Args:
            count: ≥ 1.
            start: the first epoch, for a script that goes on from a checkpoint of its own.
        """
        if count < 1:
            raise InvalidRequest(f"epochs() needs at least 1, not {count}.", field="epochs")
        self._epochs = self._side.current.epochs = count
        first, epoch = self._side.current.place.calls, start
        try:
            while True:
                self._side.meet()
                place, target = self._side.current.place, self._side.target
                if target is not None and first in target.loops:
                    place.calls, place.updates = target.loops[first]
                    return
                if target is not None and target.epoch_call > place.calls:
                    epoch, place.calls, place.updates = target.epoch, target.epoch_call, target.epoch_updates
                if epoch < count:
                    self._side.current.begin_epoch(epoch, start)
                if self._side.ready() is not None:
                    set_states(derive(self._seed, "epoch", epoch))
                self._called()
                if epoch >= count:
                    return
                yield epoch
                epoch += 1
        finally:
            self._side.current.place.end_epochs(first)

    def updates(
        self,
        dataset: Any,
        *,
        batch: int | None = None,
        shards: int | None = None,
        sampler: Any = None,
        collate: Callable[[list[Any]], Any] | None = None,
        loader_workers: int = 0,
        steps: int | None = None,
        start: int = 0,
    ) -> Iterator[Update]:
        """Yield the updates of one pass over a data set, or `steps` of them.

        Args:
            dataset: map-style (`__getitem__`, `__len__`), or a `DataLoader`, of which all is taken that is not given.
            batch: samples of an update, whatever the number of workers.
            shards: parts of a batch, and most workers. Default: 8, or `batch` if that is less.
            sampler: a `torch.utils.data.Sampler`, or a weight for each sample. It is asked once a pass, with the same
                random numbers in each worker. Default: each sample once, in another order each pass.
            collate: list of samples → batch. Default: torch's.
            loader_workers: processes that load samples for each worker.
            steps: updates, over as many passes as they need. Default: one pass.
            start: the first of them, for a script that goes on from a checkpoint of its own.

        Raises:
            InvalidRequest, Unprocessable: an argument is not valid.
        """
        first_pass = self._side.current.place.next_pass()

        def open_section() -> Section:
            return self._sections.open(
                dataset, batch=batch, shards=shards, sampler=sampler, collate=collate, loader_workers=loader_workers,
                steps=steps, first_pass=first_pass,
            )  # fmt: skip

        section = open_section()
        self._side.opened(section.shards, section.steps, self._epochs)
        self._side.meet()
        first, index = self._side.current.place.calls, start
        self._first = first
        try:
            while index < section.steps:
                place, target = self._side.current.place, self._side.target
                if target is not None and (there := target.sections.get(first)) is not None:
                    if there[0] == ENDED:
                        _, place.calls, place.updates = there
                        return
                    if there[0] > index:
                        index, place.calls, place.updates = there
                place.begin_update(first, index)
                update = Update(self, open_section, index)
                yield update
                update.check()
                section = update.section
                index += 1
        finally:
            place = self._side.current.place
            place.sections[first] = ENDED, place.calls, place.updates

    def evaluate(
        self,
        dataset: Any,
        function: Callable[[Any], Any],
        *,
        batch: int | None = None,
        shards: int | None = None,
        collate: Callable[[list[Any]], Any] | None = None,
        loader_workers: int = 0,
        name: str = "",
    ) -> Any:
        """Return the mean of a function over a data set, the same in every worker. The workers share the work.

        Args:
            dataset: map-style, or a `DataLoader`.
            function: `function(batch)` → a number or a tensor with one, the mean over the batch's samples, or a
                dictionary of them. Called without gradients and with all models in evaluation mode. A pair (sum,
                weight) in place of a number is a mean over something else than samples.
            batch: samples of a call of the function, at most. Default: 64.
            shards: parts that the workers share at once, 8 by default.
            collate: as for `updates`.
            loader_workers: as for `updates`.
            name: of the evaluation in the job's metrics. Give each of several its own. The job's figures draw the one
                that comes first.
        """
        shards = shards or DEFAULT_SHARDS
        evaluation = Evaluation(
            self._sections.test(dataset, batch=batch, shards=shards, collate=collate, loader_workers=loader_workers),
            function,
            self._things.model,
            self._engine.device,
            self._seed,
            alike=self._divided is not None,
        )
        self._side.opened(None, 0, self._epochs)
        result = self._together(lambda among: evaluation.together(among, self._side.loading(evaluation.loader)))
        self.tested(result, name)
        return result

    def tested(self, result: Any, name: str = "") -> None:
        """Record a result that all workers have, as `evaluate` records its own: a number, or a dictionary of them."""
        place = self._side.current.place
        self._side.current.has_tested(test_line(result, place.name(name), place))
        self._side.tested()

    def once(self, function: Callable[..., Any], *arguments: Any, keep: bool = True) -> Any:
        """Return what a function returns, which one worker calls for all. The result must be picklable.

        A function that takes minutes calls `alive` now and then. With `keep=False` the result is not kept for workers
        that join, and those that skip this call get None. All workers call it where the model is sharded, because none
        has the whole model. The result is the first one's.
        """

        def call(among: Among) -> Any:
            self.alive()
            first, alike = among.rank == 0, self._divided is not None
            own = pickle.dumps(function(*arguments)) if first or alike else None
            return pickle.loads(among.group.broadcast_bytes(own if first else None, 0))

        self._side.opened(None, 0, self._epochs)
        return self._together(call, keep=keep)

    def note(self, function: Callable[[], T]) -> T:
        """Return what a function returns, which each worker calls for itself. A joiner gets what the others noted.

        So a worker that joins knows what the state was here, before it takes the newest state further on.
        """
        return self._together(lambda among: function())  # type: ignore[no-any-return]

    def alive(self) -> None:
        """Report that this worker computes: a worker that reports nothing for very long is taken for one that hangs."""
        self._side.alive()

    def save_best(
        self, score: float, model: nn.Module | None = None, *, lower: bool = False, name: str = "best"
    ) -> bool:
        """Write the weights of a model as `<name>.pth` if the score is the best one so far. Return whether it is.

        Args:
            score: a higher one is better.
            lower: a lower one is better.
            model: default: the one that `elastic()` was given as `model`.
            name: of the file in the job's model folder, outside a job in the working directory.
        """
        best = self._side.current.place.best
        if name in best and not (score < best[name] if lower else score > best[name]):
            return False
        best[name] = float(score)
        path, chosen = self._folder / f"{name}.pth", self._things.main if model is None else model
        if (divided := self._divided) is not None:

            def call(among: Among) -> None:
                weights = divided.whole(among.group, chosen)
                if among.rank == 0:
                    model_files.write_weights(path, weights)

            self._together(call)
        elif self._side.target is None and self.first:
            model_files.save_weights(path, chosen)
        return True

    # --- the loop of a framework --------------------------------------------------------------------------------------
    #
    # Its updates are all alike, and all that is between them has a state. So a worker that joins, or that has missed
    # the end of an update, takes the state of the others at its next `arrive`, wherever they are. It skips nothing.

    def begin(self, shards: int | None, updates: int, epochs: int) -> bool:
        """Begin with the other workers. Return False in a worker that finds the training running.

        Args:
            shards: as for `updates`.
            updates: of an epoch, for the progress.
            epochs: of the training, for the progress. 0 where they are not known.
        """
        side = self._side
        self._epochs = side.current.epochs = epochs
        side.opened(shards, updates, epochs)
        side.meet()
        begins = (side.target is None or side.target.calls == 0) and side.ready() is not None
        if begins:
            self._called()
        side.jumps = True
        return begins

    def arrive(self) -> None:
        """Be among the members of the next update, with their state."""
        self._side.ready()

    def at(self, dataset: Any, *, epoch: int, index: int, steps: int, **options: Any) -> Update:
        """Return update `index` of `steps` in an epoch. Other arguments as for `updates`."""
        current = self._side.current
        if current.place.epoch != epoch:
            current.begin_epoch(epoch, epoch if current.place.epoch < 0 else 0)
        current.place.passes.clear()
        self._first = epoch
        return Update(self, lambda: self._sections.open(dataset, steps=steps, first_pass=epoch, **options), index)

    def end(self) -> None:
        """Wait until all workers are at the end of the training. No worker joins after it."""
        side, calls = self._side, self._side.current.place.calls
        side.current.place.over = True
        among = side.ready()
        while among is not None and side.current.place.calls == calls:
            with side.attempt():
                among.group.barrier()
            if not side.broke:
                self._called()
                return
            among = side.recover()

    def _plan(self, section: Section, index: int, block: range, among: Among) -> None:
        """Announce what this worker will load, where that has changed."""
        plan = section.order, section.loader, self._first, among.group
        if plan != self._planned:
            self._planned = plan
            section.loader.plan(section.keys(index, block, self._side.current.updates))

    def check_trained(self, parameters: list[Tensor]) -> None:
        """Raise where a parameter wants a gradient, and has none: it was frozen or unknown at the beginning."""
        strange = {id(p) for p in parameters if p.requires_grad and id(p) not in self._engine.trained}
        if strange:
            names = [name for name, p in self._things.model.named_parameters() if id(p) in strange]
            raise Unprocessable(
                f"{', '.join(names[:5])} needed no gradient when elastic() was called, and would not be trained.",
                hint="Call elastic() before requires_grad_(False), with an optimizer that has all parameters that are "
                "ever trained.",
                field="optimizer",
            )

    # --- calls of the engine ------------------------------------------------------------------------------------------

    def _called(self) -> None:
        self._side.current.place.calls += 1

    def _together(self, call: Callable[[Among], Any], *, keep: bool = True) -> Any:
        """Make a call with the other members, and remember its result for those who join."""
        among = self._side.ready()
        while among is not None:
            with self._side.attempt():
                result = call(among)
            if not self._side.broke:
                place = self._side.current.place
                place.results[place.calls] = pickle.dumps(result if keep else None)
                # Only some workers may have drawn random numbers in the call.
                set_states(derive(self._seed, "after", place.calls))
                self._called()
                return result
            among = self._side.recover()
        assert self._side.target is not None, "a call is skipped on the way to the others"
        result = pickle.loads(self._side.target.results[self._side.current.place.calls])
        self._called()
        return result


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
