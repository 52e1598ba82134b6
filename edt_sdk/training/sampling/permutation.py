"""Compute the order of the samples in one epoch: a permutation that depends on (samples, seed, epoch) alone.

The permutation sorts random 64-bit keys, one per sample, with a stable sort. The keys are the raw stream of
Philox-4x64-10 under a key that BLAKE2b makes from (seed, epoch). Numpy promises that the raw stream of a bit generator
never changes, whereas `Generator.permutation` may change between versions (NEP 19). The result of a stable sort is
unique. So the order is the same with every numpy version and on every machine.

Sorting a million keys takes 0.1 s. A joiner would delay its job that long, and every worker at the start of an epoch.
So a long order is first only partitioned by the top bits of the keys, which is quick, and a stretch is sorted on its
first use (decision 027). The partition fixes the position of each part, so the result is the same, bit for bit.
"""

from __future__ import annotations

import hashlib
import struct

import numpy as np
import numpy.typing as npt

Indices = npt.NDArray[np.int64]

# Up to _FEW keys, sorting all takes a few milliseconds. Above _MANY keys, keeping the keys takes too much memory.
_FEW, _MANY = 1 << 16, 1 << 23
# The number of top bits for the partition. Numpy sorts 16-bit numbers by counting.
_BITS = 16
# The number of positions that are sorted together.
_STRETCH = 1 << 13


class Permutation:
    """Computes parts of the order of an epoch lazily. Not thread-safe."""

    def __init__(self, samples: int, seed: int, epoch: int) -> None:
        self._keys = _keys(samples, seed, epoch)
        self._todo = np.zeros(0, dtype=np.bool_)  # True for stretches that are partitioned but not sorted
        # Drop the keys: 8 bytes per sample that nothing reads again.
        if not _FEW < samples <= _MANY:
            self._order = _sorted(self._keys)
            self._keys = self._keys[:0].copy()
            return
        tops = (self._keys >> np.uint64(64 - _BITS)).astype(np.uint16)
        self._order = _sorted(tops)
        self._ends = np.cumsum(np.bincount(tops, minlength=1 << _BITS))  # where each part ends, by its top bits
        self._todo = np.ones(-(-samples // _STRETCH), dtype=np.bool_)

    def part(self, start: int, stop: int) -> Indices:
        """Return the positions `start` ≤ position < `stop`: int64 [stop − start]. The caller must not write to it."""
        for stretch in range(start // _STRETCH, min(len(self._todo), -(-stop // _STRETCH))):
            if self._todo[stretch]:
                self._sort(stretch)
        return self._order[start:stop]

    def _sort(self, stretch: int) -> None:
        """Sort a stretch together with the rest of its first and last part. Sorted stretches do not change."""
        first, last = stretch * _STRETCH, min(len(self._order), (stretch + 1) * _STRETCH) - 1
        # Whole parts must be sorted together, because the partition orders only by the top bits.
        low, high = np.searchsorted(self._ends, (first, last), side="right")
        whole = slice(int(self._ends[low - 1]) if low else 0, int(self._ends[high]))
        indices = self._order[whole]
        self._order[whole] = indices[_sorted(self._keys[indices])]
        self._todo[stretch] = False


def _keys(samples: int, seed: int, epoch: int) -> npt.NDArray[np.uint64]:
    digest = hashlib.blake2b(struct.pack("<QQ", seed, epoch), digest_size=16, person=b"edt-order").digest()
    return np.random.Philox(key=int.from_bytes(digest, "little")).random_raw(samples)


def _sorted(keys: npt.NDArray[np.uint64] | npt.NDArray[np.uint16]) -> Indices:
    """Return the order that sorts the keys. Equal keys keep their order."""
    return np.argsort(keys, kind="stable").astype(np.int64, copy=False)
