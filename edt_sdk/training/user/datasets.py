"""Open the data set of a training, once in each worker.

The user's function runs in every worker. The first worker of a training runs it alone under a file lock, because model
code often downloads or unpacks its data there, and concurrent calls would destroy each other's files. The other workers
wait for the lock once and then run the function concurrently.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch.utils.data import DataLoader

from edt_sdk.schemas.errors import Unprocessable


def open_datasets(function: Callable[[], Any], lock: Path) -> tuple[Any, Any | None]:
    """Return the training and the validation set of the user's function. The latter is None when missing or empty.

    `lock` is the lock file of this training, created when missing. Errors of the function pass through.

    Raises:
        Unprocessable: the result is not two map-style data sets, or the training set is empty.
    """
    return _checked(_first_alone(function, lock))


def _first_alone(function: Callable[[], Any], lock: Path) -> Any:
    # A lock of the kernel's is released with the process, so a worker that dies while downloading blocks no other.
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        # An empty lock file means that no worker has finished the function. A crash releases the lock and leaves it
        # empty.
        if os.fstat(descriptor).st_size == 0:
            result = function()
            os.ftruncate(descriptor, 1)  # a hole, for which even a full disk has room
            return result
    finally:
        os.close(descriptor)
    return function()


def _checked(result: Any) -> tuple[Any, Any | None]:
    if not isinstance(result, tuple | list) or len(result) != 2:
        raise Unprocessable(
            f"datasets_function must return (train, test), not {_described(result)}.",
            hint="Return two data sets; None as the second when there is nothing to validate with.",
        )
    train, test = result
    for name, dataset in (("training", train), ("test", test)):
        if dataset is None and name == "test":
            continue
        if not (hasattr(type(dataset), "__len__") and hasattr(type(dataset), "__getitem__")):
            raise Unprocessable(
                f"The {name} set is {_described(dataset)}, which has no __len__ and __getitem__.",
                hint="Give its data set: the engine makes the batches, by batch_size and fn_batch_collate."
                if isinstance(dataset, DataLoader)
                else "Give a map-style data set: the engine decides the order of samples, so it needs to reach each by "
                "its index. A stream of single samples that fits into memory can be read into a list.",
            )
    if len(train) == 0:
        raise Unprocessable("The training set is empty.", hint="len(train) is 0: look at the path it reads from.")
    return train, test if test is not None and len(test) > 0 else None


def _described(value: Any) -> str:
    kind = f"a {type(value).__name__}"
    return f"{kind} of {len(value)}" if isinstance(value, tuple | list) else kind
