"""Run a worker: prepare for one training, join a generation, compute until it leaves or the training ends.

The supervisor starts one worker for each slot as `python -u -m edt_sdk.training.worker`, for one training. Its settings
come from two environment variables and over the link. It imports torch and opens the data set before it is a member, so
the others go on training in the meantime.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import logging
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import torch

import edt_sdk.training.member.previous_zygote  # noqa: F401  # before all others
from edt_sdk.schemas.errors import EdtError, Unprocessable
from edt_sdk.schemas.wire.context import JobContext, WorkerContext, job_context, worker_context
from edt_sdk.schemas.wire.link import Begin, Failed, WorkerHello, WorkerReady
from edt_sdk.schemas.wire.pulse import STACK_SIGNAL, Phase, Pulse
from edt_sdk.training import driver
from edt_sdk.training.checkpoints.rolling import Keeper
from edt_sdk.training.exchange.group import open_store
from edt_sdk.training.member import script_worker
from edt_sdk.training.member.heartbeat import Heartbeat
from edt_sdk.training.member.leaving import leave
from edt_sdk.training.member.link import SUPERVISOR_GONE, Link, end_process
from edt_sdk.training.member.loop import Loop
from edt_sdk.training.member.membership import Endpoint
from edt_sdk.training.member.parts import Data, TrainingParts
from edt_sdk.training.member.script_worker import SCRIPT, ScriptWorker
from edt_sdk.training.records.recorder import Recorder
from edt_sdk.training.sampling.order import Order, TestOrder
from edt_sdk.training.sampling.seeds import derive, set_states
from edt_sdk.training.update import determinism
from edt_sdk.training.update.loader import ShardLoader
from edt_sdk.training.update.update import UpdateEngine
from edt_sdk.training.user import explanation, payload
from edt_sdk.training.user.datasets import open_datasets
from edt_sdk.training.user.logging_hooks import WorkerLoggers
from edt_sdk.training.user.own_state import OwnState
from edt_sdk.training.user.payload import Training
from edt_sdk.training.validation.step import validation_pass


@dataclass(slots=True)
class _Worker:
    job: JobContext
    own: WorkerContext
    link: Link
    training: Training | None = None


def main() -> int:
    """Run the worker and return its exit code."""
    job, own = job_context(), worker_context()
    if job is None or own is None:
        print("edt: this program is started by a job's supervisor (EDT_JOB and EDT_WORKER).", file=sys.stderr)
        return 2
    configure(job)
    worker = _Worker(job, own, Link.connect(job.link))
    try:
        return work(worker)
    except (Exception, SystemExit) as error:
        fail(worker, error)


def configure(job: JobContext) -> None:
    """Set what the bits depend on, and what the user's code expects in a process of its job."""
    torch.set_num_threads(job.threads_per_slot)
    torch.set_num_interop_threads(1)
    determinism.configure(job.mode)
    sys.argv = [job.main, *job.args]
    # Descriptor 2 and not `sys.stderr`, which the job's code may replace.
    faulthandler.register(STACK_SIGNAL, file=2, all_threads=False)
    log = logging.getLogger("edt_sdk")
    log.setLevel(logging.INFO)
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("edt: %(message)s"))
    log.addHandler(handler)


def work(worker: _Worker) -> int:
    """Prepare, join and train. Return the exit code."""
    job, own, link = worker.job, worker.own, worker.link
    pulse = Pulse(own.pulse)
    pulse.beat(Phase.OUTSIDE, 0)
    # The store listens before its port is announced, so a refused connection means that this worker is gone
    # (`connect_store`).
    store, port = open_store(own.interface)
    link.send(WorkerHello(worker=own.worker, pid=os.getpid(), host=own.interface, store_port=port))
    begin = link.take(Begin)
    assert begin is not None, "take without a timeout waits"
    number, paths, device = begin.training, job.paths, torch.device(own.device)
    memory = Path(job.memory_dir) if job.memory_dir else None
    content = payload.load(Path(begin.payload))
    if SCRIPT in content:
        return work_for_script(
            ScriptWorker(job, own, link, store, pulse, training=number, shards=content[SCRIPT]["shards"])
        )
    training = worker.training = payload.training_in(content)
    with prepare(job, training, number) as data:
        heartbeat = Heartbeat(pulse, data.loader)

        def patient() -> bool:
            # A worker that waits for room does not hang. Without a supervisor no one could end it.
            heartbeat.waiting()
            return link.pending != SUPERVISOR_GONE

        parts = TrainingParts(
            training=training,
            number=number,
            seed=job.seed,
            data=data,
            engine=make_engine(training, data, job, device, own.worker),
            endpoint=Endpoint(worker=own.worker, store=store, device=device, interface=own.interface),
            link=link,
            heartbeat=heartbeat,
            recorder=Recorder(
                paths.commits(number), paths.metrics(number), discarded=paths.discarded(number), patient=patient
            ),
            keeper=Keeper(paths, number, memory=memory, interval=job.checkpoint_interval, patient=patient),
            loggers=WorkerLoggers(own.worker, training.worker_logger, training.worker_logger_callback, quiet=job.quiet),
            payload=Path(begin.payload),
            # Only a job's first training starts from them. The next one goes on with the weights of its script.
            warm_start=Path(job.warm_start) if job.warm_start and number == 0 else None,
            export=paths.train_dir if training.save_to_onnx else None,
            # A step of the user's own calls the model in a way that only it knows.
            signature=None if job.validates or training.fn_step_train else paths.signature(number),
            validation_pass=validation_pass(job, training, data.test_order.samples, device),
        )
        loop = Loop(parts)
        # A rehearsal computes a training shard, which a validation never does.
        if begin.rehearse and parts.validation_pass is None:
            # An error in it is reported when the shard is really computed.
            with contextlib.suppress(Exception):
                parts.engine.rehearse(data.loader)
        # Report ready after all slow work: until then the other members train on (decision 002).
        link.send(WorkerReady(worker=own.worker, training=begin.training))
        return loop.run(link.wait_generation(own.worker))


def work_for_script(worker: ScriptWorker) -> int:
    """Run a script that has a loop of its own, as all workers of its job do. Return the exit code."""
    script_worker.begin(worker)
    try:
        while not _ended(worker):
            gc.collect()  # what the script has made, before it makes it again
    except script_worker.Leave as left:
        return left.code
    return 0


def _ended(worker: ScriptWorker) -> bool:
    """Run the script until the end of the training. Return False where it has to run again."""
    # What the script draws before its loop, such as a split of its data, is the same in all workers.
    set_states(derive(worker.job.seed, "script"))
    try:
        try:
            driver.run_script(worker.job)
        except SystemExit as ended:
            if ended.code not in (None, 0):
                raise
        if worker.run is None:
            raise Unprocessable(
                f"{worker.job.main} ended in a worker without elastic(), which it has called in the job's driver.",
                hint="All workers must go the same way through the script: let no random number, time or file decide.",
            )
        worker.run.finish()
        return True
    except script_worker.Again:
        pass
    except Exception as error:
        if worker.run is None or not worker.run.has_lost(error):
            raise
    assert worker.run is not None, "the script has called elastic()"
    worker.run.again()
    worker.former, worker.run = worker.run, None
    return False


@contextlib.contextmanager
def prepare(job: JobContext, training: Training, number: int) -> Iterator[Data]:
    """Open the data set and start its loader, which is closed at the end."""
    lock = job.paths.job_dir / f"training-{number}.datasets.lock"
    try:
        train, test = open_datasets(training.datasets_function, lock)
    except EdtError:
        raise
    except (Exception, SystemExit) as error:
        # A lambda's name says less than that of the argument.
        name = getattr(training.datasets_function, "__name__", "<")
        called = "datasets_function" if name.startswith("<") else f"{name}()"
        raise Unprocessable(
            f"{called} raised {type(error).__name__}: {error}.",
            hint=_where_data_are() if isinstance(error, FileNotFoundError) else "",
            field="datasets_function",
        ) from error
    options = training.options
    order = Order(len(train), options.shards, options.micro_batch, job.seed, options.epochs)
    test_order = TestOrder(0 if test is None else len(test), options.shards, options.micro_batch)
    with ShardLoader(
        train,
        training.fn_batch_collate,
        job.seed,
        options.loader_workers,
        test_dataset=test,
        test_collate=training.fn_test_collate,
    ) as loader:
        yield Data(order, test_order, loader)


def _where_data_are() -> str:
    place = os.environ.get("DATA_DIR")
    return (
        f"Read data relative to the environment variable DATA_DIR, which is {place} here"
        if place
        else "Read data relative to the environment variable DATA_DIR, which is not set here"
    ) + ", or submit with dataset=… for a registered data set."


def make_engine(training: Training, data: Data, job: JobContext, device: torch.device, worker: int) -> UpdateEngine:
    """Return the engine that computes the updates of this training."""
    return UpdateEngine(
        training.model,
        training.optimizer,
        training.loss_function,
        order=data.order,
        test_order=data.test_order,
        seed=job.seed,
        device=device,
        fn_step_train=training.fn_step_train,
        metrics=training.metrics,
        clip_grad_norm=training.options.clip_grad_norm,
        worker=worker,
        mode=job.mode,
        nan_loss=training.options.nan_loss,
        same_collate=training.fn_batch_collate is not None and training.fn_test_collate is None,
        fingerprints=OwnState(
            training.model,
            loss_function=training.loss_function,
            fn_step_train=training.fn_step_train,
            fn_batch_collate=training.fn_batch_collate,
            **{"the training set": data.loader.dataset},
        ).fingerprints,
    )


def fail(worker: _Worker, error: BaseException) -> NoReturn:
    """Write the traceback to stderr, send the message to the supervisor, and end."""
    text = explanation.traceback_text(error)
    # The file behind stderr may be on a full disk. The supervisor gets the message all the same.
    with contextlib.suppress(OSError):
        print(text, file=sys.stderr, end="", flush=True)
    # Our own errors are final: they name what is impossible, and a retry would fail too. An error with a cause only
    # reports what the user's code raised, such as a disk that did not answer, and a retry may succeed.
    final = isinstance(error, EdtError) and error.__cause__ is None
    message = str(error) if isinstance(error, EdtError) else f"{type(error).__name__}: {error}"
    if worker.training is not None:
        code = worker.job.paths.code_dir(worker.job.code_dir)
        where = explanation.layer(error, worker.training.model, worker.training.called, code)
        message = explanation.sentence(message, where)
    message = explanation.sentence(message, explanation.missing_module(error))
    worker.link.send(Failed(worker=worker.own.worker, message=message, traceback=text, final=final))
    # Not sys.exit(): threads of a group that has lost its peers, or the user's threads, could keep the process alive.
    end_process(1)


if __name__ == "__main__":
    leave(main())
