"""Random states that follow from (seed, what for, which one), never from what happened before in this process.

That is why dropout and augmentation do not depend on which worker computes a shard or loads a sample. Covers Python's
`random`, numpy's legacy global state and torch's default generators (CPU; CUDA once it is initialised: touching it
earlier would create a context). Generators that user code makes itself and keeps (`numpy.random.default_rng()` stored
in a data set) are out of reach; made inside `__getitem__` with a seed drawn from one of these states they are exact
too.
"""

from __future__ import annotations

import hashlib
import random
import struct
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


def _cuda() -> bool:
    return bool(torch.cuda.is_initialized())  # type: ignore[no-untyped-call]


def derive(seed: int, purpose: str, *numbers: int) -> int:
    """A 64-bit seed: BLAKE2b over (seed, purpose, numbers). Different arguments give unrelated seeds.

    Args:
        seed: the job's, 0 ≤ seed < 2**64.
        purpose: at most 16 ASCII characters.
        *numbers: 0 ≤ number < 2**64.
    """
    packed = struct.pack(f"<{len(numbers) + 1}Q", seed, *numbers)
    digest = hashlib.blake2b(packed, digest_size=8, person=purpose.encode("ascii")).digest()
    return int.from_bytes(digest, "little")


def set_states(seed: int) -> None:
    """Start `random`, numpy and torch from a 64-bit seed (the last two on the CPU look at 32 of them); about 7 µs."""
    random.seed(seed)
    # One word, into which both halves go: an array of the two takes five times as long.
    np.random.seed((seed ^ seed >> 32) & 0xFFFFFFFF)
    # Not torch.manual_seed: it visits every backend, queues a call for each that is not initialised, and takes 100 µs.
    torch.default_generator.manual_seed(seed)
    if _cuda():
        torch.cuda.manual_seed(seed)


@contextmanager
def preserved() -> Iterator[None]:
    """Put all random states back as they were on entering, whatever happened inside; about 100 µs."""
    python, legacy, cpu = random.getstate(), np.random.get_state(), torch.get_rng_state()
    cuda = torch.cuda.get_rng_state() if _cuda() else None
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(legacy)
        torch.set_rng_state(cpu)
        if cuda is not None:
            torch.cuda.set_rng_state(cuda)
