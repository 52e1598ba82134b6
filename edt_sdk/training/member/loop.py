"""Run the steps of a training in one member, from generation to generation until the end.

Every exchange carries the smallest generation number that all members have heard of. Once it exceeds the current one,
all members switch after that step, without a further exchange to agree on it. A member that loses its peers drops the
group and waits for a newer generation. Either way the members of the next generation exchange their positions, and
members below the highest position receive the state of a member that has reached it (`membership.handover`).

A generation may have a budget of epochs. Where it ends, all members leave their group and wait for a newer generation,
as after a loss: one with more budget goes on, one without members ends them (docs/decisions/046).

`steps.py` does a step, and `training_state.py` holds what it changes. See docs/decisions/010.
"""

from __future__ import annotations

import logging
from functools import partial
from pathlib import Path

from torch import nn
from torch.optim import Optimizer

from edt_sdk.schemas.errors import EdtError, Unprocessable
from edt_sdk.schemas.wire.link import Broken, Generation, Held, Joined, Left, Trained
from edt_sdk.schemas.wire.saved import SUFFIX, Damaged
from edt_sdk.training.checkpoints import ckpt
from edt_sdk.training.exchange.group import Group
from edt_sdk.training.exchange.peer_errors import PeerLost, Superseded, is_lost_peer, said
from edt_sdk.training.member import examples, onnx_export
from edt_sdk.training.member.link import SUPERVISOR_GONE
from edt_sdk.training.member.membership import NO_STATE, GroupMembership, handover, is_member
from edt_sdk.training.member.next_group import NextGroup
from edt_sdk.training.member.parts import TrainingParts
from edt_sdk.training.member.steps import Steps
from edt_sdk.training.member.training_state import beginning
from edt_sdk.training.records import lines
from edt_sdk.training.records.lines import LastUpdate
from edt_sdk.training.records.recorder import TestLine
from edt_sdk.training.sampling.schedule import EpochBegin, EpochEnd, Final
from edt_sdk.training.state import state, transfer
from edt_sdk.training.state.warm_start import load_weights
from edt_sdk.training.user import payload

log = logging.getLogger(__name__)


class Loop:
    """Runs one worker's part in one training."""

    def __init__(self, parts: TrainingParts) -> None:
        self._parts = parts
        self._worker = parts.endpoint.worker
        self._heartbeat = parts.heartbeat
        make = partial(GroupMembership, parts.endpoint, len(parts.training.options.shards))
        self._next_group = NextGroup(self._worker, make, parts.engine.meet, parts.engine.expect)
        self._steps = Steps(parts)
        self._current = self._steps.current
        self._member: GroupMembership | None = None
        self._former: GroupMembership | None = None  # open until the next group is built: see `_enter`
        self._gone: frozenset[int] = frozenset()  # workers, in the words of the supervisor
        self._has_state = False
        self._dirty = False  # a part of another member's state is in the model
        self._writing = False  # as rank 0 since the last step: the logs are complete
        self._spans_hosts = False  # the newest group: another host may have log lines that this one lacks
        self._begun = False
        self._code = 0

    def run(self, first: Generation) -> int:
        """Train from the first generation of this worker until the end, or until it is no longer a member.

        Return the exit code: 0, or 1 when the supervisor is gone. What the user's code raises passes through.
        """
        link = self._parts.link
        link.become_member()
        link.announced = self._announced
        generation: Generation | None = first
        while generation is not None:
            generation = self._train_in(generation)
        link.announced = None
        self._next_group.drop()
        self._drop_groups()
        self._parts.recorder.close()
        self._parts.keeper.close()
        if self._begun:
            self._parts.loggers.end()
        return self._code

    # --- from generation to generation --------------------------------------------------------------------------------

    def _announced(self, generation: Generation) -> None:
        """Prepare for a generation, and end the wait for a member that is gone. In the link's thread."""
        # Before the look at the group: `_enter` sets the group first and then looks here.
        self._gone = self._gone.union(generation.gone)
        if (member := self._member) is not None and member.has_lost(self._gone):
            member.group.wake()
        self._next_group.announce(generation)

    def _train_in(self, generation: Generation) -> Generation | None:
        """Train as a member of a generation. Return the next one, None when this worker is not a member there."""
        lost = ""
        try:
            return self._run_steps(generation)
        except Superseded:
            pass
        except (RuntimeError, PeerLost) as error:
            if not is_lost_peer(error):
                raise
            lost = said(error)
        # After the except block, because the traceback keeps the broken group, and with it the sockets, alive. While
        # they are open, a peer that waits inside the library does not notice that this member has given up.
        self._drop_groups()
        self._writing = False
        if lost:
            log.info("another worker is gone (%s); the job recovers", lost)
            self._parts.link.send(
                Broken(worker=self._worker, generation=generation.number, update=self._current.updates)
            )
        self._heartbeat.waiting()
        newer = self._parts.link.wait_newer(generation.number)
        if newer is not None and is_member(newer, self._worker):
            return newer
        if newer is None or not newer.members:
            self._save()
        self._leave(newer)
        return None

    def _run_steps(self, generation: Generation) -> Generation | None:
        self._enter(generation)
        while not isinstance(self._current.cursor.step, Final):
            # Before the step and not after the epoch: members that resume at this place must not go beyond it either.
            if self._spent(generation.budget):
                self._hold()
                raise Superseded
            pending = self._steps.do(self._current.cursor.step, self._now)
            if pending > self._now.number:
                return self._switch(pending)
        self._finish()
        return None

    def _enter(self, generation: Generation) -> None:
        """Become a member: build the group, move the state, plan what to load, and report it."""
        link = self._parts.link

        def waiting() -> None:
            # Some members of a generation that is no longer the newest may never arrive (decision 010).
            if link.pending > generation.number:
                raise Superseded

        self._heartbeat.waiting()
        waiting()
        self._member = self._next_group.take(generation, waiting)
        self._spans_hosts = self._member.spans_hosts
        self._member.group.watch = self._heartbeat
        if self._member.has_lost(self._gone):
            raise PeerLost(f"a member of generation {generation.number} was lost while it met")
        former, self._former = self._former, None
        # Positions decide in every case, so a survivor that is one step behind needs no path of its own (decision 010).
        self._move_state()
        self._heartbeat.updates = self._current.updates
        self._parts.data.loader.plan(self._steps.keys(self._now))
        # Report only now: the supervisor may announce the next generation once all members have joined (decision 002).
        link.send(Joined(worker=self._worker, generation=generation.number, update=self._current.updates))
        self._become_writer()
        if not self._begun:
            self._begun = True
            self._parts.loggers.begin()
        if former is not None:
            # Last of all: a peer may still be on its way out of its last transfer in the former group.
            former.close()

    def _switch(self, number: int) -> Generation | None:
        """Return generation `number`, which all members know after this step, None when this worker is not in it."""
        after = None if number == SUPERVISOR_GONE else self._parts.link.generation(number)
        if number != SUPERVISOR_GONE and after is None:
            # The supervisor died after it had announced the generation to others only. They have left this group, so no
            # common checkpoint is possible.
            self._drop_groups()
            self._save()
        elif after is None or not after.members:
            self._save_together()
        else:
            self._wait_for_leaving_rank_0(after)
            if is_member(after, self._worker):
                self._former, self._member = self._member, None
                # Another rank 0 writes from here on. If this worker becomes rank 0 again, it has to check the logs
                # first.
                if after.members[0].worker != self._worker:
                    self._writing = False
                return after
        self._leave(after)
        return None

    def _spent(self, budget: int | None) -> bool:
        """Return whether the next step would begin an epoch beyond the budget."""
        step = self._current.cursor.step
        return budget is not None and isinstance(step, EpochBegin) and step.epoch >= budget

    def _hold(self) -> None:
        """Write the checkpoint of the epoch that has ended as rank 0, and report that all members hold."""
        now, parts, position = self._now, self._parts, self._current.position
        ended = self._current.cursor.schedule[position - 1]
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
        if not _last_barrier(now.group):
            raise PeerLost(f"generation {now.number} broke at the end of its budget")

    def _wait_for_leaving_rank_0(self, after: Generation) -> None:
        """Wait until a rank 0 that leaves has written the step that all members have just done.

        The next rank 0 writes the lines that are missing in the logs. A line that is only late would be there twice.
        """
        leaver = self._now.generation.members[0].worker
        if self._now.world > 1 and not is_member(after, leaver):
            self._heartbeat.waiting()
            _last_barrier(self._now.group)

    def _leave(self, after: Generation | None) -> None:
        """Leave: this worker is no member of `after`. None means that the supervisor is gone."""
        self._drop_groups()
        self._parts.recorder.close()
        self._parts.keeper.close()
        if after is None:
            self._code = 1
            return
        # Before the report: once the supervisor has it, it may close the link, and that must not end this process.
        self._parts.link.finish()
        self._parts.link.send(Left(worker=self._worker, generation=after.number, update=self._current.updates))

    def _save_together(self) -> None:
        """Write a checkpoint as rank 0, or wait for rank 0 to write it. If rank 0 dies, each other member writes it."""
        group, rank = self._now.group, self._now.rank
        if rank == 0:
            self._save()
        self._heartbeat.waiting()
        # Rank 0 may have died before its file was on disk. The others then write the same bits under the same name
        # (decision 010).
        if not _last_barrier(group) and rank != 0:
            self._drop_groups()
            self._save()

    def _save(self) -> None:
        keeper = self._parts.keeper
        ended = lines.epoch_ended(self._current.cursor, hooks=True)
        # All members that hold come here, and rank 0 has written this very state.
        if self._has_state and (ended is None or not keeper.has_epoch(ended.epoch + 1)):
            # With the lines that only a lost host may have had.
            capture = partial(self._current.capture, recent=self._spans_hosts)
            keeper.save(capture, self._current.position, self._current.updates)

    def _become_writer(self) -> None:
        """As rank 0, continue the logs where the last rank 0 stopped."""
        if self._now.rank != 0:
            self._writing = False
            self._parts.recorder.close()
            return
        if not self._writing:
            current = self._current
            recent: list[LastUpdate | TestLine] = [*current.recent, *current.recent_tests]
            lines.repair(self._parts.recorder, current.updates, current.last, current.last_test, recent)
            self._write_missing_epochs()
            self._writing = True
        self._steps.report_validation(self._now)
        self._steps.progress.report(self._current)

    def _write_missing_epochs(self) -> None:
        """Write the files of epochs that the last rank 0 did not finish.

        Rank 0 pins the state of an epoch's end in memory before it takes part in another exchange. If rank 0 died
        before that, the survivors have not gone on, and their own state is still the state of the epoch's end.
        """
        keeper = self._parts.keeper
        keeper.write_missing_epochs(self._current.position, self._fresh)
        ended = lines.epoch_ended(self._current.cursor, hooks=bool(self._parts.training.callbacks))
        if ended is not None and ended.checkpoint and not keeper.has_epoch(ended.epoch + 1):
            self._steps.write_epoch(ended)

    def _fresh(self) -> tuple[nn.Module, Optimizer]:
        training = payload.read(self._parts.payload)
        return training.model, training.optimizer

    def _drop_groups(self) -> None:
        memberships = self._member, self._former
        self._member = self._former = None
        for membership in memberships:
            if membership is not None:
                membership.close()

    @property
    def _now(self) -> GroupMembership:
        if self._member is None:
            raise AssertionError("no step is done between two generations")
        return self._member

    # --- state --------------------------------------------------------------------------------------------------------

    def _move_state(self) -> None:
        now = self._now
        transfers = handover(now.gathered(self._current.position if self._has_state else NO_STATE))
        source = transfers.takes.get(now.rank)
        if source is not None:
            # From the first byte on: half a state in the model must not be taken for the initial one.
            self._dirty = not self._has_state
            model, device, space = self._current.model, self._parts.endpoint.device, self._parts.engine.space()
            self._restore(transfer.take(now.group, source, model, device, staged=self._has_state, space=space))
            return
        if transfers.none_has_state:
            self._begin()
        takers = transfers.gives.get(now.rank, ())
        if takers:
            # A joiner may be the only one left, and needs the lines of updates before it came as well.
            transfer.give(now.group, takers, self._current.capture(recent=now.spans_hosts))

    def _begin(self) -> None:
        """Start without a state in any member: from the newest checkpoint, else from the payload."""
        saved = self._parts.keeper.newest()
        if saved is not None:
            log.info("going on after update %d, from %s", saved.updates, saved.name)
            self._restore(saved.state)
            return
        # A transfer that broke halfway has left tensors of another member in the model.
        if self._dirty:
            self._restore(beginning(payload.read(self._parts.payload)))
        if self._parts.warm_start is not None:
            self._warm_start(self._parts.warm_start)
        self._has_state = True

    def _warm_start(self, path: Path) -> None:
        """Begin with the weights of another training, or as a branch of it with its whole state."""
        if path.suffix != SUFFIX:
            load_weights(path, self._current.model)
            return
        try:
            header, former = ckpt.read(path, 0)
        except (Damaged, OSError) as error:
            text = f"The state to go on from cannot be read from {path}: {error}"
            raise Unprocessable(text, field="warm_start") from error
        try:
            self._current.branch(former, header.epoch or 0)
        except (EdtError, ValueError, RuntimeError, AttributeError) as error:  # whatever does not fit
            raise Unprocessable(
                f"The training cannot go on from the state of another one: {error}",
                hint="Hyper-parameters that change the layers of the model cannot change while it trains.",
                field="warm_start",
            ) from error

    def _restore(self, received: state.State) -> None:
        self._current.restore(received)
        self._has_state, self._dirty, self._writing = True, False, False

    # --- the end ------------------------------------------------------------------------------------------------------

    def _finish(self) -> None:
        """Write the final files as rank 0. The other members keep the state until rank 0 has reported the end."""
        now, parts = self._now, self._parts
        if now.rank == 0:
            self._heartbeat.waiting()
            scheduler = self._current.learning_rate.scheduler
            parts.keeper.final(self._current.model, self._current.optimizer, scheduler)
            if parts.export is not None:
                self._export(parts.export)
            if parts.signature is not None:
                self._write_examples(parts.signature)
            self._steps.conclude()
            self._steps.progress.report(self._current)
            # `final` has removed what a resume needs, but no process has received the report. The next attempt resumes
            # from here.
            if parts.link.pending == SUPERVISOR_GONE:
                self._save()
            parts.recorder.close()
            parts.link.send(Trained(worker=self._worker, training=parts.number, updates=self._current.updates))
        self._heartbeat.waiting()
        if not _last_barrier(now.group) and now.rank != 0:
            # Rank 0 may have died before its report, so this member stays ready for another generation. If the report
            # did arrive, the supervisor needs no state any more and ends this process.
            raise PeerLost(f"generation {now.number} broke before its end was known")
        parts.link.finish()

    def _export(self, folder: Path) -> None:
        data, device = self._parts.data, self._parts.endpoint.device
        self._heartbeat.computing()
        onnx_export.attempt(folder, self._current.model, data.loader, data.order, device)
        self._heartbeat.waiting()

    def _write_examples(self, path: Path) -> None:
        self._heartbeat.computing()
        examples.attempt(path, self._current.model, self._parts.data, self._parts.endpoint.device)
        self._heartbeat.waiting()


def _last_barrier(group: Group) -> bool:
    """Wait for all members at the end of a group. Return False when a member is gone before that."""
    meetings = 0
    try:
        while meetings < 2:
            group.barrier()
            # A member that leaves the first barrier early would close its sockets while others are still inside. The
            # second barrier keeps the sockets open until all have left the first.
            meetings += 1
    except RuntimeError as error:
        if not is_lost_peer(error):
            raise
    return meetings > 0
