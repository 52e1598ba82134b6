"""Mark where a script is: how many calls of the engine it has made, and what a worker that joins needs to get there.

Each step that members do together is a call: the beginning of an epoch, a pass over an update's batch, an evaluation.
All members make the same calls in the same order, so their number is the position of a member. A worker that joins runs
the script from its top. It skips the calls that are done: epochs and updates jump to the running one, and evaluations
return what they returned.
"""

from __future__ import annotations

import msgspec

ENDED = -1
"""The index of a section of updates that is over."""


class Place(msgspec.Struct, kw_only=True):
    """Marks a place in a script.

    Attributes:
        calls: calls that are done.
        updates: updates of which the first pass is done.
        epoch: the running epoch, from 0. −1 before the first.
        epoch_call: number of the call with which it began.
        loops: for each `run.epochs()` that is over, by the number of its first call: the calls and updates done then.
        sections: for each `run.updates()` of this epoch and outside of epochs, by the number of its first call: the
            running update (`ENDED` when the section is over), the number of the call with which that began, and the
            updates done before it.
        epoch_updates: updates that were done then.
        results: results of evaluations of this epoch and outside of epochs, pickled, by the number of their call. Those
            in an update are dropped with it.
        passes: loss and what was kept, pickled, of the running update and the one before, by the number of the call.
        best: scores of `run.save_best()`.
        drawn: name of the evaluation that figures draw, the first one.
        unnamed: how many evaluations without a name there were after which number of updates.
        over: the script has ended.
        variables: plain ones of the script, for workers that join.
    """

    calls: int = 0
    updates: int = 0
    epoch: int = -1
    epoch_call: int = 0
    epoch_updates: int = 0
    loops: dict[int, tuple[int, int]] = {}
    sections: dict[int, tuple[int, int, int]] = {}
    results: dict[int, bytes] = {}
    passes: dict[int, tuple[float, bytes]] = {}
    best: dict[str, float] = {}
    drawn: str | None = None
    unnamed: tuple[int, int] = (0, 0)
    over: bool = False
    variables: dict[str, str] = {}

    def begin_epoch(self, epoch: int, start: int) -> None:
        """Go on to an epoch, of which this call is the beginning. The first one of its loop is `start`."""
        if epoch > start:
            self._forget_epoch()
        self.epoch, self.epoch_call, self.epoch_updates = epoch, self.calls, self.updates

    def end_epochs(self, first: int) -> None:
        """Leave a `run.epochs()`, whose first call this was."""
        self._forget_epoch()
        self.loops[first] = self.calls, self.updates

    def next_pass(self) -> int:
        """Return a number for the next pass over a data set. It is that of the epoch, unless there was one before."""
        return max(0, self.epoch) + (len(self.sections) << 20) + (len(self.loops) << 30)

    def _forget_epoch(self) -> None:
        """Forget what no worker needs any more: those that join skip an epoch that is over."""
        self.sections = {call: there for call, there in self.sections.items() if call < self.epoch_call}
        self.results = {call: result for call, result in self.results.items() if call < self.epoch_call}

    def begin_update(self, section: int, index: int) -> None:
        """Go on to an update of a section, of which the next call is the first pass."""
        before = self.sections[section][1] if section in self.sections else self.calls
        self.passes = {call: found for call, found in self.passes.items() if call >= before}
        self.results = {call: found for call, found in self.results.items() if not section <= call < before}
        self.sections[section] = index, self.calls, self.updates

    def name(self, given: str) -> str:
        """Return what to call an evaluation. Those without a name, one after the other, get a number."""
        if not given:
            after, count = self.unnamed
            count = count + 1 if after == self.updates else 1
            self.unnamed = self.updates, count
            given = f"test{count}" if count > 1 else ""
        if self.drawn is None:
            self.drawn = given
        return given


encode = msgspec.msgpack.Encoder().encode
_decoder = msgspec.msgpack.Decoder(Place)


def decode(data: bytes) -> Place:
    """Return the place that `encode` was given."""
    return _decoder.decode(data)
