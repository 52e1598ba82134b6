"""Turn a user's training arguments into those of an elastic training, and refuse what could not be right in one."""

from __future__ import annotations

import copy
import os
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, RandomSampler
from transformers import TrainingArguments

from edt_sdk.elastic import updates_in
from edt_sdk.schemas.errors import InvalidRequest, Unprocessable
from edt_sdk.schemas.wire.context import job_context, worker_context

# Settings that shard, compile or restart a training in ways of their own, with the line that does without them.
_NOT_ELASTIC = {
    "deepspeed": "Leave out deepspeed=. Each worker holds the whole model.",
    "fsdp": "Leave out fsdp=. Each worker holds the whole model.",
    "parallelism_config": "Leave out parallelism_config=. Each worker holds the whole model.",
    "torch_compile": "torch_compile=False: each worker that joins would compile first.",
    "auto_find_batch_size": "auto_find_batch_size=False, and a larger shards= where a part needs too much memory.",
    "enable_jit_checkpoint": "enable_jit_checkpoint=False. A job keeps its state when it is suspended.",
}


def elastic_arguments(given: TrainingArguments, global_batch_size: int | None) -> TrainingArguments:
    """Return a copy of the arguments for which a whole update is one batch.

    Raises:
        Unprocessable: a setting cannot work in a training that changes its number of workers.
    """
    for name, hint in _NOT_ELASTIC.items():
        if getattr(given, name, None):
            raise Unprocessable(f"ElasticTrainer cannot train with {name}.", hint=hint, field=name)
    if given.world_size > 1:
        raise Unprocessable(
            f"ElasticTrainer runs among {given.world_size} processes that a launcher has started.",
            hint="Start the script by python, or submit it as a job: the job starts its workers itself.",
        )
    if str(given.optim).startswith(("OptimizerNames.SCHEDULE_FREE", "OptimizerNames.LOMO", "OptimizerNames.ADALOMO")):
        raise Unprocessable(
            f"ElasticTrainer cannot step {given.optim.value}: it changes the weights outside of its step.",
            hint="For example optim='adamw_torch', with a learning-rate schedule.",
            field="optim",
        )
    if "layerwise" in str(given.optim).lower():
        raise Unprocessable(
            f"ElasticTrainer cannot step {given.optim.value}: it steps within the backward pass of one worker.",
            hint="The same optimizer without 'layerwise'.",
            field="optim",
        )
    if given.train_sampling_strategy == "batch_rebalance":
        raise Unprocessable(
            "ElasticTrainer cannot rebalance batches: it cuts each batch into parts of equal size.",
            hint="train_sampling_strategy='group_by_length'",
            field="train_sampling_strategy",
        )
    args = copy.copy(given)
    size = global_batch_size
    if size is None:
        size = given.per_device_train_batch_size * given.gradient_accumulation_steps
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise InvalidRequest(
            f"global_batch_size must be a whole number of samples, not {size!r}.", field="global_batch_size"
        )
    args.per_device_train_batch_size, args.gradient_accumulation_steps = size, 1
    args.ignore_data_skip = False  # nothing is loaded to be skipped
    if args.n_gpu > 1:
        args._n_gpu = 1  # DataParallel would be a second kind of division
    if job_context() is not None:
        if given.push_to_hub:
            raise Unprocessable(
                "ElasticTrainer cannot push while it trains as a job: any worker may be the one that saves.",
                hint="push_to_hub=False, and trainer.push_to_hub() after train().",
                field="push_to_hub",
            )
        args.disable_tqdm = True  # another worker may have to go on with the bar
        args.output_dir = in_results(args.output_dir or "")
        if worker_context() is None:
            args.mixed_precision = "no"  # the driver computes nothing, and may have no GPU
    return args


def in_results(path: str) -> str:
    """Return where a relative path is in a job: among its results. What it leaves in its code's folder is not."""
    return path if job_context() is None else os.path.join(os.environ.get("SAVED_MODEL_DIR", ""), path)


@dataclass(frozen=True, slots=True)
class TrainingData:
    """Holds what a Trainer's loader says about the training data. Its length is the number of updates of an epoch.

    Attributes:
        sampler: None where the order is to be the engine's.
        batch: samples of an update.
        shards: its parts, None for the default.
    """

    dataset: Any
    sampler: Any
    collate: Any
    loader_workers: int
    batch: int
    shards: int | None
    drop_last: bool

    def __len__(self) -> int:
        samples = len(self.dataset if self.sampler is None else self.sampler)
        return samples // self.batch if self.drop_last else updates_in(samples, batch=self.batch, shards=self.shards)


def check_dataset(dataset: Any) -> None:
    """Raise Unprocessable for a data set that cannot be divided among workers."""
    if isinstance(dataset, IterableDataset) or not hasattr(dataset, "__len__") or not hasattr(dataset, "__getitem__"):
        raise Unprocessable(
            f"ElasticTrainer cannot divide a {type(dataset).__name__} among workers.",
            hint="A data set with __len__ and __getitem__, or edt_sdk.elastic.stream(files, decode) for samples in "
            "files.",
            field="train_dataset",
        )


def training_data(loader: DataLoader[Any], batch: int, shards: int | None) -> TrainingData:
    """Return what a loader of the Trainer, or of the user's own, would load, for updates of `batch` samples.

    Raises:
        Unprocessable: the loader makes its batches in a way that cannot be divided.
    """
    check_dataset(loader.dataset)
    batches = loader.batch_sampler
    if type(batches) is not BatchSampler:
        raise Unprocessable(
            f"ElasticTrainer cannot divide the batches of a {type(batches).__name__} among workers.",
            hint="Give the loader a sampler= in place of a batch_sampler=.",
            field="train_dataset",
        )
    sampler = batches.sampler
    shuffled = isinstance(sampler, RandomSampler) and not sampler.replacement and len(sampler) == len(loader.dataset)  # type: ignore[arg-type]
    return TrainingData(
        dataset=loader.dataset,
        sampler=None if shuffled else sampler,
        collate=loader.collate_fn,
        loader_workers=loader.num_workers,
        batch=batch,
        shards=shards,
        drop_last=batches.drop_last,
    )


def check_loss(model: Any) -> None:
    """Raise Unprocessable for a model whose loss is a sum over its samples."""
    if type(model).__name__.endswith("ForCTC") and getattr(model.config, "ctc_loss_reduction", "") == "sum":
        raise Unprocessable(
            f"The loss of {type(model).__name__} is a sum, which cannot be put together from parts by weights.",
            hint="model.config.ctc_loss_reduction = 'mean'",
            field="model",
        )


def count_items(inputs: Any, config: Any, *, shifted: bool) -> int | None:
    """Return over how many labels the loss of a batch is a mean, None where it is one over its samples.

    Args:
        inputs: of the model, by name.
        config: of the model.
        shifted: the model predicts the label after each position, so the first one counts for nothing.
    """
    labels = inputs.get("shift_labels") if "shift_labels" in inputs else inputs.get("labels")
    # The loss of CTC is a mean over samples, each divided by its length.
    if not isinstance(labels, torch.Tensor) or hasattr(config, "ctc_loss_reduction"):
        return None
    if shifted and "shift_labels" not in inputs:
        labels = labels[..., 1:]
    return int(labels.ne(getattr(config, "semantic_loss_ignore_index", -100)).sum())
