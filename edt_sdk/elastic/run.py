"""Define what a script holds of its training: the run, from which it takes epochs and updates.

The script keeps its own loop. It computes the parts of an update that are this worker's just now, and steps its
optimizers itself (`update.py`).
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor, nn

from edt_sdk.elastic.batches import Section, Sections
from edt_sdk.elastic.evaluation import Evaluation, test_line
from edt_sdk.elastic.place import ENDED
from edt_sdk.elastic.sides import Among, LoopEngine, Side
from edt_sdk.elastic.things import Things
from edt_sdk.elastic.update import Update
from edt_sdk.schemas.errors import InvalidRequest, Unprocessable
from edt_sdk.schemas.job import DEFAULT_SHARDS
from edt_sdk.training.checkpoints import model_files
from edt_sdk.training.sampling.seeds import derive, set_states

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
