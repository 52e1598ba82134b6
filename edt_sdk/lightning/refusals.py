"""Refuse what cannot be computed in parts, or would let workers go different ways, before the training begins."""

from __future__ import annotations

from typing import Any

from lightning import LightningModule
from lightning.pytorch.callbacks import (
    BatchSizeFinder,
    Callback,
    GradientAccumulationScheduler,
    LearningRateFinder,
    ModelCheckpoint,
    StochasticWeightAveraging,
    Timer,
)
from lightning.pytorch.plugins.precision import HalfPrecision, MixedPrecision, Precision
from lightning.pytorch.utilities import CombinedLoader
from lightning.pytorch.utilities.signature_utils import is_param_in_hook_signature
from torch.utils.data import BatchSampler, DataLoader, IterableDataset

from edt_sdk.schemas.errors import InvalidRequest

_CALLBACKS: dict[type[Callback], str] = {
    GradientAccumulationScheduler: "Leave it out: ElasticStrategy(batch=) sets the size of a batch.",
    StochasticWeightAveraging: "Use lightning.pytorch.callbacks.WeightAveraging, which averages after each step.",
    LearningRateFinder: "Find the rate with stock Lightning, before this training.",
    BatchSizeFinder: "Leave it out: ElasticStrategy(batch=, shards=) sets how large the parts of a batch are.",
}


def check_trainer(trainer: Any, module: LightningModule) -> None:
    """Refuse settings of a trainer and its module."""
    manual = not module.automatic_optimization
    refused = (
        (
            len(trainer._accelerator_connector._parallel_devices) > 1 or trainer.num_nodes > 1,
            "A worker has one device, and the job adds workers.",
            "Set Trainer(devices=1, num_nodes=1). max_workers= of the job is the number of workers.",
        ),
        (
            trainer.accumulate_grad_batches > 1,
            "accumulate_grad_batches would add up updates, which a larger batch does as well.",
            f"Leave it out, and give ElasticStrategy(batch=) {trainer.accumulate_grad_batches} times the batch size.",
        ),
        (
            trainer.reload_dataloaders_every_n_epochs > 0,
            "A worker that joins cannot make the data loader of an earlier epoch.",
            "Leave reload_dataloaders_every_n_epochs out, and give the data set a method that depends on the epoch.",
        ),
        (
            trainer.overfit_batches > 0,
            "overfit_batches changes the sampler of the data loader.",
            "Leave it out, and train on a torch.utils.data.Subset.",
        ),
        (
            trainer._val_check_time_interval is not None
            or any(
                isinstance(each, Timer) or (isinstance(each, ModelCheckpoint) and each._train_time_interval)
                for each in trainer.callbacks
            ),
            "Workers cannot agree on what depends on the time, such as max_time or train_time_interval.",
            "Count steps or epochs: max_steps, every_n_train_steps, val_check_interval=100.",
        ),
        (
            type(trainer.precision_plugin) not in (Precision, MixedPrecision, HalfPrecision)
            or (manual and getattr(trainer.precision_plugin, "scaler", None) is not None),
            f"The precision of {type(trainer.precision_plugin).__name__} is not supported"
            + (" with manual optimization." if manual else "."),
            'Set precision="32-true" or "bf16-mixed".',
        ),
        *(
            (
                any(isinstance(each, kind) for each in trainer.callbacks),
                f"The callback {kind.__name__} changes Lightning's loops.",
                hint,
            )
            for kind, hint in _CALLBACKS.items()
        ),
        (
            is_param_in_hook_signature(module.training_step, "dataloader_iter", explicit=True),
            "A training_step that takes batches from an iterator itself cannot be given parts of one.",
            "Define it as training_step(self, batch, batch_idx).",
        ),
        (
            hasattr(module, "_compiler_ctx") and module._compiler_ctx is not None,
            "A module compiled as a whole hides its training step.",
            "Compile the networks in it: self.net = torch.compile(self.net).",
        ),
    )
    for is_so, what, hint in refused:
        if is_so:
            raise InvalidRequest(what, hint=hint, field="strategy")


def check_loader(loader: Any) -> None:
    """Refuse what cannot be taken apart into data set, batch size, sampler and collate function."""
    if isinstance(loader, CombinedLoader) or not isinstance(loader, DataLoader):
        raise InvalidRequest(
            f"The training data must come from one torch.utils.data.DataLoader, not from a {type(loader).__name__}.",
            hint="Put several data sets into one: torch.utils.data.StackDataset or ConcatDataset.",
            field="train_dataloaders",
        )
    if isinstance(loader.dataset, IterableDataset):
        raise InvalidRequest(
            f"A {type(loader.dataset).__name__} is an IterableDataset, which cannot be divided among workers.",
            hint="Samples of files are divided by edt_sdk.elastic.stream(). Others can be read into a list.",
            field="train_dataloaders",
        )
    if type(loader.batch_sampler) is not BatchSampler:
        raise InvalidRequest(
            "The engine makes the batches of a training, so the DataLoader cannot have a batch_sampler of its own.",
            hint="Give it batch_size= and sampler=.",
            field="train_dataloaders",
        )
    if loader.worker_init_fn is not None:
        raise InvalidRequest(
            "worker_init_fn is not called: processes that load samples are the engine's.",
            hint="Leave it out. Random numbers of torch, numpy and random are seeded for each part of a batch.",
            field="train_dataloaders",
        )
