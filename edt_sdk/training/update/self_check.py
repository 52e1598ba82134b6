"""Find trainings with weights that depend on the number of workers: compute a shard again, and compare its loss.

A shard's loss follows from the weights, the samples and the seed alone, whoever computes it. It does not when the
user's code keeps state that the engine does not know: a discriminator in a closure, a counter in Python, a generator
with a seed of its own. Each worker then has its own such state. So rank 0 now and then computes a shard that another
member has computed. A single member computes its first shard again, after its others have run.

Only forward passes are needed, except for a step of the user's own, so a check costs about a third of a shard.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Generator, Mapping, Sequence

from edt_sdk.training.exchange.header import ShardStats
from edt_sdk.training.update.user_functions import number_or_none, plain

# State of the user's objects by name: two fingerprints of the same name differ when that state has changed.
Fingerprints = Callable[[], Mapping[str, object]]
_NAMED = 3


class SelfCheck:
    """Decides when to check, and words what was found.

    `found` is a sentence for the user from the first difference on, and "" before. `fingerprints` helps to name the
    cause.
    """

    def __init__(self, fingerprints: Fingerprints) -> None:
        self._fingerprints = fingerprints
        self._checks = 0
        self.found = ""

    def due(self, update: int) -> bool:
        """Return whether to check this update, from 0: 1, 3, 7, 15, 31, 127, 511 and so on, until something differs."""
        # Ever less often: state of one's own shows early, and a thousand updates pay for seven checks in all.
        number = update + 1
        power_of_two = number > 1 and number & update == 0
        return not self.found and power_of_two and (number <= 32 or number.bit_length() % 2 == 0)

    def choose(self, shards: Sequence[ShardStats], block: range) -> ShardStats:
        """Return the shard to compute again: one of another member, if there is one, each time another."""
        others = [stats for stats in shards if stats.shard not in block]
        self._checks += 1
        return others[(self._checks - 1) % len(others)] if others else shards[0]

    def compare(self, update: int, stats: ShardStats, again: Callable[[], tuple[object, object]], worker: int) -> None:
        """Compute the shard again, and set `found` if the result differs from `stats`.

        `again` returns the loss and the number of correct samples of this worker.
        """
        asking = self.asking(update, stats, worker)
        next(asking)
        with contextlib.suppress(StopIteration):
            while True:
                asking.send(again())

    def asking(self, update: int, stats: ShardStats, worker: int) -> Generator[None, tuple[object, object], None]:
        """Do as `compare`, for a caller that computes the shard each time this yields, and sends what that gave."""
        loss, correct = _numbers((yield))
        if _same(loss, stats.loss) and _same(correct, stats.correct):
            return
        # Only now, because the fingerprints take longer than the check.
        before = self._fingerprints()
        yield
        after = self._fingerprints()
        changing = [name for name, mark in after.items() if before.get(name) != mark]
        first = "the loss" if not _same(loss, stats.loss) else "the number of correct samples"
        one, other = (loss, stats.loss) if first == "the loss" else (correct, stats.correct)
        again_by = "when it is computed again" if worker == stats.worker else f"when worker {worker} computes it too"
        self.found = (
            f"In update {update + 1}, {first} of part {stats.shard} of the batch is {_shown(other)} in worker "
            f"{stats.worker}, and {_shown(one)} {again_by}, so the weights depend on the number of workers. "
            f"{_cause(changing)}"
        )


def _cause(changing: Sequence[str]) -> str:
    if not changing:
        return (
            "Nothing that your objects hold has changed in between: look for random numbers from a generator without a "
            "seed, for the time, or for a file."
        )
    names = ", ".join(changing[:_NAMED]) + (f" and {len(changing) - _NAMED} more" if len(changing) > _NAMED else "")
    return (
        f"It changes whenever a part is computed, and is neither a parameter nor a buffer of the model: {names}. "
        "Register it as a buffer or a submodule of the model, or draw from the generators of torch, numpy or random."
    )


def _numbers(result: tuple[object, object]) -> tuple[float, float | None]:
    loss, correct = result
    return plain(loss), number_or_none(correct)


def _same(one: float | None, other: float | None) -> bool:
    if one is None or other is None:
        return one is other
    return one == other or (math.isnan(one) and math.isnan(other))


def _shown(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.9g}"
