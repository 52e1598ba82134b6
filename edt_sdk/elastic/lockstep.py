"""Compute the parts of an update by functions that step optimizers themselves, several times in one part.

Each step needs the gradients of all parts, and a part goes on after it with what it has computed before. So each part
runs in a thread of its own, one thread at a time: the parts run in turn up to their next step, then all workers step,
then the parts go on. Such a stretch is a pass of the engine, the last one up to the end of the parts as well.

A worker may be lost after the first step. Its parts are then computed by others, from the beginning of the update: each
worker goes back to the copy that it has made before that step (decision 071).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

from edt_sdk.elastic.run import ElasticRun
from edt_sdk.elastic.update import Update
from edt_sdk.schemas.errors import Unprocessable
from edt_sdk.training.exchange.blocks import blocks
from edt_sdk.training.sampling.order import BatchKey, TrainStep
from edt_sdk.training.sampling.seeds import derive, set_states
from edt_sdk.training.state.nested import to_device
from edt_sdk.training.state.state import State, capture, restore
from edt_sdk.training.update.loader import Batch
from edt_sdk.training.update.update import weighted_loss


class LockstepProgram(Protocol):
    """Declares what computes the parts."""

    def compute(self, strand: Strand, batch: Any) -> Any:
        """Compute a part. Call `strand.pause` at each step, and note a loss before each pause and before the end.

        Return an action for after the end.
        """

    def switch(self, strand: Strand | None) -> None:
        """Make the state that each part has for itself that of this strand, None for that of none."""

    def step(self, action: Any) -> None:
        """Make a step, with the gradients of all parts."""

    def copy(self) -> Any:
        """Return a copy of what steps change besides models and optimizers."""

    def back(self, copied: Any) -> None:
        """Go back to a copy."""


class _Abandoned(BaseException):
    """Ends a part that other workers, or this one, compute again."""


class Strand:
    """Runs a function in a thread, one stretch at a time.

    Attributes:
        own: for the program: what this part has for itself.
        ended: whether the function has returned or raised.
    """

    def __init__(self, function: Callable[[Strand], Any]) -> None:
        self._function = function
        self._go, self._done = threading.Semaphore(0), threading.Semaphore(0)
        self._thread: threading.Thread | None = None
        self._action: Any = None
        self._error: BaseException | None = None
        self._abandoned = self.ended = False
        self.own: Any = None

    def resume(self) -> Any:
        """Run up to the next pause, or to the end, and return the action. Raise what the function raises."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="part", daemon=True)
            self._thread.start()
        self._go.release()
        self._done.acquire()
        if self._error is not None:
            raise self._error
        return self._action

    def pause(self, action: Any) -> None:
        """Stop here until all parts of all workers have the same action, and it is done."""
        self._action = action
        self._done.release()
        self._go.acquire()
        if self._abandoned:
            raise _Abandoned

    def abandon(self) -> None:
        """End the function at its pause. Its `finally` and `with` blocks run."""
        assert self._thread is not None, "a part that has not begun"
        self._abandoned = True
        self._go.release()
        self._thread.join()

    def _run(self) -> None:
        self._go.acquire()
        try:
            self._action = self._function(self)
        except _Abandoned:
            pass
        except BaseException as error:  # raised again by `resume`, in the thread of the training
            self._error = error
        self.ended = True
        self._done.release()


class _Kept:
    """Keeps the batches of an update, which are computed in several stretches."""

    def __init__(self, loads: Any) -> None:
        self._loads = loads
        self._batches: dict[BatchKey, Batch] = {}

    def take(self, key: BatchKey) -> Batch:
        """Return the batch of a key."""
        if key not in self._batches:
            self._batches[key] = self._loads.take(key)
        return self._batches[key]


def in_lockstep(update: Update, program: LockstepProgram) -> None:
    """Compute the parts of an update, with all its steps. `update.loss` and `update.kept` are of their last stretches.

    Raises:
        Unprocessable: the parts do not make the same steps.
        Moved: this worker has missed the end, and has the state of the others.
    """
    run, section = update._run, update.section
    side, engine = run._side, run._engine
    step = TrainStep(section.pass_of(update.index), section.index_in_pass(update.index), update.number)
    calls = side.current.place.calls
    among = side.ready()
    engine.use(section.order)
    while among is not None:
        strands: dict[int, Strand] = {}
        copy: Any = None
        try:
            with side.attempt():
                block = blocks(section.shards, among.world)[among.rank]
                run._plan(section, update.index, block, among)
                loads, stretch, ended = _Kept(side.loading(section.loader)), 0, False
                while not ended:
                    update._all_kept = {}
                    for part in engine.parts(step, block, loads, among.group, again=stretch):
                        update._begin(part)
                        batch = to_device(part.batch.data, engine.device)
                        if part.shard not in strands:
                            strands[part.shard] = Strand(partial(program.compute, batch=batch))
                        strand = strands[part.shard]
                        program.switch(strand)
                        action = strand.resume()
                        update.keep("action", (strand.ended, action))
                        update._end(part)
                        program.switch(None)
                    gathered = engine.gather(among.group, pending=side.pending)
                    update._share(among, True)
                    ended, action = _agreed(update.kept("action"))
                    if not ended and copy is None and among.world > 1:
                        copy = _copied(run), program.copy()
                    committed = engine.settle(gathered)
                    # A step or a hook of it may draw: the same numbers in each worker.
                    set_states(derive(run._seed, "step", step.update, stretch))
                    program.step(action)
                    stretch += 1
            if not side.broke:
                update._completed(step, committed, weighted_loss(gathered.summary.shards), first=True)
                return
        finally:
            for strand in strands.values():
                if not strand.ended:
                    program.switch(strand)
                    strand.abandon()
            program.switch(None)
        if copy is not None:
            restore(copy[0], run._things.model, run._things.optimizer)
            program.back(copy[1])
        among = side.recover()
        update._moved(calls)


def _copied(run: ElasticRun) -> State:
    captured = capture(run._things.model, run._things.optimizer, None)
    own = {name: tensor.clone() for name, tensor in captured.own.items()}
    return replace(captured, own=own, tensors=[tensor.clone() for tensor in captured.tensors])


def _agreed(actions: list[Any]) -> Any:
    if any(action != actions[0] for action in actions):
        raise Unprocessable(
            "The parts of an update do not make the same steps.",
            hint="Let the number of the batch decide which optimizers step, and not the data.",
        )
    return actions[0]
