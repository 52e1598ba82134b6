"""Where the files of a job lie: two trees, one for the user and one for the machinery.

`results/<owner>/batchworkdir/<job id>/` is WMLA's result tree, what the user's code sees as RESULT_DIR and what a
download contains. `jobs/<job id>/` (0700) is ours: payloads, commit log, streams, keys. Deleting a job deletes both.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from edt_sdk.schemas.validation import RESULT

SUBMITTED_CODE = "_submitted_code"


@dataclass(frozen=True, slots=True)
class JobPaths:
    """The places of one job below `data_dir`."""

    data_dir: Path
    owner: str
    job_id: str

    @property
    def results_root(self) -> Path:
        """DLI_RESULT_FS."""
        return self.data_dir / "results"

    @property
    def result_dir(self) -> Path:
        """RESULT_DIR."""
        return self.results_root / self.owner / "batchworkdir" / self.job_id

    @property
    def submitted(self) -> Path:
        """The unpacked package; the code folder is this or its one sub-folder (`JobSpec.code_dir`)."""
        return self.result_dir / SUBMITTED_CODE

    def code_dir(self, name: str) -> Path:
        """DLI_WORK_DIR, the working directory of driver and workers."""
        return self.submitted / name if name else self.submitted

    @property
    def model_dir(self) -> Path:
        """SAVED_MODEL_DIR."""
        return self.result_dir / "model"

    @property
    def train_dir(self) -> Path:
        """Where the engine writes `model_epoch_<N>.pth`."""
        return self.model_dir / "train"

    @property
    def checkpoint_dir(self) -> Path:
        """CHECKPOINT_DIR."""
        return self.result_dir / "checkpoint"

    def checkpoints(self, training: int) -> Path:
        """Where the engine keeps what a training is resumed from, see `training/rolling.py`.

        `epoch-<N>.ckpt` after epoch N (from 1), `update-<N>.ckpt` behind N committed updates.
        """
        return self.checkpoint_dir / f"training-{training}"

    @property
    def validation(self) -> Path:
        """What a validation came to, see `schemas/validation.py`."""
        return self.result_dir / RESULT

    @property
    def log_root(self) -> Path:
        """Parent of every LOG_DIR."""
        return self.result_dir / "log"

    def driver_log_dir(self, host: str) -> Path:
        """LOG_DIR of the driver: ELog's `stdout` and EMetrics' `evaluation-metrics.txt` land here."""
        return self.log_root / f"driver-{self.job_id}.{host}"

    def worker_log_dir(self, worker: int, host: str) -> Path:
        """LOG_DIR of one worker."""
        return self.log_root / f"{worker}-{self.job_id}.{host}"

    @property
    def job_dir(self) -> Path:
        """The machinery's folder, 0700."""
        return self.data_dir / "jobs" / self.job_id

    @property
    def launch_file(self) -> Path:
        """The supervisor's orders (`control.Launch` as JSON), 0600."""
        return self.job_dir / "launch.json"

    @property
    def journal(self) -> Path:
        """The supervisor's numbered reports, kept until the server has acknowledged them and after."""
        return self.job_dir / "journal.jsonl"

    @property
    def supervisor_log(self) -> Path:
        """stderr of the supervisor itself."""
        return self.job_dir / "supervisor.log"

    def payload(self, training: int) -> Path:
        """The cloudpickle of the k-th `train()` call, 0600."""
        return self.job_dir / f"training-{training}.payload"

    def commits(self, training: int) -> Path:
        """The commit log of the k-th training (see `training/recorder.py`)."""
        return self.job_dir / f"training-{training}.commits.jsonl"

    def metrics(self, training: int) -> Path:
        """The metrics of the k-th training (see `training/recorder.py`)."""
        return self.job_dir / f"training-{training}.metrics.jsonl"

    def discarded(self, training: int) -> Path:
        """Lines of the commit log whose updates were lost with all who knew them, and computed again."""
        return self.job_dir / f"training-{training}.discarded.jsonl"

    def final(self, training: int) -> Path:
        """The k-th training's final state dict, also when a later one has replaced `model_epoch_final.pth`."""
        return self.job_dir / f"training-{training}.final.pth"

    @property
    def resume_from(self) -> Path:
        """Names the checkpoint that a person wants to resume from, such as `epoch-3`; removed once it was loaded."""
        return self.job_dir / "resume_from"

    @property
    def streams_dir(self) -> Path:
        """Raw stdout and stderr of every process, such as `driver.stdout` and `worker-<n>.stderr`."""
        return self.job_dir / "streams"

    @property
    def stream_index(self) -> Path:
        """When the streams grew: JSON lines `{"t": seconds, "f": file name, "n": bytes}`."""
        return self.job_dir / "streams.index.jsonl"
