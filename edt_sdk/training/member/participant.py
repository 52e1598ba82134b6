"""Hold one worker's part in a job, from generation to generation, whatever the members compute.

Every exchange carries the smallest generation number that all members have heard of. Once it exceeds the current one,
all members switch after that step, without a further exchange to agree on it. A member that loses its peers drops the
group and waits for a newer generation. Either way the members of the next generation exchange their positions, and
members below the highest position receive the state of a member that has reached it (`membership.handover`).

To enter a generation takes two calls: `meet` builds the group and exchanges the positions, `arrive` moves the state. In
between, a script gets to the place of the others (`edt_sdk.elastic`). See docs/decisions/010.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from torch import Tensor

from edt_sdk.schemas.wire.link import Broken, Generation, Joined, Left
from edt_sdk.training.checkpoints.rolling import Keeper, LoadedState
from edt_sdk.training.exchange.group import Group
from edt_sdk.training.exchange.peer_errors import PeerLost, Superseded, is_lost_peer, said
from edt_sdk.training.member.heartbeat import Heartbeat
from edt_sdk.training.member.link import SUPERVISOR_GONE, Link
from edt_sdk.training.member.membership import NO_STATE, Endpoint, GroupMembership, Handover, handover, is_member
from edt_sdk.training.member.next_group import NextGroup
from edt_sdk.training.member.training_state import MemberState
from edt_sdk.training.records import lines
from edt_sdk.training.records.recorder import Recorder
from edt_sdk.training.state import state, transfer

log = logging.getLogger(__name__)


class ParticipantProgram(Protocol):
    """Declares what differs between trainings: what they start from, and what rank 0 writes."""

    @property
    def current(self) -> MemberState:
        """Return the state of this member."""

    def arrived(self) -> None:
        """Prepare for the steps in a new generation, with the state of its members."""

    def begin(self, *, dirty: bool) -> None:
        """Start from what the training was given. `dirty`: a part of another member's state is in the model."""

    def became_writer(self, *, continues: bool) -> None:
        """Write as rank 0 what the last rank 0 has left out, unless this one `continues`, and report the progress."""

    def has_written(self) -> bool:
        """Return whether the program has written a checkpoint with the current state itself, or will."""


@dataclass(frozen=True, slots=True)
class ParticipantParts:
    """Holds what a member works with.

    Attributes:
        shards: V, the most members that have something to compute.
        meet, expect, space: of the engine.
    """

    endpoint: Endpoint
    link: Link
    heartbeat: Heartbeat
    recorder: Recorder
    keeper: Keeper
    shards: int
    meet: Callable[[Group], None]
    expect: Callable[[int, int], None]
    space: Callable[[], list[Tensor]]


class Participant:
    """Represents this worker among the members of its job's generations.

    Attributes:
        has_state: whether `program.current` is a state of the training.
        code: exit code of the process, 1 when the supervisor is gone.
    """

    def __init__(self, parts: ParticipantParts, program: ParticipantProgram) -> None:
        self._parts = parts
        self._program = program
        self._worker = parts.endpoint.worker
        make = partial(GroupMembership, parts.endpoint, parts.shards)
        self._next_group = NextGroup(self._worker, make, parts.meet, parts.expect)
        self._membership: GroupMembership | None = None
        self._former: GroupMembership | None = None  # open until the next group is built: see `arrive`
        self._gone: frozenset[int] = frozenset()  # workers, in the words of the supervisor
        self._transfers: Handover | None = None
        self._dirty = False  # a part of another member's state is in the model
        self._writing = False  # as rank 0 since the last step: the logs are complete
        self._spans_hosts = False  # the newest group: another host may have log lines that this one lacks
        self._number = 0
        self._lost: str | None = None
        self._saved: LoadedState | None = None
        self.has_state = False
        self.code = 0

    @property
    def now(self) -> GroupMembership:
        """Return the current membership."""
        if self._membership is None:
            raise AssertionError("no step is done between two generations")
        return self._membership

    def start(self) -> None:
        """Become a member, and listen for generations."""
        self._parts.link.become_member()
        self._parts.link.announced = self._announced

    def stop(self) -> None:
        """Close everything, whether this worker has left or the training has ended."""
        self._parts.link.announced = None
        self._next_group.drop()
        self.drop_groups()
        self._parts.recorder.close()
        self._parts.keeper.close()

    # --- into a generation --------------------------------------------------------------------------------------------

    @contextmanager
    def attempt(self) -> Iterator[None]:
        """Do something with the other members in the block. Call `recover` after the block if the group broke in it."""
        try:
            yield
            self._lost = None
        except Superseded:
            self._lost = ""
        except (RuntimeError, PeerLost) as error:
            if not is_lost_peer(error):
                raise
            self._lost = said(error)

    @property
    def broke(self) -> bool:
        """Return whether the last attempt ended with a broken or superseded group."""
        return self._lost is not None

    def meet(self, generation: Generation) -> Handover:
        """Build the group of a generation, and exchange the positions. Call `arrive` when this member is in place."""
        link, heartbeat = self._parts.link, self._parts.heartbeat
        self._number = generation.number

        def waiting() -> None:
            # Some members of a generation that is no longer the newest may never arrive (decision 010).
            if link.pending > generation.number:
                raise Superseded

        heartbeat.waiting()
        waiting()
        self._membership = self._next_group.take(generation, waiting)
        self._spans_hosts = self._membership.spans_hosts
        self._membership.group.watch = heartbeat
        if self._membership.has_lost(self._gone):
            raise PeerLost(f"a member of generation {generation.number} was lost while it met")
        # Positions decide in every case, so a survivor that is one step behind needs no path of its own (decision 010).
        position = self._program.current.position if self.has_state else NO_STATE
        self._transfers = handover(self._membership.gathered(position))
        return self._transfers

    def forget(self) -> Handover:
        """Have no member a state, where none has all of it."""
        self.has_state = False
        self._transfers = handover([NO_STATE] * self.now.world)
        return self._transfers

    def run_again(self, program: ParticipantProgram) -> None:
        """Go on with another program in the same group, which has no state yet."""
        self._program = program
        self.has_state = self._dirty = False

    def arrive(self) -> None:
        """Move the state, and report this member's entry."""
        former, self._former = self._former, None
        current = self._program.current
        self._move_state()
        self._program.arrived()
        self._parts.heartbeat.updates = current.updates
        # Report only now: the supervisor may announce the next generation once all members have joined (decision 002).
        self._parts.link.send(Joined(worker=self._worker, generation=self._number, update=current.updates))
        self._become_writer()
        if former is not None:
            # Last of all: a peer may still be on its way out of its last transfer in the former group.
            former.close()

    def switch(self, number: int) -> Generation | None:
        """Return generation `number`, which all members know after this step, None when this worker is not in it."""
        after = None if number == SUPERVISOR_GONE else self._parts.link.generation(number)
        if number != SUPERVISOR_GONE and after is None:
            # The supervisor died after it had announced the generation to others only. They have left this group, so no
            # common checkpoint is possible.
            self.drop_groups()
            self._save()
        elif after is None or not after.members:
            self._save_together()
        else:
            self._wait_for_leaving_rank_0(after)
            if is_member(after, self._worker):
                self._former, self._membership = self._membership, None
                # Another rank 0 writes from here on. If this worker becomes rank 0 again, it has to check the logs
                # first.
                if after.members[0].worker != self._worker:
                    self._writing = False
                return after
        self._leave(after)
        return None

    def recover(self) -> Generation | None:
        """Drop a group that broke, and return the next generation, None when this worker is not a member there."""
        # After the except block, because the traceback keeps the broken group, and with it the sockets, alive. While
        # they are open, a peer that waits inside the library does not notice that this member has given up.
        lost, self._lost = self._lost, None
        self.drop_groups()
        self._writing = False
        if lost:
            log.info("another worker is gone (%s); the job recovers", lost)
            self._parts.link.send(
                Broken(worker=self._worker, generation=self._number, update=self._program.current.updates)
            )
        self._parts.heartbeat.waiting()
        newer = self._parts.link.wait_newer(self._number)
        if newer is not None and is_member(newer, self._worker):
            return newer
        if newer is None or not newer.members:
            self._save()
        self._leave(newer)
        return None

    def drop_groups(self) -> None:
        """Close the groups of this member."""
        memberships = self._membership, self._former
        self._membership = self._former = None
        for membership in memberships:
            if membership is not None:
                membership.close()

    def last_barrier(self) -> bool:
        """Wait for all members at the end of a group. Return False when a member is gone before that."""
        self._parts.heartbeat.waiting()
        group, meetings = self.now.group, 0
        try:
            while meetings < 2:
                group.barrier()
                # A member that leaves the first barrier early would close its sockets while others are still inside.
                # The second barrier keeps the sockets open until all have left the first.
                meetings += 1
        except RuntimeError as error:
            if not is_lost_peer(error):
                raise
        return meetings > 0

    def _announced(self, generation: Generation) -> None:
        """Prepare for a generation, and end the wait for a member that is gone. In the link's thread."""
        # Before the look at the group: `meet` sets the group first and then looks here.
        self._gone = self._gone.union(generation.gone)
        if (membership := self._membership) is not None and membership.has_lost(self._gone):
            membership.group.wake()
        self._next_group.announce(generation)

    def _wait_for_leaving_rank_0(self, after: Generation) -> None:
        """Wait until a rank 0 that leaves has written the step that all members have just done.

        The next rank 0 writes the lines that are missing in the logs. A line that is only late would be there twice.
        """
        leaver = self.now.generation.members[0].worker
        if self.now.world > 1 and not is_member(after, leaver):
            self.last_barrier()

    def _leave(self, after: Generation | None) -> None:
        """Leave: this worker is no member of `after`. None means that the supervisor is gone."""
        self.drop_groups()
        self._parts.recorder.close()
        self._parts.keeper.close()
        if after is None:
            self.code = 1
            return
        # Before the report: once the supervisor has it, it may close the link, and that must not end this process.
        self._parts.link.finish()
        updates = self._program.current.updates
        self._parts.link.send(Left(worker=self._worker, generation=after.number, update=updates))

    def _save_together(self) -> None:
        """Write a checkpoint as rank 0, or wait for rank 0 to write it. If rank 0 dies, each other member writes it."""
        rank = self.now.rank
        if rank == 0:
            self._save()
        # Rank 0 may have died before its file was on disk. The others then write the same bits under the same name
        # (decision 010).
        if not self.last_barrier() and rank != 0:
            self.drop_groups()
            self._save()

    def save(self) -> None:
        """Write a checkpoint with the current state."""
        # With the lines that only a lost host may have had.
        current = self._program.current
        capture = partial(current.capture, recent=self._spans_hosts)
        self._parts.keeper.save(capture, current.position, current.updates)

    def _save(self) -> None:
        # All members that hold come here, and rank 0 has written this very state.
        if self.has_state and not self._program.has_written():
            self.save()

    def _become_writer(self) -> None:
        """As rank 0, continue the logs where the last rank 0 stopped."""
        if self.now.rank != 0:
            self._writing = False
            self._parts.recorder.close()
            return
        if not self._writing:
            current = self._program.current
            lines.repair(self._parts.recorder, current.updates, current.last, current.last_test, current.recent)
        self._program.became_writer(continues=self._writing)
        self._writing = True

    # --- state --------------------------------------------------------------------------------------------------------

    def _move_state(self) -> None:
        now, transfers = self.now, self._transfers
        assert transfers is not None, "the members meet before they arrive"
        source = transfers.takes.get(now.rank)
        if source is not None:
            # From the first byte on: half a state in the model must not be taken for the initial one.
            self._dirty = not self.has_state
            model, device, space = self._program.current.model, self._parts.endpoint.device, self._parts.space()
            self.restore(transfer.take(now.group, source, model, device, staged=self.has_state, space=space))
            return
        if transfers.none_has_state:
            self._begin()
        takers = transfers.gives.get(now.rank, ())
        if takers:
            # A joiner may be the only one left, and needs the lines of updates before it came as well.
            transfer.give(now.group, takers, self._program.current.capture(recent=now.spans_hosts))

    def _begin(self) -> None:
        """Start without a state in any member: from the newest checkpoint, else from the payload."""
        saved, self._saved = self.newest(), None
        if saved is not None:
            log.info("going on after update %d, from %s", saved.updates, saved.name)
            self.restore(saved.state)
            return
        self._program.begin(dirty=self._dirty)
        self.has_state, self._dirty = True, False

    def newest(self) -> LoadedState | None:
        """Return the checkpoint to go on from as rank 0, where no member has a state."""
        if self._saved is None:
            self._saved = self._parts.keeper.newest()
        return self._saved

    def restore(self, received: state.State) -> None:
        """Take over a state."""
        self._program.current.restore(received)
        self.has_state, self._dirty, self._writing = True, False, False
