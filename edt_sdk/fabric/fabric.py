"""Define `FabricModel`, the object through which model code trains elastically.

It checks its arguments in the call where a mistake was made, and packs them. In a job's driver it requests workers from
the supervisor, waits, and passes metrics to the loggers. Elsewhere, for example in a notebook cell, the call becomes a
job (`edt_sdk.training.calls.call`). It never trains or reads data itself, the workers do (`edt_sdk.training.worker`).
Both keyword families of WMLA (1.2–2.x and 4–5) are accepted. Importing this module imports torch. `import edt_sdk` does
not import this module.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from edt_sdk.fabric import checks
from edt_sdk.fabric.checks import check_callable, one_of, whole
from edt_sdk.formatting.front_end import in_notebook
from edt_sdk.schemas.errors import Conflict, InvalidRequest
from edt_sdk.schemas.fields import names_checked
from edt_sdk.schemas.wire.context import worker_context
from edt_sdk.schemas.wire.link import Scaled, TrainRequest
from edt_sdk.training.calls import serving_call, session, validation_call
from edt_sdk.training.calls.following import follow
from edt_sdk.training.checkpoints import model_files as checkpoint
from edt_sdk.training.checkpoints import onnx_file
from edt_sdk.training.member import model_zip
from edt_sdk.training.sampling.order import shard_sizes
from edt_sdk.training.user import payload
from edt_sdk.training.user.logging_hooks import DriverLoggers
from edt_sdk.training.user.payload import Training, TrainOptions
from edt_sdk.training.user.progress_lines import ProgressLines
from edt_sdk.training.user.scaleup import ScaleUp

if TYPE_CHECKING:
    from edt_sdk.client import Job


@names_checked
class FabricModel:
    """Holds a model and everything needed to train it.

    Args:
        model: the module, on the CPU. Workers place it.
        datasets_function: called without arguments in each worker. Returns `(train, test)`, two map-style data sets of
            `(features, label)`. The second is None when there is no validation data.
        loss_function: `loss_function(outputs, labels)` → mean loss of a batch, a scalar tensor.
        optimizer: built over parameters of `model`, all or some.
        driver_logger: a `LoggerCallback` in the driver. Replaces the lines on progress that are printed by default.
        worker_logger: a `LoggerCallback` in each worker.
        user_callback: a `Callback`, or a list of them. They run on rank 0.
        enable_onnx, save_to_onnx: if either is True, the trained model is also written as `model_epoch_final.onnx` next
            to the weights. Needs the extra `onnx`. A model that cannot be exported gives a line in the log.
        fn_step_train: `fn_step_train(model, data, eva, train_loader, fn_args)` → `(right answers, loss)`. Replaces the
            engine's forward and backward pass of a micro-batch.
        fn_test: `fn_test(model, test_iter, fn_args)` → validation loss. Runs on rank 0 and replaces the engine's
            validation.
        scaleup_function: `scaleup_function(epoch, most)` → most workers from that epoch on. The scheduler may grant
            fewer. A function that fails is ignored with a line in the log.
        metrics: functions `metric(outputs, labels)` → number, averaged over samples like loss and accuracy.
        worker_logger_callback, driver_logger_callback: loggers with the hooks of WMLA 4 and 5, which get a dictionary.
        keras_custom_objects: accepted, without meaning for PyTorch.
        fn_batch_collate: list of samples → `(features, labels)`. Default: torch's default collate.
        fn_test_collate: the same for the validation. Default: `fn_batch_collate`.
        clip_grad_norm: greatest norm of an update's combined gradient. None does not clip.
        lr_scheduler: one of `torch.optim.lr_scheduler`, built over `optimizer`. The engine steps it.

    Attributes:
        model, optimizer: as given.
        job: the `Job` that the last `train()` became. None inside a job, and before the first call.

    Raises:
        InvalidRequest: an argument has the wrong type, or does not fit the others.
    """

    job: Job | None = None

    def __init__(
        self,
        model: nn.Module,
        datasets_function: Callable[[], Any],
        loss_function: Callable[..., Any],
        optimizer: torch.optim.Optimizer,
        *,
        driver_logger: Any = None,
        worker_logger: Any = None,
        user_callback: Any = None,
        enable_onnx: bool = False,
        fn_step_train: Callable[..., Any] | None = None,
        fn_test: Callable[..., Any] | None = None,
        scaleup_function: Callable[..., Any] | None = None,
        metrics: Sequence[Callable[..., Any]] | None = None,
        worker_logger_callback: Any = None,
        driver_logger_callback: Any = None,
        save_to_onnx: bool = False,
        keras_custom_objects: Mapping[str, Any] | None = None,
        fn_batch_collate: Callable[..., Any] | None = None,
        fn_test_collate: Callable[..., Any] | None = None,
        clip_grad_norm: float | None = None,
        lr_scheduler: torch.optim.lr_scheduler.LRScheduler | None = None,
    ) -> None:
        checks.check_model(model)
        checks.check_optimizer(optimizer, model)
        checks.check_lr_scheduler(lr_scheduler, optimizer)
        check_callable("datasets_function", datasets_function, "Define a function that returns (train, test).")
        check_callable("loss_function", loss_function, "Give a function such as torch.nn.functional.cross_entropy.")
        optional = {
            "fn_step_train": fn_step_train,
            "fn_test": fn_test,
            "fn_batch_collate": fn_batch_collate,
            "fn_test_collate": fn_test_collate,
        }
        for name, function in optional.items():
            if function is not None:
                check_callable(name, function, "Give the function itself, or leave it out.")
        for metric in _as_tuple(metrics):
            check_callable("metrics", metric, "Each metric is a function of (outputs, labels).")
        if clip_grad_norm is not None and not clip_grad_norm > 0:
            raise InvalidRequest(f"clip_grad_norm must be above 0, not {clip_grad_norm}.", field="clip_grad_norm")
        onnx = bool(enable_onnx or save_to_onnx)
        # Reported now, because the export itself comes only at the end of the training.
        if onnx and (why := onnx_file.impediment()):
            _tell(f"no ONNX file will be written: {why}")
        if scaleup_function is not None and not callable(scaleup_function):
            _tell(f"scaleup_function is ignored: it is {scaleup_function!r}, not a function.")
            scaleup_function = None
        # torch drops it from the pickle, and a compiled function cannot be sent.
        if any(module._compiled_call_impl is not None for module in model.modules()):
            _tell(
                "model.compile() has no effect on the training: the workers run the model as it is written. "
                "torch.compile(model) gives a model that is compiled in each worker."
            )
        _tell_unused(keras_custom_objects=keras_custom_objects)
        self.model = model
        self.optimizer = optimizer
        # The arguments as given. A submitted call passes them again inside the job.
        self._given: dict[str, Any] = {
            "model": model,
            "datasets_function": datasets_function,
            "loss_function": loss_function,
            "optimizer": optimizer,
            "driver_logger": driver_logger,
            "worker_logger": worker_logger,
            "user_callback": user_callback,
            "fn_step_train": fn_step_train,
            "fn_test": fn_test,
            "metrics": metrics,
            "worker_logger_callback": worker_logger_callback,
            "driver_logger_callback": driver_logger_callback,
            "fn_batch_collate": fn_batch_collate,
            "fn_test_collate": fn_test_collate,
            "scaleup_function": scaleup_function,
            "clip_grad_norm": clip_grad_norm,
            "lr_scheduler": lr_scheduler,
            "save_to_onnx": onnx,
        }

    def train(
        self,
        epoch_number: int,
        batch_size: int,
        engines_number: int | None = None,
        *,
        num_dataloader_threads: int = 0,
        validation_freq: int = 1,
        checkpoint_freq: int = 1,
        effective_batch_size: int | None = None,
        lr_step: str = "epoch",
        on_nan: str = "warn",
        mode: str | None = None,
        worker_memory: str | None = None,
        driver_memory: str | None = None,
        hardware_spec: Mapping[str, Any] | str | None = None,
        worker_num: int | None = None,
        worker_device_num: int | None = None,
    ) -> None:
        """Train. Returns when the training is over and the trained weights are in `model`.

        The optimizer and the `lr_scheduler` have their final state then, and a second call continues with it.

        Outside a job, in a notebook cell or a plain script, the call is submitted as a job and waited for. A cell shows
        a live figure, a script prints a line of progress. Ctrl-C then ends the waiting, not the job. `self.job` stops
        it, waits again, or loads the weights: `job.load_into(model)`. Loggers and callbacks run in the job, and data
        paths are resolved there. When a driver has died and its script runs again, the call attaches to the existing
        training.

        Args:
            epoch_number: passes over the training set, ≥ 1.
            batch_size: samples a worker computes at once, ≥ 1.
            engines_number: most workers, and how many batches of `batch_size` one update averages. Default 8 if
                `effective_batch_size` is not given either. The current number of workers never changes the result.
            num_dataloader_threads: processes that load samples for each worker.
            validation_freq: epochs between validations. 0 for none.
            checkpoint_freq: epochs between `.pth` files. 0 for none but the final ones.
            effective_batch_size: samples of an update, instead of `engines_number`.
            lr_step: when `lr_scheduler` steps: after each "epoch" or after each "update".
            on_nan: when a loss is not a number, "warn" names update and shard in the log and continues. "stop" fails
                the job before that update changes the model.
            mode: "exact" (default), equal bits for any number of workers, or "fast". Inside a job, the job's mode is
                used.
            hardware_spec: outside a job, most workers: `{"nodes": {"num_nodes": …, "gpu": {"num_gpu": …}}}`. It
                overrides `engines_number`, which then only sets what an update averages. Inside a job, the submission
                counts.
            worker_num: likewise, times `worker_device_num`, if `engines_number` is not given.
            worker_device_num: see `worker_num`.
            worker_memory: accepted. A slot has no memory limit.
            driver_memory: accepted, likewise.

        Raises:
            InvalidRequest, Unprocessable: an argument is not valid, or cannot be sent to the workers.
            JobFailed: a worker failed. The message is the worker's.
            ServerUnreachable: outside a job, when there is no server.
        """
        own = session.current()
        _tell_unused(worker_memory=worker_memory, driver_memory=driver_memory)
        # Computed in a driver too, where it has no effect, so that an invalid value fails in both places alike.
        limit = checks.most_workers(
            engines_number=engines_number,
            hardware_spec=hardware_spec,
            worker_num=worker_num,
            worker_device_num=worker_device_num,
        )
        if own is not None:
            _tell_unused(hardware_spec=hardware_spec, worker_num=worker_num, worker_device_num=worker_device_num)
        elif engines_number is None and effective_batch_size is None:
            # WMLA's worker keywords then also set what an update averages.
            engines_number = limit
        options = TrainOptions(
            epochs=whole("epoch_number", epoch_number, 1),
            micro_batch=whole("batch_size", batch_size, 1),
            shards=shard_sizes(batch_size, engines_number=engines_number, effective_batch_size=effective_batch_size),
            loader_workers=whole("num_dataloader_threads", num_dataloader_threads, 0),
            validation_freq=whole("validation_freq", validation_freq, 0),
            checkpoint_freq=whole("checkpoint_freq", checkpoint_freq, 0),
            clip_grad_norm=self._given["clip_grad_norm"],
            nan_loss=one_of("on_nan", on_nan, ("warn", "stop")),
            lr_step=one_of("lr_step", lr_step, ("epoch", "update")),
        )
        if mode is not None:
            one_of("mode", mode, ("exact", "fast"))
        if own is not None:
            if mode not in (None, own.job.mode):
                _tell(f"mode={mode!r} has no effect here: this job was submitted with mode {own.job.mode!r}.")
            self._train_here(own, options)
        # A worker imports the user's modules when it loads the payload. A call at module level would train in each
        # worker.
        elif worker_context() is not None:
            raise Conflict(
                "train() was called in a worker, while it loaded the model's code.",
                hint='Put the call under `if __name__ == "__main__":`.',
            )
        else:
            self._train_as_job(
                # More workers than shards would have nothing to compute.
                max_workers=min(limit or len(options.shards), len(options.shards)),
                mode=mode or "exact",
                epoch_number=epoch_number,
                batch_size=batch_size,
                engines_number=engines_number,
                num_dataloader_threads=num_dataloader_threads,
                validation_freq=validation_freq,
                checkpoint_freq=checkpoint_freq,
                effective_batch_size=effective_batch_size,
                lr_step=lr_step,
                on_nan=on_nan,
            )

    def download(self, out_dir: str | None = None) -> str:
        """Save the trained model as `<out_dir>/<job id>.zip`, print the path and return it.

        Args:
            out_dir: created when missing. Default /tmp, as in WMLA.

        Raises:
            Conflict: no training was started from here.
        """
        folder, own = Path(out_dir or "/tmp"), session.current()
        if own is not None and own.trainings:
            path = model_zip.write(own.job.paths, folder)
        elif self.job is not None:
            saved = self.job.download(folder, "model")
            path = saved.replace(saved.with_name(f"{self.job.id}.zip"))
        else:
            raise Conflict("There is nothing to download: train() has not been called.", hint="Train the model first.")
        print(f"Save model:  {path}")
        return str(path)

    def _train_as_job(self, *, max_workers: int, mode: str, **arguments: Any) -> None:
        # Imported here: the client has many modules that neither drivers nor workers need, and zygotes import this file
        # per job.
        from edt_sdk.notebook import live_cell
        from edt_sdk.packing.upload import QUIET_VARIABLE
        from edt_sdk.training.calls import call

        self.job = call.submit(self._given, arguments, max_workers=max_workers, mode=mode)
        if in_notebook() and not os.environ.get(QUIET_VARIABLE):
            live_cell.wait(self.job)
        else:
            self.job.wait()
        self.job.load_into(self.model, self.optimizer, self._given["lr_scheduler"])
        print(f"Job {self.job.id} finishes with state {self.job.state.value}.")

    def _train_here(self, own: session.Session, options: TrainOptions) -> None:
        if validation_call.passes(own, self.model) or serving_call.passes(own, self.model):
            return
        training = own.trainings
        self._request(own, training, options)
        self._wait(own, training, options)
        # A later training may have replaced the file with WMLA's name.
        paths = own.job.paths
        final = paths.final(training)
        checkpoint.load(final if final.exists() else paths.train_dir / "model_epoch_final.pth", self.model)
        if own.job.validates is None:
            # A next train() continues with it.
            checkpoint.load_optimizer(paths.train_dir, self.optimizer, self._given["lr_scheduler"])
        validation_call.tell(own)

    def _request(self, own: session.Session, training: int, options: TrainOptions) -> None:
        path = own.job.paths.payload(training)
        wanted = validation_call.meant(own, self._training(options))
        # An earlier driver, now dead, may have requested this training. Its workers continue with the payload it wrote.
        if not path.exists():
            payload.write(path, payload.pack(wanted, own.folders_of_code()))
        own.trainings += 1
        epochs = options.epochs if own.job.validates is None else 0
        # Sent even if the training exists already: that is how a restarted driver attaches to it.
        own.link.send(TrainRequest(training=training, payload=str(path), shards=len(options.shards), epochs=epochs))

    def _training(self, options: TrainOptions) -> Training:
        """Return what the workers get: everything except the driver's loggers."""
        given = {field.name: self._given[field.name] for field in fields(Training) if field.name in self._given}
        given |= {"model": self.model, "optimizer": self.optimizer, "metrics": _as_tuple(self._given["metrics"])}
        callbacks = _as_tuple(self._given["user_callback"])
        return Training(options=options, callbacks=callbacks, called=_calling_line(), **given)

    def _wait(self, own: session.Session, training: int, options: TrainOptions) -> None:
        lines = ProgressLines(options.epochs) if own.job.quiet else None
        loggers = DriverLoggers(self._given["driver_logger"], self._given["driver_logger_callback"], lines)
        scale = ScaleUp(self._given["scaleup_function"], len(options.shards), options.epochs, _tell)
        follow(own, training, loggers, options.epochs, each=lambda epoch: self._scale(own, training, scale, epoch))

    def _scale(self, own: session.Session, training: int, scale: ScaleUp, epoch: int) -> None:
        workers = scale.begin(epoch)
        if workers is not None:
            own.link.send(Scaled(training=training, workers=workers))


def _as_tuple(given: Any) -> tuple[Any, ...]:
    if given is None:
        return ()
    return tuple(given) if isinstance(given, list | tuple) else (given,)


def _calling_line() -> str:
    """Return the file and line of the script that calls `train()`, "" for a call that was submitted from a cell."""
    from edt_sdk.training.calls import call

    found: FrameType | None = sys._getframe(1)
    while found is not None and found.f_globals.get("__name__", "").startswith("edt_sdk."):
        found = found.f_back
    name = "" if found is None else Path(found.f_code.co_filename).name
    return "" if found is None or name == call.MAIN else f"{name}, line {found.f_lineno}"


def _tell_unused(**arguments: Any) -> None:
    given = [name for name, value in arguments.items() if value is not None]
    if given:
        _tell(f"{', '.join(given)}: accepted, without effect here.")


def _tell(text: str) -> None:
    print(f"edt: {text}", file=sys.stderr, flush=True)
