"""Store everything a `train()` call sends to its workers in one file.

The file is a JSON line (format, Python and torch version), then a single cloudpickle. A single pickle keeps the
identity of objects: the receiver's optimizer holds the parameters of the receiver's model. The header line is read
first, so that another Python minor version gives a clear error instead of a crash in the unpickler. The file is written
atomically with mode 0600. It never contains the driver's logger.

Modules below the submitted code, the kernel's working directory, or a folder that the script put on `sys.path` travel
by value inside the pickle. The worker then needs no copy of the folder, and globals that the script set before
`train()` arrive with the module. Installed packages and this package never travel, even if an environment lies inside
such a folder.
"""

from __future__ import annotations

import os
import pickle
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from types import ModuleType
from typing import Any

import cloudpickle  # type: ignore[import-untyped]
import msgspec
import torch
from torch import nn

from edt_sdk.schemas.errors import EdtError, Unprocessable
from edt_sdk.training.state import pickling
from edt_sdk.training.state import previous_version as former
from edt_sdk.training.user.culprit import find_culprit
from edt_sdk.training.user.own_modules import own_modules

FORMAT = 1
_LONGEST_HEADER = 4096


@dataclass(frozen=True, slots=True)
class TrainOptions:
    """Holds the numbers of a `train()` call.

    Attributes:
        epochs: ≥ 1.
        micro_batch: `batch_size` of the call, the most samples of a shard.
        shards: sample counts of the V shards of a full update.
        loader_workers: processes that load samples for each worker.
        validation_freq, checkpoint_freq: in epochs, 0 for none.
        clip_grad_norm: greatest norm of the combined gradient, None for no clipping.
        nan_loss: "warn" continues when a loss is not a number, "stop" fails the job before that update is committed.
        lr_step: "epoch" or "update", the interval of the learning-rate scheduler.
    """

    epochs: int
    micro_batch: int
    shards: tuple[int, ...]
    loader_workers: int = 0
    validation_freq: int = 1
    checkpoint_freq: int = 1
    clip_grad_norm: float | None = None
    nan_loss: str = "warn"
    lr_step: str = "epoch"


@dataclass(frozen=True, slots=True)
class Training:
    """Holds the objects of a `train()` call. Meanings as in `edt_sdk.fabric.fabric.FabricModel`.

    `called` is the place of the call, such as "train.py, line 23", for error messages. "" when it is not known.
    """

    model: nn.Module
    datasets_function: Callable[[], Any]
    loss_function: Callable[..., Any]
    optimizer: torch.optim.Optimizer
    options: TrainOptions
    callbacks: Sequence[Any] = ()
    fn_step_train: Callable[..., Any] | None = None
    fn_test: Callable[..., Any] | None = None
    fn_batch_collate: Callable[..., Any] | None = None
    fn_test_collate: Callable[..., Any] | None = None
    metrics: Sequence[Callable[..., Any]] = ()
    worker_logger: Any = None
    worker_logger_callback: Any = None
    lr_scheduler: Any = None
    save_to_onnx: bool = False
    called: str = ""


# The user's names of the parts, where they differ from the fields above.
_KNOWN_AS = {"callbacks": "user_callback"}


class PayloadHeader(msgspec.Struct, frozen=True, kw_only=True):
    """Holds the first line. `python` is "major.minor"."""

    edt_payload: int
    python: str
    torch: str


def python_version() -> str:
    """Return the "major.minor" of this interpreter. Pickled code is valid only between equal versions."""
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def pack(training: Training, roots: Sequence[Path]) -> bytes:
    """Return the content of the file. Modules below `roots` travel by value. Raises what `dump` raises."""
    parts = {field.name: getattr(training, field.name) for field in fields(training)}
    # Options as plain data, so that the path of their class does not become part of the file.
    return dump({**parts, "options": asdict(training.options)}, roots)


def dump(parts: Mapping[str, Any], roots: Sequence[Path]) -> bytes:
    """Return named objects as the content of a file, in a single pickle.

    Raises:
        Unprocessable: an object cannot be pickled, or the copy would lack a hook. The message names it.
    """
    with by_value(roots):
        try:
            pickled = pickling.dumps(dict(parts))
        except EdtError:
            raise
        except Exception as error:  # pickle and user __reduce__ methods may raise anything
            raise _cannot_pickle(parts, error) from error
        _check_hooks(parts, pickled)
    header = PayloadHeader(edt_payload=FORMAT, python=python_version(), torch=str(torch.__version__))
    return msgspec.json.encode(header) + b"\n" + pickled


@contextmanager
def by_value(roots: Sequence[Path]) -> Iterator[None]:
    """Make cloudpickle store functions and classes of loaded modules below `roots` by value inside the block."""
    before = cloudpickle.list_registry_pickle_by_value()
    registered: list[ModuleType] = []
    try:
        for module in own_modules(roots):
            if module.__name__ not in before:
                cloudpickle.register_pickle_by_value(module)
                registered.append(module)
        yield
    finally:
        for module in registered:
            # Undone afterwards: the registry is global, and the user's own pickles must not change.
            cloudpickle.unregister_pickle_by_value(module)


def write(path: Path, data: bytes) -> None:
    """Write `data` to `path` atomically with mode 0600: after a crash the file is complete or absent."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        # fsync before the rename: after a power loss a renamed file without its data would look complete.
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def read(path: Path) -> Training:
    """Return the training in a file. Raises what `load` raises."""
    return training_in(load(path))


def training_in(parts: dict[str, Any]) -> Training:
    """Return the training whose parts `load` returned."""
    if isinstance(parts["options"], dict):  # version 0.1 pickled a `TrainOptions` itself
        parts["options"] = TrainOptions(**parts["options"])
    return Training(**parts)


def load(path: Path) -> dict[str, Any]:
    """Return the named objects in a file.

    Raises:
        Unprocessable: the file is no payload, is from another Python minor version, or cannot be unpickled here.
    """
    with path.open("rb") as file:
        _check_header(file.readline(_LONGEST_HEADER))
        try:
            parts: dict[str, Any] = former.Unpickler(file).load()
        except Exception as error:  # unpickling imports and runs the user's modules
            raise Unprocessable(
                f"A worker could not load what train() was given: {type(error).__name__}: {error}.",
                hint="Classes and functions must be importable in a worker, or defined in the script or its folder.",
            ) from error
    return parts


def _check_header(line: bytes) -> None:
    """Raise Unprocessable unless this interpreter may unpickle the rest."""
    try:
        header = msgspec.json.decode(line, type=PayloadHeader)
    except msgspec.DecodeError:
        raise Unprocessable("This file is not what a train() call writes.") from None
    if header.edt_payload != FORMAT:
        raise Unprocessable(
            f"This training was packed in format {header.edt_payload}, but this jupyter-edt reads format {FORMAT}.",
            hint="Use the same release of jupyter-edt where you submit and where jobs run.",
        )
    if header.python != python_version():
        raise Unprocessable(
            f"This training was packed by Python {header.python}, but its workers run Python {python_version()}: "
            "code cannot be carried from one to the other.",
            hint=f"Submit from a kernel with Python {python_version()}, or run jobs in Python {header.python}.",
            python=header.python,
        )


def _check_hooks(parts: Mapping[str, Any], pickled: bytes) -> None:
    if "model" not in parts or "optimizer" not in parts:
        return
    # A copy is made only where there are hooks. The user's class may register them again when it is unpickled.
    before = pickling.hooks(parts["model"], parts["optimizer"])
    if before:
        copy = pickle.loads(pickled)
        pickling.check_hooks(before, pickling.hooks(copy["model"], copy["optimizer"]))


def _cannot_pickle(parts: Mapping[str, Any], error: Exception) -> EdtError:
    """Return an error that names the part."""
    for name, value in parts.items():
        culprit = find_culprit(_KNOWN_AS.get(name, name), value)
        if culprit is not None:
            path, part = culprit
            return Unprocessable(
                f"{path} cannot be sent to the workers: it is a {type(part).__qualname__} "
                f"({type(error).__name__}: {error}).",
                hint="Create it where it is used (in forward, in the data set's __getitem__) instead of keeping it, "
                "or leave it out in a __getstate__ method of the class that holds it.",
                field=path,
            )
    return Unprocessable(f"The arguments of train() cannot be sent to the workers: {type(error).__name__}: {error}.")
