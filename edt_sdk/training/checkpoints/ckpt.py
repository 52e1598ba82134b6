"""Write and read `.ckpt` files. A file holds a training's state at one position, and is complete or refused.

A file is a header (`schemas/wire/saved.py`) and the output of `torch.save`. All tensors lie on the CPU in separate
storage, and `state.restore` copies them to the model's device. Writing and hashing release the interpreter's lock for
all but the smallest pieces, so a thread can write while another one trains.
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
    """Write a state with all tensors on the CPU atomically. The other arguments are fields of `Saved`.

    Raises:
        OSError: the file cannot be written. An older file of this name is still there.
    """
    body = {
        "own": state.own,
        "rest": torch.frombuffer(bytearray(state.rest), dtype=torch.uint8),
        "tensors": state.tensors,
    }

    def fill(file: BinaryIO) -> None:
        # Space for the header, which needs the length and the hash of the body.
        file.write(b" " * SIZE)
        dumped = Dump(body, file)
        header = Saved(
            training=training, position=position, updates=updates, epoch=epoch, time=time.time(), length=dumped.length
        )
        file.seek(0)
        file.write(header.sealed(dumped.hash.digest()).encoded())

    durable.write(path, fill)


def read(path: Path, training: int) -> tuple[Saved, State]:
    """Return a file's header and its state on the CPU.

    Raises:
        Damaged: the file is incomplete or belongs to another training.
        OSError: the file cannot be read.
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
