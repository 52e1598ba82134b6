"""Begin the training of a script, wherever it runs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from edt_sdk.elastic.driver_side import DriverSide
from edt_sdk.elastic.run import ElasticRun
from edt_sdk.elastic.run_state import RunState
from edt_sdk.elastic.sharded import Sharded
from edt_sdk.elastic.sides import Alone, Side
from edt_sdk.elastic.things import Things
from edt_sdk.elastic.worker_side import WorkerParts, WorkerSide
from edt_sdk.schemas.errors import Conflict, InvalidRequest, Unprocessable
from edt_sdk.schemas.wire.context import job_context
from edt_sdk.training.calls import serving_call, session
from edt_sdk.training.member import script_worker
from edt_sdk.training.member.script_worker import ScriptWorker
from edt_sdk.training.update import determinism
from edt_sdk.training.update.update import MOST_SHARDS, UpdateEngine
from edt_sdk.training.user.own_state import OwnState

if TYPE_CHECKING:
    from edt_sdk.elastic.sharded_engine import ShardedEngine


def elastic(
    *,
    seed: int = 0,
    keep_seed: bool = False,
    mode: str = "exact",
    on_nan: str = "warn",
    device: str | None = None,
    parallel: Sharded | None = None,
    **things: Any,
) -> ElasticRun:
    """Return the training of a script that keeps its own loop.

    Args:
        seed: of the order of samples, dropout and augmentation. In a job, the job's is used.
        keep_seed: use `seed` in a job too.
        mode: "exact", equal bits for any number of workers, or "fast". In a job, the job's is used.
        on_nan: when a loss is not a number, "warn" names update and part in the log and continues. "stop" fails before
            that update changes a model.
        device: outside a job, where to compute. Default: a GPU if there is one.
        parallel: in a job, how the model is divided among the workers. Default: each worker has the whole model.
        **things: models, optimizers, and whatever else has `state_dict()` and `load_state_dict()`: schedulers, averages
            of weights, scalers, counters, and dictionaries of plain variables. All of it reaches workers that join, and
            is in each checkpoint. What is not given here is not: a worker that joins has it as the script makes it
            before the loop.

    Raises:
        InvalidRequest: a thing has no state that could travel, or an optimizer belongs to a model that was not given.
        Unprocessable: a model cannot be sharded as `parallel` says, or not together with something else that was given.
        Conflict: it is called a second time in a job.
    """
    given = Things(things)
    driver, worker = session.current(), script_worker.current()
    if parallel is not None:
        if not isinstance(parallel, Sharded):
            raise InvalidRequest(
                f"parallel must be edt.Sharded(Block), not {parallel!r:.60}.",
                hint="Block is the class of the model's layers.",
                field="parallel",
            )
        parallel.check(given)
        if driver is not None and driver.job.mode != "fast":
            raise Unprocessable(
                "A sharded model has other bits with another number of workers, and this job's mode is exact.",
                hint="Submit it with mode='fast' (in a shell: --mode fast).",
                field="parallel",
            )
    if worker is not None:
        return _in_worker(worker, given, seed if keep_seed else worker.job.seed, on_nan, parallel)
    if driver is not None:
        serving_call.passes(driver, given.main)
        if driver.job.validates is not None:
            raise Unprocessable(
                "A job with a loop of its own has no validation of its own.", hint="Call run.evaluate() in the script."
            )
        seed, mode = seed if keep_seed else driver.job.seed, driver.job.mode
    elif (job := job_context()) is not None:
        raise Conflict(
            f"This job's framework is {job.framework}, which runs the script as it is: elastic() needs edtPyTorch.",
            hint="Submit it with framework='edtPyTorch'.",
        )
    else:
        determinism.configure(mode)
    where = device or ("cuda" if torch.cuda.is_available() and driver is None else "cpu")
    current = RunState(given)
    side: Side = Alone(current, where) if driver is None else DriverSide(current, driver)
    folder = Path(os.environ.get("RESULT_DIR", ".")) if driver is None else driver.job.paths.train_dir
    return ElasticRun(given, side, _engine(given, seed, mode, where, on_nan), seed=seed, folder=folder)


def _in_worker(worker: ScriptWorker, given: Things, seed: int, on_nan: str, parallel: Sharded | None) -> ElasticRun:
    if worker.run is not None:
        raise Conflict(
            "elastic() was called a second time.",
            hint="Give all models and optimizers to one call, and train them in one loop or one after the other.",
        )
    job, divided = worker.job, None
    former, worker.former = worker.former if isinstance(worker.former, WorkerSide) else None, None
    engine: UpdateEngine | ShardedEngine
    if parallel is None:
        engine = _engine(
            given, seed, job.mode, worker.own.device, on_nan, worker=worker.own.worker, shards=worker.shards
        )
    else:
        # Only here, because it imports much of torch that other trainings do without.
        from edt_sdk.elastic.divided_model import DividedModel
        from edt_sdk.elastic.sharded_engine import ShardedEngine

        divided = DividedModel(given.main, given.optimizers, parallel.blocks, interval=job.checkpoint_interval)
        engine = ShardedEngine(divided, seed=seed, device=worker.own.device, nan_loss=on_nan, worker=worker.own.worker)
    parts = WorkerParts(
        worker.member_parts(engine) if former is None else former.member_parts,
        worker.training,
        warm_start=Path(job.warm_start) if job.warm_start else None,
        restart=worker.restart,
        inexact=lambda: engine.inexact,
        divided=divided,
    )
    side = WorkerSide(parts, given, former)
    worker.run = side
    return ElasticRun(given, side, engine, seed=seed, folder=job.paths.train_dir, divided=divided)


def _engine(
    given: Things, seed: int, mode: str, device: str, on_nan: str, *, worker: int = 0, shards: int = MOST_SHARDS
) -> UpdateEngine:
    return UpdateEngine(
        given.model,
        given.optimizer,
        None,
        order=None,
        seed=seed,
        device=device,
        mode=mode,
        nan_loss=on_nan,
        worker=worker,
        shards=shards,
        fingerprints=OwnState(given.model, **given.others).fingerprints,
    )
