"""Compute Lightning's training steps part by part: what the loops get for a batch, and both kinds of optimization."""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

import torch
from lightning.pytorch.core.optimizer import do_nothing_closure
from lightning.pytorch.loops.optimization.automatic import Closure, ClosureResult
from torch import Tensor
from torch.optim import Optimizer
from torch.utils.data import DataLoader

from edt_sdk.elastic import Strand, Update, in_lockstep, order_of, updates_in
from edt_sdk.lightning.recording import PartRecorder, Recording, numbers_of
from edt_sdk.lightning.refusals import check_loader
from edt_sdk.schemas.errors import InvalidRequest, Unprocessable

if TYPE_CHECKING:
    from edt_sdk.lightning.strategy import ElasticStrategy


class WholeBatch:
    """Stands for the batch of an update, which no worker has as a whole. `training_step` gets its parts."""

    def __getitem__(self, _: Any) -> NoReturn:
        raise Unprocessable(
            "on_train_batch_start and on_train_batch_end get no batch: each worker has parts of it only.",
            hint="Look at the batch in training_step, and self.log() what you need.",
        )


class UpdateLoader:
    """Takes the place of a DataLoader of training data, whose parts the engine loads.

    Attributes:
        dataset: as given.
        options: of the updates, for `ElasticRun.at`.
    """

    def __init__(
        self, strategy: ElasticStrategy, loader: DataLoader[Any], batch: int | None, shards: int | None
    ) -> None:
        check_loader(loader)
        self._strategy = strategy
        self.dataset = loader.dataset
        batch = loader.batch_size if batch is None else batch
        assert batch is not None, "a loader with a batch sampler has a batch size"
        self.options: dict[str, Any] = {
            "batch": batch,
            "shards": shards,
            "sampler": order_of(loader),
            "collate": loader.collate_fn,
            "loader_workers": loader.num_workers,
        }
        samples = len(loader.sampler)  # type: ignore[arg-type]
        self._length = samples // batch if loader.drop_last else updates_in(samples, batch=batch, shards=shards)

    def __len__(self) -> int:
        """Return the number of updates in an epoch."""
        return self._length

    def __iter__(self) -> Iterator[WholeBatch]:
        """Yield one batch after the other. Lightning counts them."""
        while True:
            self._strategy.arrive()
            yield WholeBatch()


class LightningParts:
    """Calls a module's `training_step` for the parts of an update. All of them begin with the same attributes."""

    def __init__(self, strategy: ElasticStrategy, recorder: PartRecorder) -> None:
        self._strategy = strategy
        self._recorder = recorder
        self._trainer = strategy.lightning_module.trainer  # type: ignore[union-attr]

    def training_step(self, batch: Any, arguments: Mapping[str, Any], recording: Recording) -> Any:
        """Return what `training_step` returns for a part."""
        strategy, module = self._strategy, self._trainer.lightning_module
        strategy.catch_up()
        batch = strategy.precision_plugin.convert_input(batch)
        batch = module._on_before_batch_transfer(batch, dataloader_idx=0)
        batch = strategy.batch_to_device(batch, dataloader_idx=0)
        before = numbers_of(module)
        with self._recorder.on(recording):
            output = strategy.compute(*{**arguments, "batch": batch}.values())
        recording.numbers = {name: each for name, each in numbers_of(module).items() if before.get(name) != each}
        return output

    def done(self, update: Update) -> Tensor:
        """Give Lightning what all parts have logged. Return the mean loss."""
        recordings: list[Recording] = update.kept("recording")
        self._recorder.replay(recordings)
        # A worker may have had no part, and counts as the others do.
        vars(self._trainer.lightning_module).update(recordings[0].numbers)
        self._recorder.results.batch_size = update.size
        return torch.tensor(update.loss, device=self._strategy.root_device)


class AutomaticParts(LightningParts):
    """Makes an update of automatic optimization: one optimizer, and a loss that `training_step` returns."""

    def closure(self, arguments: OrderedDict[str, Any], optimizer: Optimizer, batch_idx: int) -> Closure:
        """Return what Lightning gives to the optimizer's step, in place of its own closure for a batch."""
        return Closure(step_fn=partial(self._whole, arguments, optimizer, batch_idx))

    def _whole(self, arguments: OrderedDict[str, Any], optimizer: Optimizer, batch_idx: int) -> ClosureResult:
        loop = self._trainer.fit_loop.epoch_loop.automatic_optimization
        if (zero := loop._make_zero_grad_fn(batch_idx, optimizer)) is not None:
            zero()
        update, own = self._strategy.update(), vars(self._trainer.lightning_module)
        before, metrics = dict(own), self._recorder.states()
        for batch in update:
            _put(own, before)
            self._recorder.put(metrics)
            recording = Recording(update.samples)
            output = self.training_step(batch, arguments, recording)
            loss, weight = _loss_of(output)
            update.note(loss, weight=weight)
            update.keep("recording", recording)
            if not update.checks:
                self._strategy.backward(loss, optimizer)
        self._recorder.put(metrics)
        return ClosureResult(self.done(update))


class ManualParts(LightningParts):
    """Makes an update of manual optimization, whose `training_step` steps optimizers itself."""

    def __init__(self, strategy: ElasticStrategy, recorder: PartRecorder) -> None:
        super().__init__(strategy, recorder)
        self._module = self._trainer.lightning_module
        self._parameters = list(self._module.parameters())
        self._loop = self._trainer.fit_loop.epoch_loop.manual_optimization
        self._strand: Strand | None = None
        self._arguments: Mapping[str, Any] = {}
        self._update: Update | None = None

    @property
    def computing(self) -> bool:
        """Return whether a part is computed."""
        return self._strand is not None

    def whole(self, *arguments: Any) -> dict[str, Any]:
        """Make an update, in place of `training_step` with its batch. Return the loss that logs and callbacks get."""
        self._arguments = dict(zip(("batch", "batch_idx"), arguments, strict=False))
        self._update = update = self._strategy.update()
        self._before, self._metrics = dict(vars(self._module)), self._recorder.states()
        self._wants = [parameter.requires_grad for parameter in self._parameters]
        self._last: _Own | None = None
        for each in self._strategy._lightning_optimizers:
            each._on_before_step = each._on_after_step = do_nothing_closure
        schedulers = [config.scheduler for config in self._strategy.lr_scheduler_configs]
        for number, scheduler in enumerate(schedulers):
            vars(scheduler)["step"] = self._later(number)
        try:
            in_lockstep(update, self)
        finally:
            for scheduler in schedulers:
                vars(scheduler).pop("step")
        if self._last is not None:
            assert self._last.attributes is not None, "it has ended"
            _put(vars(self._module), self._last.attributes)
        return {"loss": self.done(update)}

    # --- what a part calls --------------------------------------------------------------------------------------------

    def backward(self, loss: Tensor) -> None:
        """Take note of a backward pass of the running part."""
        assert self._strand is not None
        own: _Own = self._strand.own
        own.losses.append(loss.detach())
        own.versions, own.unstepped = self._versions(), True

    def pause(self, optimizer: Optimizer) -> None:
        """Wait with the step of the running part until all parts are there."""
        assert self._strand is not None
        assert self._update is not None
        own: _Own = self._strand.own
        if not own.losses:
            raise InvalidRequest(
                "An optimizer stepped before any backward pass.",
                hint="Call self.manual_backward(loss) before opt.step(), in the same training_step.",
            )
        changed = (None not in both and both[0] != both[1] for both in zip(own.versions, self._versions(), strict=True))
        if any(changed):
            raise InvalidRequest(
                "A part of a batch has changed its gradients before opt.step().",
                hint="Clip by self.clip_gradients(opt, …), and change gradients in on_before_optimizer_step.",
            )
        self._update.note(own.losses[-1])
        own.unstepped = False
        self._strand.pause((self._strategy.optimizers.index(optimizer), *own.taken()))

    def clip(self, *arguments: Any) -> None:
        """Clip when the gradients of all parts are there."""
        assert self._strand is not None
        optimizer, *rest = arguments
        number = self._strategy.optimizers.index(getattr(optimizer, "optimizer", optimizer))
        self._strand.own.clips.append((number, *rest))

    # --- as a program in lockstep -------------------------------------------------------------------------------------

    def compute(self, strand: Strand, batch: Any) -> Any:
        """Compute a part. Return what is left to do after it."""
        assert self._update is not None
        own: _Own = strand.own
        own.recording.samples = self._update.samples
        output = self.training_step(batch, self._arguments, own.recording)
        if own.unstepped or not own.losses:
            raise InvalidRequest(
                "training_step of manual optimization has computed gradients without a step after them."
                if own.losses
                else "training_step of manual optimization has made no step.",
                hint="Call opt.step() after self.manual_backward(loss), in the same training_step. To add up several "
                "batches, give ElasticStrategy(batch=) a multiple of the batch size.",
            )
        returned = output.get("loss") if isinstance(output, Mapping) else output
        self._update.note(sum(own.losses[1:], own.losses[0]) if returned is None else returned)
        self._update.keep("recording", own.recording)
        self._last = own
        return None, *own.taken()

    def switch(self, strand: Strand | None) -> None:
        """Put the attributes, gradients and metrics of another part into the module."""
        if self._strand is not None:
            own = self._strand.own
            own.attributes, own.metrics = dict(vars(self._module)), self._recorder.states()
            own.wants = [parameter.requires_grad for parameter in self._parameters]
            own.gradients = [parameter.grad for parameter in self._parameters]
            self._recorder.results.recording = None
        self._strand = strand
        if strand is not None and strand.own is None:
            strand.own = _Own()
        own = _Own() if strand is None else strand.own
        _put(vars(self._module), self._before if own.attributes is None else own.attributes)
        self._recorder.put(self._metrics if own.metrics is None else own.metrics)
        for parameter, wants in zip(self._parameters, own.wants or self._wants, strict=True):
            parameter.requires_grad_(wants)
        if strand is not None:
            for parameter, gradient in zip(self._parameters, own.gradients or (), strict=False):
                parameter.grad = gradient
            if own.gradients is not None:
                self._recorder.results.recording = own.recording

    def step(self, action: tuple[int | None, tuple[Any, ...], tuple[Any, ...]]) -> None:
        """Step schedulers, and an optimizer with the gradients of all parts."""
        number, clips, schedule_steps = action
        for which, args, kwargs in schedule_steps:
            scheduler = self._strategy.lr_scheduler_configs[which].scheduler
            type(scheduler).step(scheduler, *args, **dict(kwargs))
        if number is None:
            return
        for which, *arguments in clips:
            self._strategy.clip_now(self._strategy.optimizers[which], *arguments)
        self._loop._on_before_step()
        optimizer = self._strategy.optimizers[number]
        self._strategy.precision_plugin.optimizer_step(optimizer, model=self._module, closure=do_nothing_closure)
        self._loop._on_after_step()

    def copy(self) -> Any:
        """Return a copy of what steps change besides models and optimizers."""
        schedulers = [config.scheduler.state_dict() for config in self._strategy.lr_scheduler_configs]
        return copy.deepcopy((schedulers, self._loop.optim_step_progress.state_dict()))

    def back(self, copied: Any) -> None:
        """Go back to a copy."""
        schedulers, progress = copied
        for config, state in zip(self._strategy.lr_scheduler_configs, schedulers, strict=True):
            config.scheduler.load_state_dict(state)
        self._loop.optim_step_progress.load_state_dict(progress)

    def _versions(self) -> list[int | None]:
        return [None if parameter.grad is None else parameter.grad._version for parameter in self._parameters]

    def _later(self, number: int) -> Callable[..., None]:
        """Return what takes note of a scheduler's step, which all workers make when all parts are there."""

        def step(*args: Any, **kwargs: Any) -> None:
            assert self._strand is not None
            self._strand.own.schedule_steps.append((number, args, tuple(kwargs.items())))

        return step


class _Own:
    """Holds what a part of manual optimization has for itself."""

    def __init__(self) -> None:
        self.attributes: dict[str, Any] | None = None
        self.metrics: Any = None
        self.wants: list[bool] | None = None
        self.gradients: list[Tensor | None] | None = None
        self.versions: list[int | None] = []  # of the gradients after the last backward pass
        self.unstepped = False
        self.losses: list[Tensor] = []
        self.clips: list[Any] = []
        self.schedule_steps: list[Any] = []
        self.recording = Recording(0)

    def taken(self) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """Return what is to be clipped and which schedulers are to step, and forget it."""
        taken = tuple(self.clips), tuple(self.schedule_steps)
        self.clips, self.schedule_steps = [], []
        return taken


def _loss_of(output: Any) -> tuple[Tensor, float | None]:
    """Return the loss of a part, and what it is a mean over if not over samples."""
    loss = output.get("loss") if isinstance(output, Mapping) else output
    if not isinstance(loss, Tensor):
        raise InvalidRequest(
            f"training_step returned {type(output).__name__} for a part of a batch, and no loss.",
            hint="Return a loss for each part. One that is to have no effect can be 0 * loss.",
        )
    return loss, output.get("weight") if isinstance(output, Mapping) else None


def _put(attributes: dict[str, Any], values: dict[str, Any]) -> None:
    attributes.clear()
    attributes.update(values)
