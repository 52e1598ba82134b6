"""Make the calls of a script as one of a job's workers, whose members come and go.

At each call this worker is in one of three situations. It is among the members and has the state: it makes the call
with them. It has joined, or missed the end of an update, and is not at their place: it skips the call. It is at their
place without the state: it takes the state, and then makes the call with them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import msgspec

from edt_sdk.elastic import place as places
from edt_sdk.elastic import variables
from edt_sdk.elastic.place import Place
from edt_sdk.elastic.run_state import RunState
from edt_sdk.elastic.sides import Among, Loads
from edt_sdk.elastic.things import Things
from edt_sdk.elastic.variables import differing
from edt_sdk.schemas.errors import Unprocessable
from edt_sdk.schemas.wire.link import Generation, Trained, WorkerReady
from edt_sdk.training.exchange.peer_errors import PeerLost, is_lost_peer
from edt_sdk.training.member.heartbeat import Heartbeat
from edt_sdk.training.member.link import SUPERVISOR_GONE
from edt_sdk.training.member.membership import Handover, is_member
from edt_sdk.training.member.participant import Participant, ParticipantParts
from edt_sdk.training.member.progress import ProgressReporter
from edt_sdk.training.member.script_worker import Again, Leave
from edt_sdk.training.sampling.order import TrainStep
from edt_sdk.training.state.warm_start import load_weights
from edt_sdk.training.update.loader import ShardLoader
from edt_sdk.training.update.update import Committed

if TYPE_CHECKING:
    from edt_sdk.elastic.divided_model import DividedModel

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class WorkerParts:
    """Holds what a worker's side works with.

    `restart` ends this process, so that another one takes its place. `inexact` returns what the self-check has found.
    """

    member: ParticipantParts
    training: int
    warm_start: Path | None
    restart: Callable[[], NoReturn]
    inexact: Callable[[], str]
    divided: DividedModel | None = None


class WorkerSide:
    """Makes the calls of a script among the members of its job. Attributes as in `Side`.

    `former` is that of the same worker, whose script runs again from its top. Its group stays.
    """

    def __init__(self, parts: WorkerParts, things: Things, former: WorkerSide | None = None) -> None:
        self._parts = parts
        self._things = things
        self._divided = parts.divided
        self._link = parts.member.link
        self._worker = parts.member.endpoint.worker
        self._member: Participant = Participant(parts.member, self) if former is None else former._member
        self._progress = ProgressReporter(self._link, self._worker, parts.training)
        self._generation: Generation | None = None if former is None else former._generation  # to enter
        self._started = former is not None
        self._loads: bool = former is not None and former._loads  # the parts of the model from a checkpoint
        self._arrived = False  # in the newest generation, with the state of its members
        self._told = 0  # the newest generation that all members know of
        self._offered = 0  # updates when the keeper was last offered the state
        self.current = RunState(things, parts.divided)
        self.target: Place | None = None
        self.jumps = False
        self._was = 0  # updates that were done when the script had to run again
        if former is not None:
            self.target, self._was = former.target, former.current.updates or former._was
            self._member.run_again(self)

    @property
    def member_parts(self) -> ParticipantParts:
        """Return what this worker's member works with."""
        return self._parts.member

    @property
    def first(self) -> bool:
        """Return whether this worker is rank 0 and has the state."""
        return self._arrived and self._generation is None and self._member.now.rank == 0

    @property
    def broke(self) -> bool:
        """Return whether the last attempt has failed because a member is gone."""
        return self._member.broke

    @property
    def pending(self) -> int:
        """Return the newest generation that this worker has heard of."""
        return self._link.pending

    def meet(self) -> None:
        """Get to know the place of the others."""
        if not self._started:
            # Report ready after all slow work: until then the other members train on (decision 002).
            self._link.send(WorkerReady(worker=self._worker, training=self._parts.training))
            self._generation = self._link.wait_generation(self._worker)
            self._member.start()
            self._started = True
        while self._generation is not None:
            self._arrived, self._told = False, 0
            with self._member.attempt():
                transfers = self._find_parts(self._member.meet(self._generation))
                self.target = self._place_of_the_others(transfers)
                self._loads = transfers.none_has_state and self.target is not None and self.target.calls > 0
                self._generation = None
                self._say_what_is_lost(transfers)
            if self.broke:
                self._generation = self._recovered()

    def ready(self) -> Among | None:
        """Return among whom to make the next call, None to skip it."""
        while True:
            self.meet()
            if not self._arrived:
                if self._is_behind():
                    # From here on the script changes what it has, and no longer has a state of the training.
                    self._member.has_state = False
                    return None
                self._arrive()
            elif self._told > self._member.now.number:
                self._generation = self._next(self._switch())
            elif self._divided is not None and self._divided.due:
                with self._member.attempt():
                    try:
                        self._save_parts(self._divided)
                    except OSError as error:
                        log.error("The checkpoint was not written: %s. The training goes on.", error)
                if self.broke:
                    self._generation = self._recovered()
            else:
                now = self._member.now
                if now.rank == 0 and self._offered < self.current.updates and self._divided is None:
                    self._offered = self.current.updates
                    self._parts.member.keeper.committed(self.current.capture, self.current.position, self._offered)
                return Among(now.group, now.rank, now.world)

    def attempt(self) -> AbstractContextManager[None]:
        """Do something with the other members in the block."""
        return self._member.attempt()

    def recover(self) -> Among | None:
        """Go on after a broken attempt."""
        self._generation = self._recovered()
        return self.ready()

    def opened(self, shards: int | None, updates: int, epochs: int) -> None:
        """Take note of a section of updates."""
        self.current.per_epoch = updates or self.current.per_epoch

    def committed(self, step: TrainStep, committed: Committed, shards: int) -> None:
        """Record an update as rank 0. All members remember it, as rank 0 may be lost."""
        now, current, recorder = self._member.now, self.current, self._parts.member.recorder
        current.has_committed(step, committed, now.generation, shards, current.per_epoch)
        self._parts.member.heartbeat.updates = current.updates
        self._told = committed.pending
        if now.rank == 0 and current.last is not None:
            if self._parts.inexact() and not self._progress.inexact:
                self._progress.inexact = self._parts.inexact()
                self._progress.report(current)
            recorder.commit(current.last.commit_line())
            recorder.metric(current.last.train_line())
            self._progress.advanced(current, current.train.samples)

    def tested(self) -> None:
        """Record an evaluation as rank 0."""
        if self.first and self.current.last_test is not None:
            self._parts.member.recorder.metric(self.current.last_test)
            self._progress.report(self.current)

    def loading(self, loader: ShardLoader) -> Loads:
        """Return a loader that shows with each batch that this worker computes."""
        return Heartbeat(self._parts.member.heartbeat.pulse, loader, self.current.updates)

    def alive(self) -> None:
        """Report that this worker computes."""
        self._parts.member.heartbeat.computing()

    def finish(self) -> None:
        """Write the final files as rank 0. The other members keep the state until rank 0 has reported the end.

        Raises:
            Unprocessable: the script made no call, or fewer calls than that of another worker.
        """
        if not self._started:
            raise Unprocessable(
                "The script ended without run.updates(), which divides the work among workers.",
                hint="Take the updates of the training from it: for update in run.updates(dataset, batch=64): …",
            )
        if self._generation is None and not self._arrived and self._is_behind():
            raise Unprocessable(
                "The script of this worker has ended before the place of the others.",
                hint="All workers must go the same way through the script: let no random number, time or file decide.",
            )
        self.current.place.over = True
        while True:
            self.meet()
            if not self._arrived:
                self._arrive()
                continue
            with self._member.attempt():
                self._end()
                return
            self._generation = self._recovered()

    def has_lost(self, error: Exception) -> bool:
        """Return whether an error of the script only shows that another member is gone.

        The passes of a sharded model wait for other members, and they are in the script's own code.
        """
        if self._divided is None or not is_lost_peer(error):
            return False
        with self._member.attempt():
            raise error
        return True

    def again(self) -> None:
        """Let go of the model, and find out in which generation this worker goes on."""
        if self.broke:
            self._generation = self._recovered()
        if self._divided is not None:
            self._divided.clear()

    # --- what the member asks -----------------------------------------------------------------------------------------

    def arrived(self) -> None:
        """Take this member's part of a sharded model. Batches are loaded when they are needed."""
        if self._divided is not None:
            now = self._member.now
            if now.spans_hosts:
                raise Unprocessable(
                    "A sharded model trains on one host, because its checkpoints need one folder.",
                    hint="Submit it to a resource group of one host: edt resource create big --host NAME.",
                )
            saved = self._parts.member.keeper.parts(self.current.position) if self._loads else None
            self._divided.arrive(now.group, saved)

    def begin(self, *, dirty: bool) -> None:
        """Start from what the script has made, and from the weights of another training where there are some."""
        if dirty:
            self._restart()
        if self._parts.warm_start is not None:
            load_weights(self._parts.warm_start, self._things.main)

    def has_written(self) -> bool:
        """Return whether the state is written elsewhere, as that of a sharded model is by all members together."""
        return self._divided is not None

    def became_writer(self, *, continues: bool) -> None:
        """Report the progress."""
        self._progress.report(self.current)

    # --- inside -------------------------------------------------------------------------------------------------------

    def _next(self, generation: Generation | None) -> Generation:
        if generation is None:
            self._arrived = False
            self._member.stop()
            raise Leave(self._member.code)
        return generation

    def _recovered(self) -> Generation:
        if self._divided is not None:
            self._divided.drop()  # it would keep the sockets of the group open
        return self._next(self._member.recover())

    def _restart(self) -> NoReturn:
        """Run the script again from its top: in this process, where nothing of the engine refers to its model."""
        if self._divided is not None:
            raise Again
        self._parts.restart()

    def _find_parts(self, transfers: Handover) -> Handover:
        """Return how the state moves. Without all parts of a sharded model no member has a state."""
        divided, now = self._divided, self._member.now
        if divided is None:
            return transfers
        if not transfers.none_has_state:
            if divided.find(now.group, holds=now.rank not in transfers.takes):
                return transfers
            transfers = self._member.forget()
        divided.begin()
        return transfers

    def _say_what_is_lost(self, transfers: Handover) -> None:
        done, target = max(self._was, self.current.updates), self.target
        if transfers.none_has_state and target is not None and done > target.updates and self._member.now.rank == 0:
            log.warning(
                "A part of the model is lost with its worker: the job goes back from update %d to update %d.",
                done,
                target.updates,
            )

    def _switch(self) -> Generation | None:
        divided, now = self._divided, self._member.now
        gone = self._told == SUPERVISOR_GONE
        after = None if gone else self._link.generation(self._told)
        # Without the newest generation, others have left this group already.
        if divided is not None and (gone or after is not None):
            stay = (
                [] if after is None else [r for r, m in enumerate(now.generation.members) if is_member(after, m.worker)]
            )
            with self._member.attempt():
                if stay:
                    divided.leave(now.group, stay)
                else:
                    self._save_parts(divided)
                    divided.drop()
                # Until all have what they need, none may close its sockets.
                self._member.last_barrier()
            if self.broke:
                return self._member.recover()
        return self._member.switch(self._told)

    def _save_parts(self, divided: DividedModel) -> None:
        """Write a checkpoint with all members, and then the file with which it counts as rank 0."""
        now, folder = self._member.now, self._parts.member.keeper.parts(self.current.position)
        if divided.save(now.group, folder) and now.rank == 0:
            self._member.save()

    def _is_behind(self) -> bool:
        """Return whether this worker has to go on to the others. It starts again if it is beyond them."""
        if self.target is None or self.target.over:
            return False
        # A model that was divided is no longer what a state, or the parts of others, could be put into.
        used = self._divided is not None and self._divided.used and not self._member.has_state
        if used or self.current.place.calls > self.target.calls:
            log.info("the job goes on from an earlier place of the script: this worker starts again")
            self._restart()
        return not self.jumps and self.current.place.calls < self.target.calls

    def _arrive(self) -> None:
        over = self.target is not None and self.target.over and not self.current.place.over
        with self._member.attempt():
            self._member.arrive()
            if self.target is not None and (remark := differing(variables.of_the_script(), self.target.variables)):
                log.warning(remark)
            self._arrived, self.target = True, None
        if self.broke:
            self._generation = self._recovered()
        elif over:
            # The others are at the end of the script, and what is left of it would run without them.
            self.finish()
            self._member.stop()
            raise Leave(self._member.code)

    def _place_of_the_others(self, transfers: Handover) -> Place | None:
        """Return the place of the members that have the state, or of the checkpoint, None where all are at one."""
        if not transfers.takes and not transfers.none_has_state:
            return None
        now = self._member.now
        giver = 0 if transfers.none_has_state else min(transfers.gives)
        own = None
        if now.rank == giver:
            place = self.current.place
            if transfers.none_has_state:
                saved = self._member.newest()
                place = Place() if saved is None else self.current.place_in(saved.state)
            else:
                place = msgspec.structs.replace(place, variables=variables.of_the_script())
            own = places.encode(place)
        return places.decode(now.group.broadcast_bytes(own, giver))

    def _end(self) -> None:
        now, parts, divided = self._member.now, self._parts.member, self._divided
        if divided is not None:
            weights = divided.whole(now.group, self._things.main)
            divided.save(now.group, parts.keeper.parts(self.current.position))
        if now.rank == 0:
            parts.heartbeat.waiting()
            if divided is None:
                parts.keeper.final(self._things.main, self._things.optimizer, None)
            else:
                parts.keeper.final_weights(weights, self.current.position)
            self._progress.report(self.current)
            # `final` has removed what a resume needs, but no process has received the report. The next attempt resumes
            # from here.
            if parts.link.pending == SUPERVISOR_GONE:
                self._member.save()
            parts.recorder.close()
            parts.link.send(Trained(worker=self._worker, training=self._parts.training, updates=self.current.updates))
        if not self._member.last_barrier() and now.rank != 0:
            # Rank 0 may have died before its report, so this member stays ready for another generation.
            raise PeerLost(f"generation {now.number} broke before its end was known")
        parts.link.finish()
