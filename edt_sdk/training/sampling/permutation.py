"""The order of the samples in one epoch: a permutation that follows from (samples, seed, epoch) and nothing else.

It sorts random 64-bit keys, one a sample, with a stable sort. The keys are the raw stream of Philox-4x64-10 under a key
that BLAKE2b makes from (seed, epoch). Numpy promises that the raw stream of a bit generator stays what it is, whereas
`Generator.permutation` may change between versions (NEP 19); the outcome of a stable sort is unique. So the order is
the same with every numpy, on every machine.

Sorting a million keys takes a tenth of a second, for which a joiner would keep its job waiting, and everybody at the
start of an epoch. So a long order is first only parted by the top bits of the keys, which is quick, and a stretch of it
is sorted when it is asked for. Where a key lies among all others is known then; the outcome is the same, bit for bit.
"""

from __future__ import annotations

import hashlib
import struct

import numpy as np
import numpy.typing as npt

Indices = npt.NDArray[np.int64]

# Up to so many, sorting all of them takes a few milliseconds; beyond so many, the keys would take too much memory.
_FEW, _MANY = 1 << 16, 1 << 23
# Top bits that they are parted by: numpy sorts numbers of 16 bits by counting.
_BITS = 16
# Positions that are sorted together.
_STRETCH = 1 << 13


def permutation(samples: int, seed: int, epoch: int) -> Indices:
    """The whole order of one epoch: int64 [samples]."""
    return _sorted(_keys(samples, seed, epoch))


class Permutation:
    """`permutation(samples, seed, epoch)`, from which one takes parts. For one thread."""

    def __init__(self, samples: int, seed: int, epoch: int) -> None:
        self._keys = _keys(samples, seed, epoch)
        self._todo = np.zeros(0, dtype=np.bool_)  # which stretches are parted only
        if not _FEW < samples <= _MANY:
            self._order = _sorted(self._keys)
            self._keys = self._keys[:0].copy()
            return
        tops = (self._keys >> np.uint64(64 - _BITS)).astype(np.uint16)
        self._order = _sorted(tops)
        self._ends = np.cumsum(np.bincount(tops, minlength=1 << _BITS))  # of the parts, by their top bits
        self._todo = np.ones(-(-samples // _STRETCH), dtype=np.bool_)

    def part(self, start: int, stop: int) -> Indices:
        """Positions `start` ≤ position < `stop`: int64 [stop − start]; not to be written to."""
        for stretch in range(start // _STRETCH, min(len(self._todo), -(-stop // _STRETCH))):
            if self._todo[stretch]:
                self._sort(stretch)
        return self._order[start:stop]

    def _sort(self, stretch: int) -> None:
        """Sort a stretch, and what else is in the first and the last of its parts; sorted ones stay as they are."""
        first, last = stretch * _STRETCH, min(len(self._order), (stretch + 1) * _STRETCH) - 1
        low, high = np.searchsorted(self._ends, (first, last), side="right")
        whole = slice(int(self._ends[low - 1]) if low else 0, int(self._ends[high]))
        indices = self._order[whole]
        self._order[whole] = indices[_sorted(self._keys[indices])]
        self._todo[stretch] = False


def _keys(samples: int, seed: int, epoch: int) -> npt.NDArray[np.uint64]:
    digest = hashlib.blake2b(struct.pack("<QQ", seed, epoch), digest_size=16, person=b"edt-order").digest()
    return np.random.Philox(key=int.from_bytes(digest, "little")).random_raw(samples)


def _sorted(keys: npt.NDArray[np.uint64] | npt.NDArray[np.uint16]) -> Indices:
    """The order that sorts these; equal ones stay in theirs."""
    return np.argsort(keys, kind="stable").astype(np.int64, copy=False)
