"""The places of a job's files: one tree for the user and one for the machinery.

`results/<owner>/batchworkdir/<job id>/` is WMLA's result tree, which the user's code sees as RESULT_DIR and which a
download contains. `jobs/<job id>/` (0700) is ours: payloads, commit log, streams, keys. Deleting a job deletes both.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from edt_sdk.schemas.validation import RESULT

_OF_EPOCH = re.compile(r"model_epoch_\d+(_optimizer_state)?\.pth\Z")
SUBMITTED_CODE = "_submitted_code"


@dataclass(frozen=True, slots=True)
class JobPaths:
    """The places of a job below `data_dir`."""

    data_dir: Path
    owner: str
    job_id: str

    @property
    def results_root(self) -> Path:
        """Return DLI_RESULT_FS."""
        return self.data_dir / "results"

    @property
    def result_dir(self) -> Path:
        """Return RESULT_DIR."""
        # WMLA's path: its scripts build RESULT_DIR themselves from DLI_RESULT_FS and the name of the user.
        # Joined at once, as the view of each job in a list has it.
        return Path(self.results_root, self.owner, "batchworkdir", self.job_id)

    @property
    def submitted(self) -> Path:
        """Return the folder of the unpacked package.

        The code folder is this or its one sub-folder (`JobSpec.code_dir`).
        """
        return self.result_dir / SUBMITTED_CODE

    def code_dir(self, name: str) -> Path:
        """Return DLI_WORK_DIR, the working directory of driver and workers."""
        return self.submitted / name if name else self.submitted

    @property
    def model_dir(self) -> Path:
        """Return SAVED_MODEL_DIR."""
        return self.result_dir / "model"

    @property
    def train_dir(self) -> Path:
        """Return the folder that the engine writes `model_epoch_<N>.pth` to."""
        return self.model_dir / "train"

    @property
    def checkpoint_dir(self) -> Path:
        """Return CHECKPOINT_DIR."""
        return self.result_dir / "checkpoint"

    def checkpoints(self, training: int) -> Path:
        """Return the folder of the checkpoints that a training resumes from, see `training/rolling.py`.

        It holds `epoch-<N>.ckpt` after epoch N (from 1) and `update-<N>.ckpt` after N committed updates.
        """
        return self.checkpoint_dir / f"training-{training}"

    @property
    def validation(self) -> Path:
        """Return the file with the result of a validation, see `schemas/validation.py`."""
        return self.result_dir / RESULT

    @property
    def log_root(self) -> Path:
        """Return the parent of every LOG_DIR."""
        return self.result_dir / "log"

    def driver_log_dir(self, host: str) -> Path:
        """Return LOG_DIR of the driver: ELog's `stdout` and EMetrics' `evaluation-metrics.txt` land here."""
        # WMLA's result tree names these folders after the ids of driver and executor (docs/decisions/021).
        return self.log_root / f"driver-{self.job_id}.{host}"

    def worker_log_dir(self, worker: int, host: str) -> Path:
        """Return a worker's LOG_DIR."""
        return self.log_root / f"{worker}-{self.job_id}.{host}"

    @property
    def job_dir(self) -> Path:
        """Return the machinery's folder, 0700."""
        return self.data_dir / "jobs" / self.job_id

    @property
    def launch_file(self) -> Path:
        """Return the file with the supervisor's orders (`control.Launch` as JSON), 0600."""
        # 0600, because it contains the supervisor's secret key.
        return self.job_dir / "launch.json"

    @property
    def journal(self) -> Path:
        """Return the file of the supervisor's numbered reports, kept after the server has acknowledged them."""
        # Appended to before a report is sent, so that no report is lost with its supervisor (docs/decisions/003).
        return self.job_dir / "journal.jsonl"

    @property
    def supervisor_log(self) -> Path:
        """Return the file with the stderr of the supervisor itself."""
        return self.job_dir / "supervisor.log"

    def payload(self, training: int) -> Path:
        """Return the file with the cloudpickle of the k-th `train()` call, 0600."""
        return self.job_dir / f"training-{training}.payload"

    def commits(self, training: int) -> Path:
        """Return the commit log of the k-th training (see `training/recorder.py`)."""
        return self.job_dir / f"training-{training}.commits.jsonl"

    def metrics(self, training: int) -> Path:
        """Return the metrics of the k-th training (see `training/recorder.py`)."""
        return self.job_dir / f"training-{training}.metrics.jsonl"

    def discarded(self, training: int) -> Path:
        """Return the file of discarded lines of the commit log.

        Their updates were lost with every process that knew them, and were computed again.
        """
        return self.job_dir / f"training-{training}.discarded.jsonl"

    def superseded(self, file: Path) -> bool:
        """Return whether a file below `model/` holds weights of an epoch, while there are final ones."""
        of_epoch = file.parent == self.train_dir and _OF_EPOCH.match(file.name) is not None
        return of_epoch and (self.train_dir / "model_epoch_final.pth").exists()

    def final(self, training: int) -> Path:
        """Return the k-th training's final state dict, kept when a later one replaces `model_epoch_final.pth`."""
        return self.job_dir / f"training-{training}.final.pth"

    def signature(self, training: int) -> Path:
        """Return what the k-th training's model takes and returns, see `schemas/serving/examples.py`."""
        return self.job_dir / f"training-{training}.signature.json"

    @property
    def resume_from(self) -> Path:
        """Return the file that names the checkpoint to resume from, such as `epoch-3`.

        A person chose that checkpoint. The file is removed once the checkpoint was loaded.
        """
        return self.job_dir / "resume_from"

    @property
    def temporary(self) -> Path:
        """Return the folder of what is /tmp in the job's sandboxes. It is removed with the job's processes."""
        # Each host has a folder of its own in it. Named hosts of one machine share this one.
        return self.job_dir / "tmp"

    @property
    def streams_dir(self) -> Path:
        """Return the folder of the raw stdout and stderr of every process, such as `driver.stdout`."""
        return self.job_dir / "streams"

    @property
    def stream_index(self) -> Path:
        """Return the index of the streams' growth: JSON lines `{"t": seconds, "f": file name, "n": bytes}`."""
        return self.job_dir / "streams.index.jsonl"

    def stream_index_of(self, host: str) -> Path:
        """Return the index of the streams that grow on a host whose files the job's supervisor does not see."""
        return self.job_dir / f"streams.index.{host}.jsonl"

    def stream_indexes(self) -> list[Path]:
        """Return all indexes that there are."""
        return sorted(self.job_dir.glob("streams.index*.jsonl"))
