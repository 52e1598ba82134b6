"""Hold the state of Lightning's trainer, which travels to workers that join: in the form of Lightning's checkpoints.

Loops, callbacks, schedulers and hooks of the module have their state in such a checkpoint. What Lightning leaves out,
because it is not needed at the end of an epoch, is added: what was logged, metrics, and the names of files.
"""

from __future__ import annotations

from typing import Any

import torch
from lightning import LightningModule
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loops.loop import _Loop
from lightning.pytorch.trainer import call
from torch import Tensor

from edt_sdk.lightning.recording import PartRecorder, numbers_of

_OF_CONNECTOR = ("_progress_bar_metrics", "_logged_metrics", "_callback_metrics", "_current_fx", "_first_loop_iter")
_OF_CHECKPOINTS = ("dirpath", "_last_global_step_saved", "_last_checkpoint_saved")
_WEIGHTS = ("state_dict", "current_model_state")  # the second one is of callbacks that average weights


class TrainerState:
    """Captures and restores the state of a trainer between two updates, for `edt_sdk.elastic.elastic()`.

    Attributes:
        files: checkpoints that are there, as all workers know it: only one of them writes.
    """

    def __init__(self, trainer: Any, module: LightningModule, recorder: PartRecorder) -> None:
        self._trainer = trainer
        self._module = module
        self._recorder = recorder
        self._noted: tuple[Any, Any] | None = None
        self.files: set[str] = set()

    def note(self) -> None:
        """Take note of loops and callbacks before an update begins.

        Where a worker joins after hooks of the update have run, it runs them itself, from here on.
        """
        self._noted = self._trainer.fit_loop.state_dict(), call._call_callbacks_state_dict(self._trainer)

    def state_dict(self) -> dict[str, Any]:
        """Return the state, without the weights that travel on their own."""
        trainer = self._trainer
        checkpoint = trainer._checkpoint_connector.dump_checkpoint(weights_only=False)
        for known in ("optimizer_states", LightningModule.CHECKPOINT_HYPER_PARAMS_KEY):
            checkpoint.pop(known, None)
        own = {tensor.data_ptr() for tensor in self._module.state_dict().values() if isinstance(tensor, Tensor)}
        for name in _WEIGHTS:
            if name in checkpoint:
                checkpoint[name] = {
                    key: value
                    for key, value in checkpoint[name].items()
                    if not isinstance(value, Tensor) or value.data_ptr() not in own
                }
        checkpoint["loops"] = trainer.fit_loop.state_dict()
        if self._noted is not None:
            checkpoint["loops"], checkpoint["callbacks"] = self._noted
        connector = trainer._logger_connector
        return {
            "checkpoint": checkpoint,
            "metrics": self._recorder.states(),
            "logged": [_logged(key, each) for key, each in self._recorder.results.items()],
            "connector": {name: getattr(connector, name) for name in _OF_CONNECTOR},
            "numbers": numbers_of(self._module),
            "should_stop": trainer.should_stop,
            "seen": dict(trainer.fit_loop.epoch_loop.val_loop._seen_batches_per_dataloader),
            "files": sorted(self.files),
            "checkpoints": [{name: getattr(each, name) for name in _OF_CHECKPOINTS} for each in self._checkpoints()],
            "versions": [getattr(each, "_version", None) for each in trainer.loggers],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Put the trainer of this worker where that of another one was."""
        trainer, connector = self._trainer, self._trainer._checkpoint_connector
        for callback, values in zip(self._checkpoints(), state["checkpoints"], strict=True):
            vars(callback).update(values)
        for logger, version in zip(trainer.loggers, state["versions"], strict=True):
            if version is not None and logger._version != version:
                logger._version = version
                logger._experiment = None
        checkpoint = state["checkpoint"]
        self._noted = checkpoint["loops"], checkpoint["callbacks"]
        for name in _WEIGHTS:
            if name in checkpoint:
                checkpoint[name] = {**self._module.state_dict(), **checkpoint[name]}
        connector._loaded_checkpoint = checkpoint
        connector.restore_datamodule()
        call._call_lightning_module_hook(trainer, "on_load_checkpoint", checkpoint)
        connector.restore_callbacks()
        connector.restore_precision_plugin_state()
        connector.restore_lr_schedulers()
        connector._loaded_checkpoint = {}
        trainer.fit_loop.load_state_dict(checkpoint["loops"])
        _go_on(trainer.fit_loop)
        self._recorder.put(state["metrics"])
        self._recorder.results.clear()
        for each in state["logged"]:
            self._put_logged(*each)
        vars(trainer._logger_connector).update(state["connector"])
        vars(self._module).update(state["numbers"])
        trainer.should_stop = state["should_stop"]
        trainer.fit_loop.epoch_loop.val_loop._seen_batches_per_dataloader.update(state["seen"])
        self.files = set(state["files"])

    def _checkpoints(self) -> list[ModelCheckpoint]:
        return [each for each in self._trainer.checkpoint_callbacks if isinstance(each, ModelCheckpoint)]

    def _put_logged(self, key: str, options: dict[str, Any], values: dict[str, Any]) -> None:
        results = self._recorder.results
        if options["metric_attribute"] is None:
            value: Any = torch.tensor(0.0, device=self._module.device)
        else:
            value = self._module.get_submodule(options["metric_attribute"])
        results.log(value=value, batch_size=1, **options)
        vars(results[key]).update(values)


def _logged(key: str, result: Any) -> tuple[str, dict[str, Any], dict[str, Any]]:
    meta = result.meta
    names = ("fx", "name", "prog_bar", "logger", "on_step", "on_epoch", "add_dataloader_idx", "metric_attribute")
    options = {name: getattr(meta, name) for name in names}
    options["reduce_fx"] = meta.reduce_fx.__name__
    kept = ("has_reset", "_forward_cache", "_computed", "_update_count")
    values = ("value", "cumulated_batch_size") if result.is_tensor else ()
    return key, options, {name: getattr(result, name) for name in (*kept, *values) if hasattr(result, name)}


def _go_on(loop: _Loop) -> None:
    """Have a loop and those within it go on where they are, not as after a restart."""
    loop._restarting = loop._loaded_from_state_dict = loop._resuming_from_checkpoint = False
    for each in vars(loop).values():
        if isinstance(each, _Loop):
            _go_on(each)
