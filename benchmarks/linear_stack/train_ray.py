"""Ray Train's side: the same model and update under Ray Train v2, run on the head of a Ray with its Python.

As Ray's guides to elastic training and failures have it: `num_workers=(1, 2)`, failures without a limit, and a
checkpoint every `--save-every` updates. `get_preemption_info()` is left out: it waits for all workers in each update,
and a checkpoint more at the notice saves nothing here, because Ray Train goes on until the machine's deadline.
"""

import os
import tempfile
from pathlib import Path

import ray.train
import torch
from ray.train import Checkpoint, CheckpointConfig, FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchConfig, TorchTrainer
from train_torchrun import Trainer, arguments


class OnRay(Trainer):
    """One worker's training, whose checkpoints Ray Train keeps."""

    def _load(self):
        if self.rank == 0:
            # The benchmark asks which machine has rank 0.
            Path(f"{self.options.commits}.home").write_text(ray.util.get_node_ip_address())
        found = ray.train.get_checkpoint()
        if found is None:
            return 0
        with found.as_directory() as folder:
            return self._take(torch.load(Path(folder) / "state.pt", weights_only=True))

    def _save(self):
        with tempfile.TemporaryDirectory() as folder:
            checkpoint = None
            if self.rank == 0:
                torch.save(self._state(), Path(folder) / "state.pt")
                checkpoint = Checkpoint.from_directory(folder)
            ray.train.report({"updates": self.done}, checkpoint=checkpoint)


def train(options):
    """Train in one worker."""
    torch.set_num_threads(1)
    OnRay(options["options"]).run()


if __name__ == "__main__":
    chosen = arguments()
    ray.init(address=os.environ["BENCH_RAY"])
    TorchTrainer(
        train,
        train_loop_config={"options": chosen},
        torch_config=TorchConfig(backend="gloo"),
        scaling_config=ScalingConfig(
            num_workers=(1, 2), elastic_resize_monitor_interval_s=float(os.environ["BENCH_RESIZE_INTERVAL"])
        ),
        run_config=RunConfig(
            storage_path=str(chosen.checkpoint),
            name="benchmark",
            failure_config=FailureConfig(max_failures=-1),
            checkpoint_config=CheckpointConfig(num_to_keep=2),
        ),
    ).fit()
