"""Run a replica of a deployment: load a version of a model, then answer requests until its slot is revoked.

The supervisor starts one replica for each slot as `python -u -m edt_sdk.serving.replica`. Its settings come from two
environment variables. The link to the supervisor carries its start, its failure and the order to drain. Requests come
from the edge, past the supervisor.

Where the training's own script is the runtime, the model is served inside of its `train()` call, which does not return.
"""

from __future__ import annotations

import faulthandler
import hashlib
import os
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn

import torch
from torch import nn

from edt_sdk.schemas.errors import EdtError, Unprocessable
from edt_sdk.schemas.registered import Runtime, Serves
from edt_sdk.schemas.serving.replica_channel import Answers, ReplicaReady, ScoringRequest, Signature
from edt_sdk.schemas.wire.context import JobContext, WorkerContext, job_context, worker_context
from edt_sdk.schemas.wire.link import Drain, Failed, WorkerHello, WorkerReady
from edt_sdk.serving import batching, foreign_model, task_program
from edt_sdk.serving.edge_connection import EdgeConnection
from edt_sdk.serving.open_inference import ServedNames
from edt_sdk.serving.package_predictor import PackagePredictor
from edt_sdk.serving.task_program import TaskProgram
from edt_sdk.serving.trained_model import TrainedModel, load_examples, load_weights
from edt_sdk.training import driver
from edt_sdk.training.calls import session
from edt_sdk.training.member.leaving import leave
from edt_sdk.training.member.link import Link, end_process
from edt_sdk.training.user import explanation
from edt_sdk.training.worker import configure


def main() -> int:
    """Run the replica. Return an exit code only where it cannot even begin."""
    job, own = job_context(), worker_context()
    if job is None or own is None or job.serves is None:
        print("edt: this program is started by a deployment's supervisor (EDT_JOB and EDT_WORKER).", file=sys.stderr)
        return 2
    configure(job)
    ReplicaProcess(job, own, job.serves).run()


class ReplicaProcess:
    """One replica, from its start to the end of its process."""

    def __init__(self, job: JobContext, own: WorkerContext, serves: Serves) -> None:
        self._job = job
        self._own = own
        self._serves = serves
        self._weights = Path(job.warm_start)
        self._link = Link.connect(job.link)
        self._edge = EdgeConnection(job.serve_socket)
        self._lock = threading.Lock()
        self._loaded = False

    def run(self) -> NoReturn:
        """Load the version and serve it. Does not return."""
        own = self._own
        self._link.send(WorkerHello(worker=own.worker, pid=os.getpid(), host=own.interface, store_port=0))
        threading.Thread(target=self._await_drain, name="edt-drain", daemon=True).start()
        try:
            self._check_weights()
            if self._serves.runtime is Runtime.SCRIPT:
                self._run_script()
            if self._serves.runtime is Runtime.KERNEL:
                self._run_kernel()
            runtime = self._loaded_runtime()
            self._serve(runtime, runtime.signature)
        except (Exception, SystemExit) as error:  # the package's code may raise anything
            self._fail(error)

    def _check_weights(self) -> None:
        if not self._serves.sha256:
            return
        try:
            with self._weights.open("rb") as file:
                found = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise Unprocessable(f"The weights of {self._serves.version} cannot be read: {error}") from None
        if found != self._serves.sha256:
            raise Unprocessable(
                f"The weights of {self._serves.version} cannot be served. "
                f"Its weights have changed on disk: expected {self._serves.sha256}, found {found}.",
                hint="Register the version again, and deploy that.",
            )

    def _loaded_runtime(self) -> PackagePredictor | TrainedModel:
        """Load what the package holds, which is no program that serves by itself."""
        code = self._job.paths.code_dir(self._job.code_dir)
        most, exact = self._serves.max_batch, self._serves.exact
        if self._serves.runtime is Runtime.MLFLOW:
            return foreign_model.mlflow_model(code, max_batch=most, exact=exact)
        if self._serves.runtime is Runtime.ONNX:
            return foreign_model.onnx_model(code / self._job.main, max_batch=most, exact=exact)
        return PackagePredictor.load(code, self._weights.parent if self._serves.sha256 else code, most)

    def _run_kernel(self) -> NoReturn:
        """Run the package's program. It serves in its `run`, which does not return."""
        most = self._serves.max_batch
        task_program.begin(lambda handler: self._serve(TaskProgram(handler, most), None))
        self._run_main()
        raise Unprocessable(f"{self._job.main} ended without serving.", hint="Its last line is to be Kernel().run().")

    def _run_main(self) -> None:
        try:
            driver.run_script(self._job)
        except SystemExit as ended:
            # A script that ends with exit(0) is a script that ends.
            if ended.code not in (None, 0):
                raise

    def _run_script(self) -> NoReturn:
        own = session.Session(self._job, self._link, path=tuple(sys.path), takes_over=self._serve_model)
        session.begin(own)
        self._run_main()
        raise Unprocessable(
            f"{self._job.main} ended after {own.calls} train() calls, so there is no model to serve: the weights of "
            f"{self._serves.version} are from call {self._serves.calls}.",
            hint="A replica runs the script of the training with the same arguments, up to that call.",
        )

    def _serve_model(self, model: nn.Module) -> NoReturn:
        """Serve in place of the training. An error ends the process, as the script might go on after it."""
        try:
            load_weights(model, self._weights, self._serves.version)
            trained = TrainedModel(
                model,
                torch.device(self._own.device),
                load_examples(self._weights),
                max_batch=self._serves.max_batch,
                exact=self._serves.exact,
            )
            trained.check()
            self._serve(trained, trained.signature)
        except (Exception, SystemExit) as error:  # the model's code may raise anything
            self._fail(error)

    def _serve(self, runtime: batching.ModelRuntime[Any], signature: Signature | None) -> NoReturn:
        batches = batching.Batching(runtime, ServedNames.of(self._serves))
        patience = 2 * self._serves.deadline

        def answer(requests: Sequence[ScoringRequest], bodies: Sequence[memoryview]) -> tuple[Answers, list[bytes]]:
            # In C, so that it ends code that never lets Python run. The edge has given up the batch by then.
            faulthandler.dump_traceback_later(patience, exit=True, file=2)
            try:
                return batches.answer(requests, bodies)
            finally:
                faulthandler.cancel_dump_traceback_later()

        own = self._own
        with self._lock:
            self._loaded = True
        self._link.send(WorkerReady(worker=own.worker, training=0))
        ready = ReplicaReady(worker=own.worker, slot=own.slot, most=self._serves.max_batch, signature=signature)
        self._edge.serve(ready, answer)
        runtime.close()
        leave(0)

    def _await_drain(self) -> None:
        self._link.take(Drain)
        # The supervisor may close the link from now on.
        self._link.finish()
        with self._lock:
            if not self._loaded:
                end_process(0)
        self._edge.drain()

    def _fail(self, error: BaseException) -> NoReturn:
        """Write the traceback to stderr, send the message to the supervisor, and end."""
        shown = error.with_traceback(_without_own_frames(error.__traceback__) or error.__traceback__)
        text = explanation.traceback_text(shown)
        print(text, file=sys.stderr, end="", flush=True)
        ours = isinstance(error, EdtError)
        message = str(error) if ours else f"{type(error).__name__}: {error}"
        message = explanation.sentence(message, explanation.missing_module(error))
        # As in a worker: an error with a cause reports what other code raised, and another attempt may succeed.
        final = ours and error.__cause__ is None
        self._link.send(Failed(worker=self._own.worker, message=message, traceback=text, final=final))
        end_process(1)


def _without_own_frames(frames: TracebackType | None) -> TracebackType | None:
    while frames is not None and frames.tb_frame.f_code.co_filename in (__file__, driver.__file__):
        frames = frames.tb_next
    return frames


if __name__ == "__main__":
    sys.exit(main())
