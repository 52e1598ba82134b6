"""The `.ckpt` file: one training's state at one position, whole or refused.

A header (`schemas/saved.py`), then what `torch.save` makes of the tensors. All tensors lie on the CPU in storage of
their own; `state.restore` brings them to where the model is. Writing and hashing release the interpreter's lock for all
but the smallest pieces, so that a thread can do it while another trains.
"""

from __future__ import annotations

import hashlib
import mmap
import time
from pathlib import Path
from typing import BinaryIO

import torch

from edt_sdk.schemas.wire.saved import SIZE, Damaged, Saved, decode, read_header
from edt_sdk.training.checkpoints import durable
from edt_sdk.training.checkpoints.dump import Dump
from edt_sdk.training.state.state import State


def write(path: Path, state: State, *, training: int, position: int, updates: int, epoch: int | None) -> None:
    """Write a state whose tensors are on the CPU; fields as in `Saved`.

    OSError when that is impossible; the old file is then still there.
    """
    body = {
        "own": state.own,
        "rest": torch.frombuffer(bytearray(state.rest), dtype=torch.uint8),
        "tensors": state.tensors,
    }

    def fill(file: BinaryIO) -> None:
        file.write(b" " * SIZE)
        dumped = Dump(body, file)
        header = Saved(
            training=training,
            position=position,
            updates=updates,
            epoch=epoch,
            time=time.time(),
            length=dumped.length,
        )
        file.seek(0)
        file.write(header.sealed(dumped.sha256).encoded())

    durable.write(path, fill)


def read(path: Path, training: int) -> tuple[Saved, State]:
    """A file's header and state, on the CPU.

    Raises:
        Damaged: the file is not whole, or belongs to another training.
        OSError: it cannot be read.
    """
    header = read_header(path)
    with path.open("rb") as file:
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as memory, memoryview(memory) as view:
            with view[SIZE:] as body:
                digest = hashlib.sha256(body).digest()
            if decode(view[:SIZE].tobytes()).sealed(digest) != header:
                raise Damaged("its checksum is wrong")
        if header.training != training:
            raise Damaged(f"it belongs to training {header.training}")
        file.seek(SIZE)
        body = torch.load(file, map_location="cpu", weights_only=True)
    return header, State(body["own"], body["rest"].numpy().tobytes(), body["tensors"])
