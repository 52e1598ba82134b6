"""Run the steps of a `FabricModel`'s training in one member, from generation to generation until the end.

A generation may have a budget of epochs. Where it ends, all members leave their group and wait for a newer generation,
as after a loss: one with more budget goes on, one without members ends them (docs/decisions/046).

`steps.py` does a step, `training_state.py` holds what it changes, and `participant.py` is about the other members.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from torch import nn
from torch.optim import Optimizer

from edt_sdk.schemas.errors import EdtError, Unprocessable
from edt_sdk.schemas.wire.link import Generation, Held, Trained
from edt_sdk.schemas.wire.saved import SUFFIX, Damaged
from edt_sdk.training.checkpoints import ckpt
from edt_sdk.training.exchange.peer_errors import PeerLost, Superseded
from edt_sdk.training.member import examples, onnx_export
from edt_sdk.training.member.link import SUPERVISOR_GONE
from edt_sdk.training.member.participant import Participant, ParticipantParts
from edt_sdk.training.member.parts import TrainingParts
from edt_sdk.training.member.steps import Steps
from edt_sdk.training.member.training_state import TrainingState, beginning
from edt_sdk.training.records import lines
from edt_sdk.training.sampling.schedule import EpochBegin, EpochEnd, Final
from edt_sdk.training.state.warm_start import load_weights
from edt_sdk.training.user import payload


class Loop:
    """Runs one worker's part in one training."""

    def __init__(self, parts: TrainingParts) -> None:
        self._parts = parts
        self._worker = parts.endpoint.worker
        self._heartbeat = parts.heartbeat
        self._steps = Steps(parts)
        self._current = self._steps.current
        self._member = Participant(
            ParticipantParts(
                endpoint=parts.endpoint,
                link=parts.link,
                heartbeat=parts.heartbeat,
                recorder=parts.recorder,
                keeper=parts.keeper,
                shards=len(parts.training.options.shards),
                meet=parts.engine.meet,
                expect=parts.engine.expect,
                space=parts.engine.space,
            ),
            self,
        )
        self._begun = False

    @property
    def current(self) -> TrainingState:
        """Return the state of this member."""
        return self._current

    def run(self, first: Generation) -> int:
        """Train from the first generation of this worker until the end, or until it is no longer a member.

        Return the exit code: 0, or 1 when the supervisor is gone. What the user's code raises passes through.
        """
        self._member.start()
        generation: Generation | None = first
        while generation is not None:
            generation = self._train_in(generation)
        self._member.stop()
        if self._begun:
            self._parts.loggers.end()
        return self._member.code

    def _train_in(self, generation: Generation) -> Generation | None:
        """Train as a member of a generation. Return the next one, None when this worker is not a member there."""
        with self._member.attempt():
            self._member.meet(generation)
            self._member.arrive()
            if not self._begun:
                self._begun = True
                self._parts.loggers.begin()
            return self._run_steps(generation)
        return self._member.recover()

    def _run_steps(self, generation: Generation) -> Generation | None:
        now = self._member.now
        while not isinstance(self.current.cursor.step, Final):
            # Before the step and not after the epoch: members that resume at this place must not go beyond it either.
            if self._spent(generation.budget):
                self._hold()
                raise Superseded
            pending = self._steps.do(self.current.cursor.step, now)
            if pending > now.number:
                return self._member.switch(pending)
        self._finish()
        return None

    def _spent(self, budget: int | None) -> bool:
        """Return whether the next step would begin an epoch beyond the budget."""
        step = self.current.cursor.step
        return budget is not None and isinstance(step, EpochBegin) and step.epoch >= budget

    def _hold(self) -> None:
        """Write the checkpoint of the epoch that has ended as rank 0, and report that all members hold."""
        now, parts, position = self._member.now, self._parts, self.current.position
        ended = self.current.cursor.schedule[position - 1]
        assert isinstance(ended, EpochEnd)
        epoch = ended.epoch + 1
        self._heartbeat.waiting()
        if now.rank == 0:
            # Where the training itself writes checkpoints more seldom.
            if not ended.checkpoint and not parts.keeper.has_epoch(epoch):
                self._steps.write_epoch(ended)
            held = Held(worker=self._worker, training=parts.number, generation=now.number, epoch=epoch)
            # After the file, so that members that are to leave then need not write the state themselves.
            parts.keeper.when_written(partial(parts.link.send, held))
        # A member that closed its connections while a peer still receives the epoch's last step would be a lost member.
        if not self._member.last_barrier():
            raise PeerLost(f"generation {now.number} broke at the end of its budget")

    # --- what the member asks -----------------------------------------------------------------------------------------

    def begin(self, *, dirty: bool) -> None:
        """Start from the payload, and from the weights or the state of another training where there is one."""
        # A transfer that broke halfway has left tensors of another member in the model.
        if dirty:
            self.current.restore(beginning(payload.read(self._parts.payload)))
        if self._parts.warm_start is not None:
            self._warm_start(self._parts.warm_start)

    def arrived(self) -> None:
        """Plan what to load from here on."""
        self._parts.data.loader.plan(self._steps.keys(self._member.now))

    def has_written(self) -> bool:
        """Return whether rank 0 has written the file of the epoch that the state is at the end of."""
        ended = lines.epoch_ended(self.current.cursor, hooks=True)
        return ended is not None and self._parts.keeper.has_epoch(ended.epoch + 1)

    def became_writer(self, *, continues: bool) -> None:
        """Write the files of epochs that the last rank 0 did not finish, and report the progress.

        Rank 0 pins the state of an epoch's end in memory before it takes part in another exchange. If rank 0 died
        before that, the survivors have not gone on, and their own state is still the state of the epoch's end.
        """
        if not continues:
            keeper = self._parts.keeper
            keeper.write_missing_epochs(self.current.position, self._fresh)
            ended = lines.epoch_ended(self.current.cursor, hooks=bool(self._parts.training.callbacks))
            if ended is not None and ended.checkpoint and not keeper.has_epoch(ended.epoch + 1):
                self._steps.write_epoch(ended)
        self._steps.report_validation(self._member.now)
        self._steps.progress.report(self.current)

    def _fresh(self) -> tuple[nn.Module, Optimizer]:
        training = payload.read(self._parts.payload)
        return training.model, training.optimizer

    def _warm_start(self, path: Path) -> None:
        """Begin with the weights of another training, or as a branch of it with its whole state."""
        if path.suffix != SUFFIX:
            load_weights(path, self.current.model)
            return
        try:
            header, former = ckpt.read(path, 0)
        except (Damaged, OSError) as error:
            text = f"The state to go on from cannot be read from {path}: {error}"
            raise Unprocessable(text, field="warm_start") from error
        try:
            self.current.branch(former, header.epoch or 0)
        except (EdtError, ValueError, RuntimeError, AttributeError) as error:  # whatever does not fit
            raise Unprocessable(
                f"The training cannot go on from the state of another one: {error}",
                hint="Hyper-parameters that change the layers of the model cannot change while it trains.",
                field="warm_start",
            ) from error

    # --- the end ------------------------------------------------------------------------------------------------------

    def _finish(self) -> None:
        """Write the final files as rank 0. The other members keep the state until rank 0 has reported the end."""
        now, parts = self._member.now, self._parts
        if now.rank == 0:
            self._heartbeat.waiting()
            scheduler = self.current.learning_rate.scheduler
            parts.keeper.final(self.current.model, self.current.optimizer, scheduler)
            if parts.export is not None:
                self._export(parts.export)
            if parts.signature is not None:
                self._write_examples(parts.signature)
            self._steps.conclude()
            self._steps.progress.report(self.current)
            # `final` has removed what a resume needs, but no process has received the report. The next attempt resumes
            # from here.
            if parts.link.pending == SUPERVISOR_GONE:
                self._member.save()
            parts.recorder.close()
            parts.link.send(Trained(worker=self._worker, training=parts.number, updates=self.current.updates))
        if not self._member.last_barrier() and now.rank != 0:
            # Rank 0 may have died before its report, so this member stays ready for another generation. If the report
            # did arrive, the supervisor needs no state any more and ends this process.
            raise PeerLost(f"generation {now.number} broke before its end was known")
        parts.link.finish()

    def _export(self, folder: Path) -> None:
        data, device = self._parts.data, self._parts.endpoint.device
        self._heartbeat.computing()
        onnx_export.attempt(folder, self.current.model, data.loader, data.order, device)
        self._heartbeat.waiting()

    def _write_examples(self, path: Path) -> None:
        self._heartbeat.computing()
        examples.attempt(path, self.current.model, self._parts.data, self._parts.endpoint.device)
        self._heartbeat.waiting()
