"""Run an update from start to end: the facade of the numeric core, used by the loop.

`compute` runs this rank's shards, sums their gradients, and may start to exchange them. It leaves the model unchanged.
`commit` waits for all data before it touches the model: combined gradients, clipping, `optimizer.step()`, buffers. So
an update that fails before that has changed nothing and is recomputed. `evaluate` is a step of the validation.

Every rank that calls `commit` ends with the same bits. In mode `exact` they do not depend on the number of ranks. Mode
`fast` differs in two places only: a rank's backward passes accumulate in `.grad`, one after the other, and the ranks'
sums are added in the fastest order. Samples, random states, buffers and records are the same. Random states between
updates are not part of any state (decision 032). This module never chooses the members and never writes a file.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor, nn

from edt_sdk.schemas.errors import Unprocessable
from edt_sdk.training.exchange import reduction_plan as moves
from edt_sdk.training.exchange.blocks import blocks
from edt_sdk.training.exchange.buffer_sync import Others
from edt_sdk.training.exchange.group import Group
from edt_sdk.training.exchange.group_exchange import Exchange
from edt_sdk.training.exchange.header import Header, ShardStats, Summary
from edt_sdk.training.exchange.header import exchange as exchange_records
from edt_sdk.training.exchange.layout import Flat, Layout
from edt_sdk.training.exchange.reduction_plan import ReductionPlan
from edt_sdk.training.exchange.strategy import AnyExchange, Exchanges, Vectors
from edt_sdk.training.sampling.order import BatchKey, Order, TestOrder, TestStep, TrainStep
from edt_sdk.training.sampling.seeds import derive, preserved, set_states
from edt_sdk.training.state.pickling import all_optimizers
from edt_sdk.training.state.preallocation import release_freed, space_for_state
from edt_sdk.training.state.several_optimizers import separate
from edt_sdk.training.update.buffers import Buffers
from edt_sdk.training.update.gradients import Arrivals, Contribution
from edt_sdk.training.update.loader import Batch
from edt_sdk.training.update.not_a_number import LossGuard
from edt_sdk.training.update.optimizer_step import OptimizerStep, check_step
from edt_sdk.training.update.remarks import label_remarks, remarks
from edt_sdk.training.update.reports import Reports
from edt_sdk.training.update.self_check import Fingerprints, SelfCheck
from edt_sdk.training.update.shard import ShardOutcome, ShardRunner
from edt_sdk.training.update.user_functions import LossFunction, Metric, Observer, StepFunction, metric_names

log = logging.getLogger(__name__)

# What a loop of one's own reports of a shard in place of metrics: its weight, and whether it keeps something.
WEIGHT, KEPT = "weight", "kept"
# Of loops that say only later how many there are.
MOST_SHARDS = 64

__all__ = ["Committed", "Loader", "ShardStats", "TestStep", "TrainStep", "UpdateEngine"]


class Loader(Protocol):
    """Provides batches. See `loader.ShardLoader`."""

    def take(self, key: BatchKey) -> Batch:
        """Return the batch of a key."""


@dataclass(frozen=True, slots=True)
class Committed:
    """Holds what all members know after a step.

    Attributes:
        stats: every shard that had samples, of all ranks, in shard order.
        pending: the smallest `pending` that any rank passed.
    """

    stats: tuple[ShardStats, ...]
    pending: int


@dataclass(frozen=True, slots=True)
class _Computed:
    """Keeps an update between `compute` and `commit`. `left`: `.grad` holds the sums of all gradients."""

    step: TrainStep
    block: range
    outcomes: tuple[ShardOutcome, ...]
    plan: ReductionPlan
    vectors: list[Flat]
    pool: Vectors
    group: Group | None
    exchange: AnyExchange | None
    loader: Loader
    left: bool = False


@dataclass(frozen=True, slots=True)
class GatheredUpdate:
    """Keeps an update between `gather` and `settle`."""

    computed: _Computed
    summary: Summary
    combined: Flat
    others: dict[int, Tensor]


@dataclass(slots=True)
class ShardPart:
    """Holds a shard to compute, as `ShardRunner` takes it, and its outcome once it is computed."""

    shard: int
    batch: Batch
    seed: int
    contribution: Contribution
    outcome: ShardOutcome | None = None
    arrivals: Arrivals | None = None


class UpdateEngine:
    """Computes and commits the updates of a model.

    The model is moved to `device`, and the state of the optimizer with it. A model that is in evaluation mode as a
    whole is put into training mode. Parts that the user set to evaluation mode keep it. The optimizer may have some of
    the model's parameters. Dropout and other draws are seeded with (seed, update, shard). `clip_grad_norm` is the
    largest norm of the combined gradient. `evaluate` needs `test_order`. `mode` is "exact" or "fast", and `nan_loss`,
    about a loss that is not finite, "warn" or "stop". `fingerprints` is for the self-check of mode "exact", see
    `self_check.py`. `same_collate`: the validation uses the training's own collate function.

    Without a `loss_function`, a loop that is not the engine's computes the shards (`parts`, `begin`, `end`), steps the
    optimizers, and tells the `order` by `use`. `shards` is what it expects.

    Raises:
        Unprocessable: nothing to train, lazy parameters, or an optimizer that needs a closure.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        loss_function: LossFunction | None,
        *,
        order: Order | None,
        seed: int,
        device: torch.device | str,
        fn_step_train: StepFunction | None = None,
        metrics: Sequence[Metric] = (),
        clip_grad_norm: float | None = None,
        worker: int = 0,
        test_order: TestOrder | None = None,
        mode: str = "exact",
        nan_loss: str = "warn",
        fingerprints: Fingerprints = dict,
        same_collate: bool = False,
        shards: int = MOST_SHARDS,
    ) -> None:
        self.device = torch.device(device)
        self._model = model
        self._optimizer = optimizer
        self._own_loop = loss_function is None
        self._test_order = test_order
        self._seed = seed
        names = (WEIGHT, KEPT) if self._own_loop else metric_names(metrics)
        for each in separate(optimizer):
            check_step(each)
        if isinstance(loss_function, nn.Module):
            loss_function.to(self.device)
        if not model.training:
            model.train()
        model.to(self.device)
        if self.device.type != "cpu":
            for each in all_optimizers(optimizer):
                each.load_state_dict(each.state_dict())  # moves the state to the device of the parameters
        self._layout = Layout(model, optimizer, MOST_SHARDS if order is None else order.number_of_shards)
        self._trained = frozenset(map(id, self._layout.parameters))
        self._worker = worker
        self._said: set[str] = set()
        self._settled = False
        self._space: list[Tensor] = []
        self._shards = shards
        if order is not None:
            self.use(order)
        self._buffers = Buffers(self._layout)
        self._optimizer_step = OptimizerStep(optimizer, self._layout, self._buffers, seed, clip_grad_norm)
        self._runner = ShardRunner(
            model,
            optimizer,
            loss_function,
            layout=self._layout,
            buffers=self._buffers,
            device=self.device,
            fn_step_train=fn_step_train,
            metrics=metrics,
        )
        self._others = Others(self._layout)
        self._train_header = Header(
            names,
            parameters=len(self._layout.parameters),
            floats=len(self._layout.floats),
            others=len(self._layout.others),
            small=self._others.small_bytes,
        )
        self._test_header = Header(names)
        self._reports = Reports(self._layout, self._others, worker, names)
        self._fast = mode == "fast"
        self._guard = LossGuard(stop=nan_loss == "stop")
        self._exchanges = Exchanges(self._layout, fast=self._fast)
        self._self_check = SelfCheck(fingerprints)
        self._mixes_tests = same_collate and test_order is not None and test_order.steps > 0
        self._computed: _Computed | None = None

    def use(self, order: Order) -> None:
        """Take the samples of the next updates from this order."""
        if order is getattr(self, "_order", None):
            return  # a loop of one's own tells it for each update
        self._order = order
        self._shards = order.number_of_shards
        # All workers would log the same lines.
        if self._worker == 0:
            optimized = {id(p) for group in self._optimizer.param_groups for p in group["params"]}
            self._say(remarks(self._model, self._layout, order, own_loop=self._own_loop, optimized=optimized))

    @property
    def inexact(self) -> str:
        """Return a sentence that says why the weights depend on the number of workers, "" while nothing was found."""
        return self._self_check.found

    @property
    def trained(self) -> frozenset[int]:
        """Return the ids of the parameters whose gradients members exchange."""
        return self._trained

    @property
    def gradient_bytes(self) -> int:
        """Return the most bytes that members exchange in an update, the same for all members."""
        return self._layout.nbytes

    def compute(
        self, step: TrainStep, block: range, loader: Loader, group: Group | None = None, *, practice: bool = False
    ) -> None:
        """Run forward and backward of the shards in `block` and sum their gradients. The model stays unchanged.

        With the group that `commit` will get, gradients are sent during the backward pass of the last shard. A second
        call discards the first, including its transfers. That is how an update is recomputed in another group after its
        commit failed.

        `block` are this rank's shards. The result of a `practice` is discarded, not committed.

        Raises:
            RuntimeError: a member is gone.
        """
        with closing(self.parts(step, block, loader, group, practice=practice)) as parts:
            for part in parts:
                part.outcome = self._runner.train(
                    part.shard, part.batch, seed=part.seed, contribution=part.contribution
                )

    def parts(
        self,
        step: TrainStep,
        block: range,
        loader: Loader,
        group: Group | None = None,
        *,
        practice: bool = False,
        again: int = 0,
    ) -> Generator[ShardPart]:
        """Yield the shards in `block` one after the other. The caller computes each and sets its `outcome`.

        This is `compute` turned inside out, for a loop that is not the engine's. Close the generator if a shard fails.
        A loop may go over the samples of a step `again`, with other random numbers each time.
        """
        self._forget()
        if group is not None:
            self._check_block(block, group)
        counts = self._order.samples_of(step.epoch, step.update_in_epoch)
        unit = self._exchanges.unit(counts)
        filled = tuple(count > 0 for count in counts)
        plan = moves.in_one(block, filled) if self._fast else moves.in_tree(block, filled)
        pool = self._exchanges.vectors(group)
        vectors = [pool.take() for _ in range(max(1, plan.vectors))]
        if not plan.moves and self._fast:  # this rank has nothing to add, but takes part in the all-reduce
            for section in vectors[0].sections:
                section.zero_()
        computed = _Computed(step, block, (), plan, vectors, pool, group, None, loader)
        # Autograd sums shards of equal size. Weighted ones would need a multiplication after the user's own tensor
        # hooks. A single member then has the sum where the optimizer reads it, and needs no vector (decision 032).
        # A loop of one's own may weigh shards otherwise.
        adding_up = (
            self._fast and self._runner.leaves and not self._own_loop and len({count for count in counts if count}) == 1
        )
        left = adding_up and group is not None and group.world == 1
        if left:
            computed = replace(computed, left=True)
        elif group is not None:
            computed = replace(computed, exchange=self._exchanges.between(group, counts, vectors, plan.sums))
        # Stored before the shards run, so that `_forget` finds the vectors and the exchange if a shard raises.
        self._computed = computed
        outcomes: list[ShardOutcome] = []
        with self._same_buffers(keep_gradients=left):
            keys = {key.shard: key for key in self._order.keys(step, block)}
            for number, move in enumerate(plan.moves):
                contribution = Contribution(
                    vectors[move.into],
                    counts[move.shard] / unit,
                    move.add,
                    practice=practice,
                    follows=number > 0,
                    left=adding_up and number > 0,
                    leave=left or (adding_up and move is not plan.moves[-1]),
                )
                # Only the last shard overlaps with transfers: entries are final when no other shard of this rank adds
                # to them.
                if move is plan.moves[-1] and computed.exchange is not None:
                    contribution.settled = computed.exchange.follow(move)
                seed = derive(self._seed, "train-shard", step.update, move.shard, *([again] if again else []))
                # Loaded before the random states of the shard are set, so that loading cannot disturb them.
                batch = loader.take(keys[move.shard])
                if step.update == 0 and block.start == 0 and not practice and not self._own_loop:
                    self._remark(batch)
                part = ShardPart(move.shard, batch, seed, contribution)
                yield part
                assert part.outcome is not None, "the caller computes each shard"
                outcomes.append(part.outcome)
                # Otherwise the exchange merges, piece by piece, before it sends (`Exchange.follow`).
                if contribution.settled is None:
                    for target, other in move.merges:
                        vectors[target] += vectors[other]
        if computed.exchange is not None:
            computed.exchange.start_all()
        self._computed = replace(computed, outcomes=tuple(outcomes))

    def begin(self, part: ShardPart) -> None:
        """Prepare for the forward pass of a part. Backward passes may follow, and then `end`."""
        part.arrivals = self._runner.begin(part.seed, part.contribution)

    def backward(self, part: ShardPart, loss: Tensor, weight: float | None) -> None:
        """Compute the gradients of a loss of a part. A loss without weight may be a NaN."""
        if weight != 0:
            loss.backward()  # type: ignore[no-untyped-call]

    def end(self, part: ShardPart, loss: float, correct: float | None, *, weight: float | None, kept: bool) -> None:
        """Take the gradients of a part. `weight` is what its loss is a mean over, None for its samples."""
        if weight is not None:
            # In the same unit (`Exchanges.unit`) as the weight by samples, which other parts may have.
            part.contribution.weight *= float(weight) / len(part.batch.indices)
        own = part.contribution.weight
        assert part.arrivals is not None, "a part begins before it ends"
        part.outcome = self._runner.end(
            part.shard, part.batch, part.arrivals, loss, correct, metrics=lambda: (own, float(kept))
        )

    def rehearse(self, loader: Loader) -> None:
        """Compute a shard and discard it, so that the first update of this process is not slower than the others.

        Kernels are chosen and memory is laid out. Model, buffers and random states stay as they were.
        """
        # Before the practice shard: gradients then find the same free memory next to the optimizer's state as later
        # (decision 025).
        self._space = space_for_state(self._optimizer)
        with preserved():
            self.compute(TrainStep(0, 0, 0), range(1), loader, practice=True)
        self._forget()

    def space(self) -> list[Tensor]:
        """Return the memory that the rehearsal reserved for the optimizer's state. The caller owns it from now on."""
        space, self._space = self._space, []
        return space

    def expect(self, rank: int, world: int) -> None:
        """Allocate memory for the updates of a member with this rank. Runs in another thread than the training."""
        filled = (True,) * self._shards
        block = blocks(self._shards, world)[rank]
        plan = moves.in_one(block, filled) if self._fast else moves.in_tree(block, filled)
        self._exchanges.expect(max(1, plan.vectors))

    def meet(self, group: Group) -> None:
        """Open the other members' windows before the first update with them. See `Exchanges.meet`."""
        self._exchanges.meet(group)

    def commit(self, group: Group, *, pending: int) -> Committed:
        """Exchange, combine and step the optimizer. The computed update becomes part of the model on every rank.

        All members learn the smallest `pending`: any int, such as the newest generation that a rank knows.

        Raises:
            RuntimeError: a member is gone. The model is unchanged. Compute again, in another group.
            Unprocessable: a loss is not finite, and the training must stop. The model is unchanged.
        """
        gathered = self.gather(group, pending=pending)
        self._optimizer_step.apply(gathered.computed.step.update)
        return self.settle(gathered)

    def gather(self, group: Group, *, pending: int) -> GatheredUpdate:
        """Exchange and combine: the first part of `commit`. Only `.grad` changes: it holds the combined gradients."""
        computed, self._computed = self._computed, None
        # Taken out before any transfer: if one fails, the loop computes the update again and never commits this one
        # twice.
        if computed is None:
            raise ValueError("commit without compute")
        self._check_block(computed.block, group)
        step = computed.step
        counts = self._order.samples_of(step.epoch, step.update_in_epoch)
        exchange = computed.exchange
        # Started transfers belong to the group of `compute`. In another group they would pair with those of another
        # update.
        if (computed.left or exchange is not None) and computed.group is not group:
            raise ValueError("commit with another group than compute")
        if exchange is None and not computed.left:
            exchange = self._exchanges.between(group, counts, computed.vectors, computed.plan.sums)
            exchange.start_all()
        report = self._reports.of_update(computed.outcomes, pending, alone=group.world == 1)
        # Once the records of all members have arrived, the vectors of all members are final.
        summary = exchange_records(group, self._train_header, report, counts)
        combined = computed.vectors[0] if exchange is None else exchange.finish()
        # The last transfer of the update. It may raise, so it comes before any change of the model.
        others = self._others.receive(group, summary, computed.outcomes[0].others if group.rank == 0 else ())
        # All ranks see the same losses here, so all of them raise or none does.
        self._guard.check(step, summary.shards, speaker=group.rank == 0)
        if group.rank == 0 and not self._fast and not self._own_loop and self._self_check.due(step.update):
            self._check_again(computed, summary.shards)
        # All data has arrived. Nothing below waits for another member, so a death cannot leave a half-applied update.
        if exchange is None:
            divisor = self._exchanges.divisor(counts)
            self._runner.keep_gradients(divisor)
            self._optimizer_step.divide_buffers(combined, divisor)
        else:
            if self._own_loop:
                self._weigh(summary, combined, self._exchanges.divisor(counts))
            self._optimizer_step.take_gradients(summary, combined)
        return GatheredUpdate(computed, summary, combined, others)

    def _weigh(self, summary: Summary, combined: Flat, divisor: float) -> None:
        """Divide by the weights that a loop has given to the shards, where these are not their samples."""
        if (total := total_weight(summary.shards)) != divisor:
            torch._foreach_mul_(list(combined.sections), divisor / total)

    def clip(self, parameters: Sequence[Tensor], most: float) -> None:
        """Scale the gradients of parameters so that their norm together is at most `most`."""
        nn.utils.clip_grad_norm_(parameters, most)

    def settle(self, gathered: GatheredUpdate) -> Committed:
        """Write the new buffers into the model: the end of `commit`, after the optimizer's step."""
        self._optimizer_step.put_buffers(gathered.summary, gathered.combined, gathered.others)
        gathered.computed.pool.give_back(gathered.computed.vectors)
        if not self._settled:
            # What the process began with, and the gradients of its first shard, which were all there at once.
            self._settled = True
            release_freed()
        shards = gathered.summary.shards
        if self._own_loop:
            shards = tuple(replace(shard, metrics={}) for shard in shards)
        return Committed(shards, gathered.summary.pending)

    def _remark(self, batch: Batch) -> None:
        """Log what the labels of the first update show: a training that works, but perhaps not as intended."""
        labels = batch.data[1] if isinstance(batch.data, (tuple, list)) and len(batch.data) > 1 else None
        if isinstance(labels, Tensor):
            self._say(label_remarks(labels, mixes_tests=self._mixes_tests))

    def _say(self, lines: Iterable[str]) -> None:
        for line in [line for line in lines if line not in self._said]:
            self._said.add(line)
            log.info(line)

    def _check_again(self, computed: _Computed, shards: tuple[ShardStats, ...]) -> None:
        """Compute a shard of this update again, while the model is as it was for all of them."""
        chosen = self._self_check.choose(shards, computed.block)
        seed = derive(self._seed, "train-shard", computed.step.update, chosen.shard)

        def again() -> tuple[object, object]:
            with self._once_more(computed, chosen.shard, seed) as batch:
                return self._runner.again(batch, seed=seed)

        try:
            self._self_check.compare(computed.step.update, chosen, again, self._worker)
        except Exception as error:  # the user's code may raise anything, and the training itself has not failed
            log.info(
                "A part of update %d could not be computed again for comparison: %s", computed.step.update + 1, error
            )
        self._say_inexact()

    def second_look(
        self, gathered: GatheredUpdate, group: Group, *, again: int
    ) -> Generator[Batch, tuple[object, object], None]:
        """Yield batches that a loop of one's own computes once more, to compare the loss. It sends (loss, correct).

        Only rank 0 gets one, and only now and then. Gradients, buffers and random states stay as they are.
        """
        computed, shards = gathered.computed, gathered.summary.shards
        update = computed.step.update
        if group.rank != 0 or self._fast or again or not self._self_check.due(update):
            return
        chosen = self._self_check.choose(shards, computed.block)
        seed = derive(self._seed, "train-shard", update, chosen.shard)
        asking = self._self_check.asking(update, chosen, self._worker)
        next(asking)
        with contextlib.suppress(StopIteration):
            while True:
                with self._once_more(computed, chosen.shard, seed) as batch:
                    result = yield batch
                asking.send(result)
        self._say_inexact()

    @contextmanager
    def _once_more(self, computed: _Computed, shard: int, seed: int) -> Iterator[Batch]:
        """Have buffers and random states as a shard of this update finds them, in the block."""
        (key,) = self._order.keys(computed.step, range(shard, shard + 1))
        with preserved():
            self._buffers.save()
            batch = computed.loader.take(key)
            self._buffers.lend()
            set_states(seed)
            try:
                yield batch
            finally:
                self._buffers.restore()

    def _say_inexact(self) -> None:
        if self.inexact:
            log.warning("Not exact: %s", self.inexact)

    def _forget(self) -> None:
        """Discard a computed update. Vectors that transfers may still read and write are dropped with it."""
        computed, self._computed = self._computed, None
        # Vectors in a window are safe to reuse: a peer may read them, but cannot commit what it reads (decision 012).
        # Vectors in a transfer are not, because the library may still write into them.
        if computed is not None and not isinstance(computed.exchange, Exchange):
            computed.pool.give_back(computed.vectors)
        self._runner.clear_gradients()

    def evaluate(
        self,
        step: TestStep,
        block: range,
        loader: Loader,
        group: Group,
        *,
        pending: int,
        observe: Observer | None = None,
    ) -> Committed:
        """Run a step of the validation without gradients. The model, its mode and random states stay as they were.

        `observe` receives outputs and labels of each of this rank's batches, in shard order.
        """
        if self._test_order is None:
            raise ValueError("evaluate needs a test_order")
        self._check_block(block, group)
        counts = self._test_order.samples_of(step.index)
        outcomes = []
        with preserved(), self._same_buffers(), evaluation_mode(self._model):
            for key in self._test_order.keys(step, block):
                seed = derive(self._seed, "test-shard", step.index, key.shard)
                outcomes.append(self._runner.evaluate(key.shard, loader.take(key), seed=seed, observe=observe))
        summary = exchange_records(group, self._test_header, self._reports.of_test(outcomes, pending), counts)
        return Committed(summary.shards, summary.pending)

    @contextmanager
    def _same_buffers(self, *, keep_gradients: bool = False) -> Iterator[None]:
        self._buffers.save()
        try:
            yield
        except BaseException:
            # After an error the gradients are incomplete and must not reach the optimizer.
            keep_gradients = False
            raise
        finally:
            if not keep_gradients:
                self._runner.clear_gradients()
            self._buffers.restore()

    def _check_block(self, block: range, group: Group) -> None:
        if block != blocks(self._shards, group.world)[group.rank]:
            raise ValueError(f"{block} is not the block of rank {group.rank} of {group.world}")


def weighted_loss(shards: Iterable[ShardStats]) -> float:
    """Return the mean loss of an update of a loop of one's own, by the weights that it has given to the shards."""
    # A shard of no weight has no loss either: 0 tokens may make it a NaN.
    weighed = [(shard.metrics[WEIGHT], shard.loss) for shard in shards if shard.metrics[WEIGHT]]
    return sum(weight * loss for weight, loss in weighed) / sum(weight for weight, _ in weighed)


def total_weight(shards: Sequence[ShardStats]) -> float:
    """Return the sum of the weights that a loop has given to all shards of an update, the same in all members."""
    total = sum(shard.metrics[WEIGHT] for shard in shards)  # in their order
    if not total > 0:
        raise Unprocessable(
            f"The weights of an update's parts sum up to {total}.",
            hint="weight= of update.backward() is what a loss is a mean over: samples, or tokens without padding.",
            field="weight",
        )
    return total


@contextmanager
def evaluation_mode(model: nn.Module) -> Iterator[None]:
    """Have all modules in evaluation mode in the block."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training
