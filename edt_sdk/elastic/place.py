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
        sections: for each `run.updates()` of this epoch, by the number of its first call: the running update (`ENDED`
            when the section is over), the number of the call with which that began, and the updates done before it.
        epoch_updates: updates that were done then.
        results: results of evaluations, pickled, by the number of their call: of this epoch's but for those in an
            update that is over, and of those before the first epoch.
        head: calls before the first epoch.
        passes: loss and what was kept, pickled, of the running update and the one before, by the number of the call.
        best: scores of `run.save_best()`.
        over: the script has ended.
    """

    calls: int = 0
    updates: int = 0
    epoch: int = -1
    epoch_call: int = 0
    epoch_updates: int = 0
    sections: dict[int, tuple[int, int, int]] = {}
    results: dict[int, bytes] = {}
    head: int = 0
    passes: dict[int, tuple[float, bytes]] = {}
    best: dict[str, float] = {}
    over: bool = False

    def begin_epoch(self, epoch: int) -> None:
        """Go on to an epoch, of which this call is the beginning."""
        if self.epoch < 0:
            self.head = self.calls
        self.epoch, self.epoch_call, self.epoch_updates = epoch, self.calls, self.updates
        self.sections, self.results = {}, {call: found for call, found in self.results.items() if call < self.head}

    def begin_update(self, section: int, index: int) -> None:
        """Go on to an update of a section, of which the next call is the first pass."""
        before = self.sections[section][1] if section in self.sections else self.calls
        self.passes = {call: found for call, found in self.passes.items() if call >= before}
        self.results = {call: found for call, found in self.results.items() if not section <= call < before}
        self.sections[section] = index, self.calls, self.updates


encode = msgspec.msgpack.Encoder().encode
_decoder = msgspec.msgpack.Decoder(Place)


def decode(data: bytes) -> Place:
    """Return the place that `encode` was given."""
    return _decoder.decode(data)
