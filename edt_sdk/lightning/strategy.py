"""Define the strategy by which Lightning's Trainer trains with workers that come and go.

Lightning's own loops run in every worker. Where a loop asks for the next batch, this worker is among the others with
their state, wherever they are: loops, callbacks and metrics have a state that travels. The batch itself is computed in
parts (`updates.py`). All between two batches runs in every worker with the same values, validations too (decision 071).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch
from lightning import LightningModule, Trainer
from lightning.fabric.utilities.rank_zero import rank_zero_only
from lightning.fabric.utilities.types import _PATH
from lightning.pytorch.accelerators import Accelerator, CPUAccelerator, CUDAAccelerator
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from lightning.pytorch.strategies import SingleDeviceStrategy
from lightning.pytorch.trainer.states import TrainerFn
from torch import Tensor
from torch.optim import Optimizer

from edt_sdk import elastic
from edt_sdk.elastic import ElasticRun, Moved, Update
from edt_sdk.lightning.recording import PartRecorder
from edt_sdk.lightning.refusals import check_loader, check_trainer
from edt_sdk.lightning.trainer_state import TrainerState
from edt_sdk.lightning.updates import AutomaticParts, ManualParts, UpdateLoader, WholeBatch
from edt_sdk.schemas.errors import Conflict
from edt_sdk.schemas.job import DEFAULT_SHARDS
from edt_sdk.schemas.wire.context import job_context, worker_context


class ElasticStrategy(SingleDeviceStrategy):
    """Trains a LightningModule with workers that come and go: `Trainer(strategy=ElasticStrategy())`.

    Args:
        batch: samples of an update, whatever the number of workers. Default: the batch size of the data loader.
        shards: parts that a batch is cut into, and most workers. Default: 8, or the batch size if that is less.
        seed: of the order of samples, dropout and augmentation. In a job, the job's is used.
        mode: "exact", equal bits for any number of workers, or "fast". In a job, the job's is used.
        on_nan: when a loss is not a number, "warn" or "stop", as for `edt_sdk.elastic.elastic()`.

    Attributes:
        run: of the training, once it begins.

    Raises:
        InvalidRequest, Conflict, Unprocessable: from `trainer.fit`: something cannot be computed in parts. The message
            says what to change.
    """

    strategy_name = "elastic"

    def __init__(
        self,
        *,
        batch: int | None = None,
        shards: int | None = None,
        seed: int = 0,
        mode: str = "exact",
        on_nan: str = "warn",
    ) -> None:
        super().__init__()
        self._batch = batch
        self._shards = shards
        self._options = {"seed": seed, "mode": mode, "on_nan": on_nan}
        self._in_job = job_context() is not None
        self._run: ElasticRun | None = None
        self._recorder: PartRecorder | None = None
        self._state: TrainerState | None = None
        self._manual: ManualParts | None = None
        # Checkpoints that the first worker may not have written: after how many updates, and what to write.
        self._unsure: list[tuple[int, dict[str, Any], _PATH, Any]] = []
        self._set_rank()

    # --- what Lightning asks of a strategy ----------------------------------------------------------------------------

    @property
    def run(self) -> ElasticRun:
        """Return the training."""
        if self._run is None:
            raise Conflict("The training has not begun.")
        return self._run

    @property
    def is_global_zero(self) -> bool:
        """Return whether this process writes files and prints for all."""
        return not self._in_job if self._run is None else self._run.first

    @property
    def accelerator(self) -> Accelerator | None:
        """Return the accelerator. A worker computes on the device of its slot, and the driver of a job on none."""
        return self._accelerator

    @accelerator.setter
    def accelerator(self, accelerator: Accelerator) -> None:
        worker = worker_context()
        device = "cuda:0" if isinstance(accelerator, CUDAAccelerator) else "cpu"
        if self._in_job:
            device = "cpu" if worker is None else worker.device
            accelerator = CUDAAccelerator() if device.startswith("cuda") else CPUAccelerator()
        self._accelerator = accelerator
        self._root_device = torch.device(device)

    def connect(self, model: LightningModule) -> None:
        """Take a module."""
        super().connect(model)
        trainer = model.trainer
        if trainer.state.fn == TrainerFn.FITTING:
            if self._run is not None and self._in_job:
                raise Conflict(
                    "trainer.fit() was called a second time.",
                    hint="A job has one training. Submit another job for the second one, with ckpt_path=.",
                )
            self._run = None
            check_trainer(trainer, model)

    def setup(self, trainer: Trainer) -> None:
        """Set up module and optimizers, and begin the training with the other workers."""
        super().setup(trainer)
        if trainer.state.fn == TrainerFn.FITTING:
            self._begin(trainer)

    def process_dataloader(self, dataloader: Any) -> Any:
        """Take the loader of the training apart. Others stay: all workers compute all of a validation."""
        if self.lightning_module is None or not self._trainer.training:
            return dataloader
        return UpdateLoader(self, dataloader, self._batch, self._shards)

    def batch_to_device(self, batch: Any, device: torch.device | None = None, dataloader_idx: int = 0) -> Any:
        """Move a batch, or a part of one."""
        return batch if isinstance(batch, WholeBatch) else super().batch_to_device(batch, device, dataloader_idx)

    def training_step(self, *args: Any, **kwargs: Any) -> Any:
        """Make an update of manual optimization. One of automatic optimization is in the optimizer's closure."""
        assert self._manual is not None, "the closure of automatic optimization computes parts"
        return self._manual.whole(*args, **kwargs)

    def backward(self, closure_loss: Tensor, optimizer: Optimizer | None, *args: Any, **kwargs: Any) -> Tensor:
        """Compute the gradients of a part."""
        loss = super().backward(closure_loss, optimizer, *args, **kwargs)
        if self._manual is not None and self._manual.computing:
            self._manual.backward(closure_loss)
        return loss

    def optimizer_step(self, optimizer: Optimizer, closure: Callable[[], Any], model: Any = None, **kwargs: Any) -> Any:
        """Step, or in a part of manual optimization wait until all parts are there."""
        if self._manual is None or not self._manual.computing:
            return super().optimizer_step(optimizer, closure, model, **kwargs)
        closure()
        self._manual.pause(optimizer)
        return None

    def validation_step(self, *args: Any, **kwargs: Any) -> Any:
        """Compute a batch of a validation, and show that this worker is alive."""
        if self._run is not None:
            self._run.alive()
        return super().validation_step(*args, **kwargs)

    def on_validation_end(self) -> None:
        """Put the results of a validation into the metrics of the job."""
        trainer = self._trainer
        found = {name: float(value) for name, value in trainer.callback_metrics.items() if value.numel() == 1}
        if self._run is not None and not trainer.sanity_checking and found:
            self._run.tested(found)

    def on_train_end(self) -> None:
        """Wait for the other workers, so that files of the first one are there."""
        self.run.end()
        self.catch_up()

    def save_checkpoint(self, checkpoint: dict[str, Any], filepath: _PATH, storage_options: Any = None) -> None:
        """Write a checkpoint in the first worker. The others keep it until that one has surely written it."""
        if self._state is not None:
            self._state.files.add(os.path.abspath(filepath))
            self._unsure.append((self.run.update, checkpoint, filepath, storage_options))
        super().save_checkpoint(checkpoint, filepath, storage_options)

    def remove_checkpoint(self, filepath: _PATH) -> None:
        """Remove a checkpoint in the first worker."""
        if self._state is not None:
            self._state.files.discard(os.path.abspath(filepath))
        super().remove_checkpoint(filepath)

    def teardown(self) -> None:
        """Leave module and metrics as they were given."""
        if self._recorder is not None:
            self._recorder.close()
            self._recorder = None
        if self.lightning_module is not None:
            vars(self.lightning_module).pop("_on_before_batch_transfer", None)
        vars(self.precision_plugin).pop("clip_gradients", None)
        # The state of a worker may still go to others, so it stays on its device.
        if self._run is None or not self._in_job:
            super().teardown()

    # --- what updates ask ---------------------------------------------------------------------------------------------

    def arrive(self) -> None:
        """Be among the workers that make the next update, with the state of all of them."""
        assert self._state is not None
        trainer = self._trainer
        loop = trainer.fit_loop
        self._state.note()
        for logger in trainer.loggers:
            if isinstance(logger, CSVLogger):
                logger.save()  # another worker may write the next rows
        self.run.arrive()
        self.catch_up()
        # Who has made an update since has written before it.
        self._unsure = [each for each in self._unsure if each[0] == self.run.update]
        # Where the state of others has come, this loop was elsewhere before.
        loop._data_fetcher.fetched = loop.epoch_loop.batch_progress.current.ready

    def update(self) -> Update:
        """Return the update of the batch that the loop is at."""
        trainer = self._trainer
        loader = trainer.train_dataloader
        epoch, index = trainer.fit_loop.epoch_progress.current.processed, trainer.fit_loop.batch_idx
        steps = int(trainer.num_training_batches)
        return self.run.at(loader.dataset, epoch=epoch, index=index, steps=steps, **loader.options)

    def compute(self, *args: Any) -> Any:
        """Call `training_step` for a part."""
        return super().training_step(*args)

    def catch_up(self) -> None:
        """As another first worker, write what the one before it may not have written."""
        was_first = self.global_rank == 0
        self._set_rank()
        if was_first or not self.is_global_zero:
            return
        for _, checkpoint, filepath, storage_options in self._unsure:
            if not os.path.exists(filepath):
                super().save_checkpoint(checkpoint, filepath, storage_options)
        for logger in self._trainer.loggers:
            if isinstance(logger, CSVLogger) and os.path.isfile(path := os.path.join(logger.log_dir, "metrics.csv")):
                # Its writer would remove the rows of the worker before it.
                with open(path, newline="") as file:
                    rows = file.read()
                writer = logger.experiment
                writer.metrics_keys = rows.partition("\n")[0].strip().split(",")
                with open(path, "w", newline="") as file:
                    file.write(rows)

    def clip_now(self, *arguments: Any) -> None:
        """Clip the gradients of all parts."""
        type(self.precision_plugin).clip_gradients(self.precision_plugin, *arguments)

    # --- inside -------------------------------------------------------------------------------------------------------

    @property
    def _trainer(self) -> Any:
        assert self.lightning_module is not None
        return self.lightning_module.trainer

    def _begin(self, trainer: Any) -> None:
        module: Any = trainer.lightning_module
        loops = trainer.fit_loop.epoch_loop
        trainer.fit_loop.setup_data()
        loader = trainer.train_dataloader
        if not isinstance(loader, UpdateLoader):
            check_loader(loader)
        self._recorder = PartRecorder(module)
        self._state = TrainerState(trainer, module, self._recorder)
        loops._results = self._recorder.results
        things: dict[str, Any] = {f"optimizer_{number}": each for number, each in enumerate(self.optimizers)}
        things.update(model=module, trainer=self._state, device=str(self.root_device), **self._options)
        self._run = elastic.elastic(**things)
        self._manual = None if module.automatic_optimization else ManualParts(self, self._recorder)
        loops.automatic_optimization._make_closure = AutomaticParts(self, self._recorder).closure
        loops.advance = self._advancing(loops.advance)
        transfer = module._on_before_batch_transfer
        module._on_before_batch_transfer = lambda batch, **kwargs: (
            batch if isinstance(batch, WholeBatch) else transfer(batch, **kwargs)
        )
        if self._manual is not None:
            self.precision_plugin.clip_gradients = self._clip  # type: ignore[method-assign]
        for each in trainer.checkpoint_callbacks:
            if isinstance(each, ModelCheckpoint):
                each.file_exists = self._exists  # type: ignore[method-assign]
                if each.dirpath is not None and os.path.isdir(each.dirpath):
                    self._state.files.update(entry.path for entry in os.scandir(os.path.abspath(each.dirpath)))
        shards = loader.options["shards"] or min(DEFAULT_SHARDS, loader.options["batch"])
        if not self._run.begin(shards, len(loader), max(0, trainer.max_epochs or 0)):
            trainer.num_sanity_val_steps = 0  # the others wait for this worker
        self._set_rank()

    def _advancing(self, advance: Callable[[Any], None]) -> Callable[[Any], None]:
        def advancing(fetcher: Any) -> None:
            while True:
                try:
                    return advance(fetcher)
                except Moved:
                    self.lightning_module._current_fx_name = None  # type: ignore[union-attr]
                    fetcher.done = False  # also where it was at the last batch of its epoch

        return advancing

    def _clip(self, *arguments: Any, **named: Any) -> None:
        assert self._manual is not None
        if self._manual.computing:
            self._manual.clip(*arguments, *named.values())
        else:
            self.clip_now(*arguments, *named.values())

    def _exists(self, filepath: _PATH, trainer: Trainer) -> bool:
        """Answer the same in all workers, whether or not the first one has written the file already."""
        assert self._state is not None
        return os.path.abspath(filepath) in self._state.files

    def _set_rank(self) -> None:
        self.global_rank = 0 if self.is_global_zero else 1
        vars(rank_zero_only)["rank"] = self.global_rank
