"""Let the Trainer of Hugging Face train elastically: its own loop, whose updates all workers of a job share.

The loop of `Trainer` asks for a batch, steps on it, and logs, evaluates and saves. Here a batch is an update of
`edt_sdk.elastic`, of which each worker computes its parts. Evaluations and checkpoints are made by one worker for all.
A worker that joins runs the same loop and skips what is done. Until it is at the place of the others its callbacks
hear nothing, and what the others noted decides where it goes.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import torch
from torch.utils.data import DataLoader
from transformers import Seq2SeqTrainer, Trainer, TrainingArguments
from transformers.trainer import TRAINER_STATE_NAME
from transformers.trainer_utils import EvalLoopOutput

from edt_sdk.elastic import ElasticRun, Update, elastic
from edt_sdk.schemas.errors import Unprocessable
from edt_sdk.schemas.wire.context import job_context
from edt_sdk.transformers.arguments import (
    TrainingData,
    check_dataset,
    check_loss,
    count_items,
    elastic_arguments,
    in_results,
    training_data,
)
from edt_sdk.transformers.moving_state import MovingState

T = TypeVar("T")
# Where a worker that joins could not know that the others evaluate or save.
_WITHIN_AN_UPDATE = {"on_step_begin", "on_pre_optimizer_step", "on_optimizer_step", "on_step_end"}


class ElasticTrainer(Trainer):
    """Trains as `transformers.Trainer` does, in a job on any number of workers, with equal bits for each number.

    Args:
        global_batch_size: samples of an update, whatever the number of workers. Default:
            `per_device_train_batch_size` × `gradient_accumulation_steps`.
        shards: parts of an update, and most workers that can help. Default: 8, or the samples of an update if these
            are fewer.
        model, args, …: as for `Trainer`.

    The seed is that of the arguments, also in a job. `args` of the trainer is a copy, for which an update is one batch.

    Raises:
        InvalidRequest, Unprocessable: an argument is not valid, or cannot work in an elastic training.
    """

    def __init__(
        self,
        model: Any = None,
        args: TrainingArguments | None = None,
        *arguments: Any,
        global_batch_size: int | None = None,
        shards: int | None = None,
        **keywords: Any,
    ) -> None:
        self._run: ElasticRun | None = None
        self._shards = shards
        self._epochs: Iterator[int] | None = None
        self._epoch = -1  # that the run is in
        self._section: Any = None  # that gives the updates
        self._updates: Iterator[Update] = iter(())
        self._update: Update | None = None
        self._weight: int | None = None
        self._counted = 0.0, 0  # operations and tokens of an update
        self._by_one = False
        self._heard = ""  # the event that callbacks hear just now
        self._informed = False  # on its way to the others, by their note
        args = elastic_arguments(TrainingArguments("tmp_trainer") if args is None else args, global_batch_size)
        super().__init__(model, args, *arguments, **keywords)
        if self.train_dataset is not None:
            check_dataset(self.train_dataset)
        check_loss(self.model)
        self._moving = MovingState(self)
        handler = self.callback_handler
        self._tell = handler.call_event
        handler.call_event = self._event
        # For this trainer only, so that a method of that name, of the Trainer or a user's, gets one part at a time.
        self.__dict__["training_step"] = self._all_parts

    # --- which worker this is -----------------------------------------------------------------------------------------

    def is_world_process_zero(self) -> bool:
        """Return whether this worker writes files and prints. Another one may be it later."""
        return job_context() is None if self._run is None else self._run.first

    is_local_process_zero = is_world_process_zero

    @property
    def _arriving(self) -> bool:
        return self._run is not None and self._run.arriving

    def _event(self, event: str, args: Any, state: Any, control: Any, **more: Any) -> Any:
        """Call the callbacks of an event, unless this worker is on its way and does not know the state that it had."""
        state.is_world_process_zero = state.is_local_process_zero = self.is_world_process_zero()
        if self._run is not None:
            if event == "on_prediction_step":
                self._run.alive()
            if self._arriving and not self._informed and event != "on_train_begin":
                return control
        before, self._heard = self._heard, event
        try:
            return self._tell(event, args, state, control, **more)
        finally:
            self._heard = before

    def _once(self, function: Callable[..., T], *arguments: Any, keep: bool = True) -> T:
        """Return what a function returns, which one worker calls for all."""
        if self._run is None or self._by_one:
            return function(*arguments)
        if self._heard in _WITHIN_AN_UPDATE:
            raise Unprocessable(
                f"A callback evaluates or saves in {self._heard}, where a worker that joins would not know of it.",
                hint="control.should_evaluate = True or control.should_save = True, or do it in on_epoch_end.",
            )

        def call() -> T:
            self._by_one = True
            try:
                return function(*arguments)
            finally:
                self._by_one = False

        return self._run.once(call, keep=keep)  # type: ignore[no-any-return]

    def _note(self) -> None:
        """Note the progress. A worker that is on its way to the others takes what they noted."""
        assert self._run is not None, "it is called within the training"
        self._moving.load_state_dict(self._run.note(self._moving.state_dict))
        self._informed = self._arriving

    # --- the training -------------------------------------------------------------------------------------------------

    def train(self, resume_from_checkpoint: str | bool | None = None, trial: Any = None, **keywords: Any) -> Any:
        """Train as `Trainer.train` does. In a job the driver's call ends its script."""
        if trial is not None:
            raise Unprocessable(
                "ElasticTrainer is no trial of hyperparameter_search.",
                hint="client.search(…) trains many trials of a script at once.",
            )
        job = job_context()
        if resume_from_checkpoint and job is not None and job.paths.payload(0).exists():
            # The job has begun. It goes on from its own state, and may have removed that checkpoint.
            resume_from_checkpoint = _complete(self.args.output_dir or "", resume_from_checkpoint)
        return super().train(resume_from_checkpoint, **keywords)

    def set_initial_training_values(self, args: TrainingArguments, dataloader: Any) -> Any:
        """Return epochs, updates and samples of the training, for updates of the whole batch."""
        self._data: TrainingData = training_data(dataloader, args.per_device_train_batch_size, self._shards)
        return super().set_initial_training_values(args, self._data)

    def _prepare_for_training(self, max_steps: int, train_dataloader: Any, resume_from_checkpoint: Any) -> Any:
        prepared = super()._prepare_for_training(max_steps, train_dataloader, resume_from_checkpoint)
        # Accelerate has wrapped it. What it wraps travels.
        wrapped: Any = self.optimizer
        scaler = self.accelerator.scaler
        self._run = elastic(
            seed=self.args.seed,
            keep_seed=True,
            device=str(self.args.device),
            model=self.model,
            optimizer=wrapped.optimizer,
            schedule=self.lr_scheduler,
            trainer=self._moving,
            **({} if scaler is None else {"scaler": scaler}),
        )
        self._epochs, self._epoch, self._informed = None, -1, False
        stepping: Any = SimpleNamespace(
            step=wrapped.step,
            param_groups=wrapped.optimizer.param_groups,
            _optimizer_step_pre_hooks=True,
            _optimizer_step_post_hooks=True,
        )

        def step(closure: Any = None) -> None:
            assert self._update is not None, "a step ends an update"
            self._update.step(stepping)

        # Schedules look for these marks, and warn of a step that a worker on its way to the others does not make.
        step._wrapped_by_lr_sched = True  # type: ignore[attr-defined]
        wrapped._opt_called = wrapped.optimizer._opt_called = True
        wrapped.step = step
        self.accelerator.backward = self._backward
        return prepared

    def _run_epoch(
        self,
        *,
        epoch: int,
        train_dataloader: Any,
        resume_from_checkpoint: Any,
        epochs_trained: int,
        steps_trained_in_current_epoch: int,
        **more: Any,
    ) -> None:
        run, data = self._run, self._data
        assert run is not None, "it begins before the first epoch"
        if self._epochs is None:
            self._epochs = run.epochs(self.state.num_train_epochs, start=epochs_trained)
        if self._epoch < epoch:
            self._epoch = next(self._epochs)
        if epoch < self._epoch:
            return  # this worker has joined, and the others are in a later epoch
        start = 0
        if resume_from_checkpoint is not None and epoch == epochs_trained:
            start = steps_trained_in_current_epoch
        updates = run.updates(
            data.dataset, batch=data.batch, shards=data.shards, sampler=data.sampler, collate=data.collate,
            loader_workers=data.loader_workers, steps=len(data), start=start,
        )  # fmt: skip
        first = next(updates, None)
        start = len(data) if first is None else first.index
        if first is None:
            self._note()  # the others are at the end of the epoch, and have made theirs
        self._updates, self._section = chain(() if first is None else (first,), updates), updates
        # The Trainer's loop goes over the numbers of the updates, and skips those that are done as after a resume.
        super()._run_epoch(
            epoch=epoch,
            train_dataloader=DataLoader(range(len(data)), batch_size=1),  # type: ignore[arg-type]
            resume_from_checkpoint="" if start else None,
            epochs_trained=epoch,
            steps_trained_in_current_epoch=start,
            **more,
        )

    def weight_of(self, inputs: Any) -> int | None:
        """Return over how many items the loss of a part is a mean, None for its samples. Override it where it is wrong.

        Args:
            inputs: of the model, by name.
        """
        return count_items(inputs, getattr(self.model, "config", None), shifted=self._loss_shifts_labels)

    def get_batch_samples(self, epoch_iterator: Any, num_batches: int, device: Any) -> Any:
        """Return the next update, as the only batch."""
        next(epoch_iterator)
        self._update = next(self._updates)
        return [self._update], None

    def _all_parts(self, model: Any, update: Any, _: Any = None) -> torch.Tensor:
        """Compute the parts of an update that are this worker's. Return the loss of the whole update."""
        for inputs in update:
            self._weight = self.weight_of(inputs)
            items = None
            if self._weight is not None and (self.model_accepts_loss_kwargs or self.compute_loss_func is not None):
                items = torch.tensor(max(1.0, self._weight), device=self.args.device)
            type(self).training_step(self, model, inputs, items)
            seen = self.state.num_input_tokens_seen
            super()._track_num_input_tokens(inputs)
            update.keep("counted", (super().floating_point_ops(inputs), self.state.num_input_tokens_seen - seen))
            self.state.num_input_tokens_seen = seen
        operations, tokens = zip(*(update.kept("counted") or [(0.0, 0)]), strict=True)
        self._counted = math.fsum(operations), sum(tokens)
        return torch.tensor(update.loss, device=self.args.device)

    def _backward(self, loss: torch.Tensor, **_: Any) -> None:
        """Take the place of `Accelerator.backward`."""
        assert self._update is not None, "a loss belongs to an update"
        self._update.backward(loss, weight=self._weight, scaler=self.accelerator.scaler)

    def floating_point_ops(self, inputs: Any) -> Any:
        """Return the operations for a batch, or for an update."""
        return self._counted[0] if isinstance(inputs, Update) else super().floating_point_ops(inputs)

    def _track_num_input_tokens(self, inputs: Any) -> None:
        self.state.num_input_tokens_seen += self._counted[1]

    def _maybe_log_save_evaluate(
        self, tr_loss: Any, grad_norm: Any, *more: Any, learning_rate: float | None = None
    ) -> None:
        """Log, evaluate and save where that is due, after an update or after an epoch."""
        moving = self._moving
        update, self._update = self._update, None
        if update is not None:
            moving.grad_norm = grad_norm.item() if isinstance(grad_norm, torch.Tensor) else grad_norm
            moving.learning_rate = learning_rate
            # A worker on its way to an evaluation or a checkpoint of the others does not have the state that decided
            # what is due.
            if self.control.should_evaluate or self.control.should_save or update.followed:
                self._note()
        super()._maybe_log_save_evaluate(tr_loss, moving.grad_norm, *more, learning_rate=moving.learning_rate)
        stops = self.control.should_epoch_stop or self.control.should_training_stop
        if update is not None and (stops or update.index == len(self._data) - 1):
            self._section.close()  # so that a worker that joins goes on after the epoch's updates, from this note
            self._note()

    def _finalize_training(self, *arguments: Any) -> Any:
        self._note()
        limit = self.args.save_total_limit
        if not self.is_world_process_zero():
            self.args.save_total_limit = None  # one worker removes old checkpoints
        try:
            return super()._finalize_training(*arguments)
        finally:
            self.args.save_total_limit = limit

    # --- what one worker does for all ---------------------------------------------------------------------------------

    def evaluation_loop(self, dataloader: Any, description: str, *arguments: Any, **keywords: Any) -> EvalLoopOutput:
        """Evaluate in one worker, and return its result in all."""
        parent = super().evaluation_loop
        stays = description == "Evaluation" and type(self).evaluate in _EVALUATES

        def evaluate() -> EvalLoopOutput:
            found = parent(dataloader, description, *arguments, **keywords)
            # Predictions of a whole data set need not travel where the metrics alone are used.
            return found._replace(predictions=None, label_ids=None) if stays else found

        found = self._once(evaluate)
        self.model.eval()  # in the other workers too
        return found

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """Save the model in one worker. The others wait until it is there."""
        if self._run is not None or job_context() is None:
            folder = None if output_dir is None else in_results(output_dir)
            self._once(super().save_model, folder, _internal_call)

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        parent = super()._save_checkpoint

        def save() -> dict[str, Any]:
            parent(model, trial)
            return self._moving.state_dict()

        self._moving.load_state_dict(self._once(save))

    def _load_best_model(self) -> None:
        parent = super()._load_best_model

        def load() -> dict[str, torch.Tensor]:
            parent()
            return {name: tensor.cpu() for name, tensor in self.model.state_dict().items()}

        # Its file may be on another host. A worker that joins takes the weights with the rest of the state.
        if (weights := self._once(load, keep=False)) is not None:
            self.model.load_state_dict(weights)

    def _load_rng_state(self, checkpoint: Any) -> None:
        """Do nothing: each part of an update has a seed of its own."""


class ElasticSeq2SeqTrainer(ElasticTrainer, Seq2SeqTrainer):
    """Trains as `transformers.Seq2SeqTrainer` does, elastically. Arguments as for `ElasticTrainer`."""


_EVALUATES = (Trainer.evaluate, Seq2SeqTrainer.evaluate)


def _complete(folder: str, checkpoint: str | bool) -> str | None:
    """Return the checkpoint to begin with, None where there is none that is complete."""
    found = checkpoint
    if checkpoint is True:
        # Its last file is the state, so one that is just being written has none.
        complete = [path.parent for path in Path(folder).glob(f"checkpoint-*/{TRAINER_STATE_NAME}")]
        found = str(max(complete, key=lambda path: int(path.name.rpartition("-")[2]))) if complete else ""
    return str(found) if os.path.isfile(os.path.join(str(found), TRAINER_STATE_NAME)) else None
