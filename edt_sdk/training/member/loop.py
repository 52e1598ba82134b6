"""The steps of a training one after another, in one member, from generation to generation until the end.

Every exchange tells the smallest generation number that all members have heard of. Once it exceeds the current one,
everybody switches right behind that step. A member that loses the others drops the group and waits for a newer
generation. Either way the members of the next one meet, tell each other how far they are, and whoever is behind
receives the state of one who is not (`membership.handover`). No member ever asks another whether to switch.

What a step does is `steps.py`'s, and all that it changes `standing.py`'s. See docs/decisions/010.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from torch import nn
from torch.optim import Optimizer

from edt_sdk.schemas.wire.link import Broken, Generation, Joined, Left, Trained
from edt_sdk.training.exchange.group import Group
from edt_sdk.training.exchange.peer_errors import PeerLost, Superseded, is_lost_peer
from edt_sdk.training.member import onnx_export
from edt_sdk.training.member.environment import Given
from edt_sdk.training.member.link import SUPERVISOR_GONE
from edt_sdk.training.member.membership import NO_STATE, Membership, handover, is_member
from edt_sdk.training.member.next_group import Upcoming
from edt_sdk.training.member.steps import Steps
from edt_sdk.training.member.training_state import beginning
from edt_sdk.training.records import lines
from edt_sdk.training.sampling.schedule import Final
from edt_sdk.training.state import state, transfer
from edt_sdk.training.state.warm_start import load_weights
from edt_sdk.training.user import payload

log = logging.getLogger(__name__)


class Loop:
    """One worker's part in one training.

    Args:
        given: what it is made of.
    """

    def __init__(self, given: Given) -> None:
        self._training = given.training
        self._data = given.data
        self._engine = given.engine
        self._place = given.place
        self._outside = given.outside
        self._heartbeat = given.heartbeat
        self._shards = len(given.training.options.shards)
        self._upcoming = Upcoming(given.place.worker, self._membership, given.engine.meet, given.engine.expect)
        self._steps = Steps(given)
        self._standing = self._steps.standing
        self._member: Membership | None = None
        self._former: Membership | None = None  # kept until the next group is built
        self._has_state = False
        self._dirty = False  # a part of somebody's state is in the model
        self._writing = False  # as rank 0, without a gap: the logs are as they should be
        self._begun = False
        self._code = 0

    def run(self, first: Generation) -> int:
        """Train from the generation this worker first belongs to, until the end or until it is no member any more.

        Returns:
            The exit code: 0, or 1 when the supervisor is gone.

        Raises:
            Exception: what the user's code raised.
        """
        link = self._outside.link
        link.become_member()
        link.announced = self._upcoming.announce
        generation: Generation | None = first
        while generation is not None:
            generation = self._live(generation)
        link.announced = None
        self._upcoming.drop()
        self._drop_groups()
        self._outside.recorder.close()
        self._outside.keeper.close()
        if self._begun:
            self._outside.loggers.end()
        return self._code

    # --- from generation to generation --------------------------------------------------------------------------------

    def _live(self, generation: Generation) -> Generation | None:
        """Be a member of a generation; the next one, None when there is none for this worker."""
        lost = ""
        try:
            return self._through(generation)
        except Superseded:
            pass
        except (RuntimeError, PeerLost) as error:
            if not is_lost_peer(error):
                raise
            lost = str(error) or "a member is gone"
        # Not before the end of the except block: until then the traceback keeps the broken group alive.
        self._drop_groups()
        self._writing = False
        if lost:
            log.info("generation %d is broken (%s)", generation.number, lost)
            self._outside.link.send(
                Broken(worker=self._place.worker, generation=generation.number, update=self._standing.updates)
            )
        self._heartbeat.waiting()
        newer = self._outside.link.wait_newer(generation.number)
        if newer is not None and is_member(newer, self._place.worker):
            return newer
        if newer is None or not newer.members:
            self._save()
        self._part(newer)
        return None

    def _through(self, generation: Generation) -> Generation | None:
        self._enter(generation)
        while not isinstance(self._standing.cursor.step, Final):
            pending = self._steps.do(self._standing.cursor.step, self._now)
            if pending > self._now.number:
                return self._switch(pending)
        self._finish()
        return None

    def _enter(self, generation: Generation) -> None:
        """Become a member: build the group, move the state, plan what to load, say so."""
        link = self._outside.link

        def waiting() -> None:
            if link.pending > generation.number:
                raise Superseded

        self._heartbeat.waiting()
        waiting()
        self._member = self._upcoming.take(generation, waiting)
        self._member.group.watch = self._heartbeat
        former, self._former = self._former, None
        self._move_state()
        self._heartbeat.updates = self._standing.updates
        self._data.loader.plan(self._steps.agenda.keys(self._standing.cursor, self._now.block, self._now.rank))
        link.send(Joined(worker=self._place.worker, generation=generation.number, update=self._standing.updates))
        self._take_the_pen()
        if not self._begun:
            self._begun = True
            self._outside.loggers.begin()
        if former is not None:
            former.close()

    def _membership(self, generation: Generation, waiting: Callable[[], None]) -> Membership:
        return Membership(generation, self._place, self._shards, waiting)

    def _switch(self, number: int) -> Generation | None:
        """Behind the step just done all know of generation `number`; None when this worker is not part of it."""
        after = None if number == SUPERVISOR_GONE else self._outside.link.generation(number)
        if number != SUPERVISOR_GONE and after is None:
            # Announced to others only, before the supervisor died: they will not come to any meeting of this group.
            self._drop_groups()
            self._save()
        elif after is None or not after.members:
            self._save_together()
        else:
            self._see_rank_0_off(after)
            if is_member(after, self._place.worker):
                self._former, self._member = self._member, None
                if after.members[0].worker != self._place.worker:
                    self._writing = False
                return after
        self._part(after)
        return None

    def _see_rank_0_off(self, after: Generation) -> None:
        """Where rank 0 leaves, nobody goes on before it has written down the step that all have just done.

        Whoever takes its place writes what is missing in the logs: a line that is only late would be there twice.
        """
        leaver = self._now.generation.members[0].worker
        if self._now.world > 1 and not is_member(after, leaver):
            self._heartbeat.waiting()
            _met(self._now.group)

    def _part(self, after: Generation | None) -> None:
        """Be no member any more, since `after` is without this worker; None: the supervisor is gone."""
        self._drop_groups()
        self._outside.recorder.close()
        self._outside.keeper.close()
        if after is None:
            self._code = 1
            return
        self._outside.link.finish()
        self._outside.link.send(Left(worker=self._place.worker, generation=after.number, update=self._standing.updates))

    def _save_together(self) -> None:
        """Rank 0 writes a checkpoint, the others wait for it; without rank 0 each of them writes it."""
        group, rank = self._now.group, self._now.rank
        if rank == 0:
            self._save()
        self._heartbeat.waiting()
        if not _met(group) and rank != 0:
            self._drop_groups()
            self._save()

    def _save(self) -> None:
        if self._has_state:
            self._outside.keeper.save(self._standing.capture, self._standing.position, self._standing.updates)

    def _take_the_pen(self) -> None:
        """Rank 0 goes on in the logs where the last one stopped."""
        if self._now.rank != 0:
            self._writing = False
            self._outside.recorder.close()
            return
        if not self._writing:
            outside = self._outside
            lines.mend(outside.recorder, self._standing.updates, self._standing.last, self._standing.last_test)
            self._pay()
            self._writing = True
        self._steps.progress.report(self._standing.cursor, self._standing.train, self._standing.test)

    def _pay(self) -> None:
        """Write the files of epochs that the last rank 0 died over.

        It has put the state in memory, unless it died before; then it has given no update either, and the state is
        what the survivors hold.
        """
        keeper = self._outside.keeper
        keeper.pay(self._standing.position, self._fresh)
        ended = lines.epoch_ended(self._standing.cursor, hooks=bool(self._training.callbacks))
        if ended is not None and ended.checkpoint and not keeper.has_epoch(ended.epoch + 1):
            self._steps.write_epoch(ended)

    def _fresh(self) -> tuple[nn.Module, Optimizer]:
        training = payload.read(self._outside.payload)
        return training.model, training.optimizer

    def _drop_groups(self) -> None:
        memberships = self._member, self._former
        self._member = self._former = None
        for membership in memberships:
            if membership is not None:
                membership.close()

    @property
    def _now(self) -> Membership:
        if self._member is None:
            raise AssertionError("no step is done between two generations")
        return self._member

    # --- state --------------------------------------------------------------------------------------------------------

    def _move_state(self) -> None:
        now = self._now
        who = handover(now.positions(self._standing.position if self._has_state else NO_STATE))
        source = who.takes.get(now.rank)
        if source is not None:
            # From the first byte on: a part of a state is none.
            self._dirty = not self._has_state
            model, device = self._standing.model, self._place.device
            self._restore(
                transfer.take(now.group, source, model, device, staged=self._has_state, space=self._engine.space())
            )
            return
        if who.nobody:
            self._begin()
        takers = who.gives.get(now.rank, ())
        if takers:
            transfer.give(now.group, takers, self._standing.capture())

    def _begin(self) -> None:
        """Nobody has a state: the newest checkpoint's, else the payload's."""
        saved = self._outside.keeper.newest()
        if saved is not None:
            log.info("going on behind update %d, from %s", saved.updates, saved.name)
            self._restore(saved.state)
            return
        if self._dirty:
            self._restore(beginning(payload.read(self._outside.payload)))
        if self._outside.warm_start is not None:
            load_weights(self._outside.warm_start, self._standing.model)
        self._has_state = True

    def _restore(self, received: state.State) -> None:
        self._standing.restore(received)
        self._has_state, self._dirty, self._writing = True, False, False

    # --- the end ------------------------------------------------------------------------------------------------------

    def _finish(self) -> None:
        """Rank 0 writes the final files; until it has said so, the others still have the state."""
        now, outside = self._now, self._outside
        if now.rank == 0:
            self._heartbeat.waiting()
            outside.keeper.final(self._standing.model, self._standing.optimizer)
            if outside.export is not None:
                self._export(outside.export)
            self._steps.conclude()
            self._steps.progress.report(self._standing.cursor, self._standing.train, self._standing.test)
            if outside.link.pending == SUPERVISOR_GONE:
                self._save()
            outside.recorder.close()
            outside.link.send(
                Trained(worker=self._place.worker, training=outside.number, updates=self._standing.updates)
            )
        self._heartbeat.waiting()
        if not _met(now.group) and now.rank != 0:
            # Perhaps before it said so. If it has, the supervisor needs no state any more, and ends this process.
            raise PeerLost(f"generation {now.number} broke before its end was known")
        outside.link.finish()

    def _export(self, folder: Path) -> None:
        self._heartbeat.computing()
        onnx_export.attempt(folder, self._standing.model, self._data.loader, self._data.order, self._place.device)
        self._heartbeat.waiting()


def _met(group: Group) -> bool:
    """Wait for all members, who meet for the last time; False when one of them is gone before."""
    meetings = 0
    try:
        while meetings < 2:
            group.barrier()
            # The second one is for those who are still on their way out of the first: sockets stay open until then.
            meetings += 1
    except RuntimeError as error:
        if not is_lost_peer(error):
            raise
    return meetings > 0
