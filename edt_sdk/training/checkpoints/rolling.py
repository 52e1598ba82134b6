"""Keep the states from which a training resumes when no worker is left: files on disk and a copy in memory.

`epoch-<N>.ckpt` follows an epoch with a checkpoint, and all of them are kept. `update-<N>.ckpt` follows N updates, and
the newest two are kept. The copy in memory (`mirror.py`) is as new as two per cent of the time allow. The training
waits for a copy of the state and never for a disk, because a thread writes the files. A file that cannot be written
becomes a line in the log. On a full disk an epoch's files wait for room until the next checkpoint is due. When a file
cannot be read, the next older file is used. Only rank 0 uses this module, and it never decides when to resume.

From the end of an epoch until its files are on disk, the copy in memory of that end is pinned. So the next writer can
write the files that a killed writer has left out (`write_missing_epochs`), however far the training has gone on.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shutil
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from torch import nn
from torch.optim import Optimizer

from edt_sdk.schemas.errors import NotFound, Unprocessable
from edt_sdk.schemas.wire.paths import JobPaths
from edt_sdk.schemas.wire.saved import NAME, SUFFIX, Damaged, read_header
from edt_sdk.training.checkpoints import ckpt, durable
from edt_sdk.training.checkpoints import model_files as checkpoint
from edt_sdk.training.checkpoints.mirror import Mirror, MirrorSlot
from edt_sdk.training.checkpoints.snapshot import StateCopy
from edt_sdk.training.records.full_disk import when_there_is_room
from edt_sdk.training.state.state import State, restore

log = logging.getLogger(__name__)

KEPT = 2
_WMLA_NAME = re.compile(r"model_epoch_(\d+)(?:\.pth)?\Z")


@dataclass(frozen=True, slots=True)
class LoadedState:
    """Holds a state to resume from, on the CPU in separate memory. `name` is for the log: "epoch-3" or "memory"."""

    state: State
    position: int
    updates: int
    name: str


class Keeper:
    """Keeps and finds the states of a training.

    In the methods, `capture` is a callback that returns the current `state.capture(…)`. A method calls it at most once,
    before it returns, and only if a copy is due.

    Args:
        paths: the job's files.
        training: its number within the job.
        memory: folder on a tmpfs for the copy in memory, None for no such copy.
        interval: seconds between rolling checkpoints on disk.
        patient: whether to wait for a full disk where the training cannot go on without a file.
    """

    def __init__(
        self,
        paths: JobPaths,
        training: int,
        *,
        memory: Path | None,
        interval: float,
        patient: Callable[[], bool] = lambda: False,
    ) -> None:
        self._paths = paths
        self._training = training
        self._folder = paths.checkpoints(training)
        self._interval = interval
        self._patient = patient
        self._mirror = Mirror(memory, training)
        self._last = time.monotonic()
        self._thread: ThreadPoolExecutor | None = None
        self._pending: list[Future[None]] = []
        self._awaited: Callable[[], bool] | None = None
        # Two copies, so that an epoch's checkpoint does not wait while a rolling checkpoint is written.
        self._free: SimpleQueue[StateCopy] = SimpleQueue()
        for _ in range(2):
            self._free.put(StateCopy())

    # --- writing ------------------------------------------------------------------------------------------------------

    def committed(self, capture: Callable[[], State], position: int, updates: int) -> None:
        """Copy the state after a committed update to memory and to disk, each where a copy is due."""
        now = time.monotonic()
        # Skip it while files are still being written: a disk that is slower than the interval would queue up states.
        if now - self._last >= self._interval and not self._writing:
            self._last = now
            snapshot = self._taken(capture(), position, updates)
            self._start(f"update-{updates}", snapshot, partial(self._write_update, snapshot, position, updates))
        else:
            self._mirror.copy_if_due(capture, position, updates)

    def epoch(
        self,
        number: int,
        capture: Callable[[], State],
        position: int,
        updates: int,
        model: nn.Module,
        optimizer: Optimizer,
    ) -> None:
        """Write the `.pth` pair and `epoch-<number>.ckpt` of an epoch (from 1) that has just ended, from one copy.

        When this returns the state is in memory that outlives this process, where there is room. Call it before this
        member takes part in any further exchange: the others could otherwise change the model while the only process
        that holds the state of this moment dies.
        """
        # Pinned before the files are written: if this process is killed, the next rank 0 writes them from the slot
        # (decision 010).
        snapshot = self._taken(capture(), position, updates, number)
        try:
            pair = checkpoint.pair(model, optimizer, snapshot.copies)
        except BaseException:
            self._mirror.unpin(number)
            self._put_back(snapshot)
            raise
        self._last = time.monotonic()

        def write() -> None:
            try:
                when_there_is_room(
                    lambda: self._write_epoch(number, pair, snapshot.state, position, updates), self._may_wait
                )
            finally:
                # Also after an error: the next writer would fail too, and a pinned slot blocks the mirror.
                self._mirror.unpin(number)

        self._start(f"epoch-{number}", snapshot, write)

    def write_missing_epochs(self, position: int, fresh: Callable[[], tuple[nn.Module, Optimizer]]) -> None:
        """Write the files of epochs that a killed writer has left out. A failure is a line in the log.

        Epochs that end after this member's position are recomputed, and their files are written then. `fresh` returns a
        model and an optimizer of this training, on the CPU and not in use, to be filled.
        """
        for slot in self._mirror.pinned():
            name = f"epoch-{slot.epoch}"
            try:
                if slot.position <= position:
                    log.info("Writing the files of %s, which a worker that is gone has not written.", name)
                    kept = self._mirror.load(slot)
                    model, optimizer = fresh()
                    restore(kept, model, optimizer)
                    pair = checkpoint.pair(model, optimizer)
                    self._write_epoch(slot.epoch, pair, kept, slot.position, slot.updates)
            except Exception as error:
                _not_written(name, error)
            # Also when the files could not be written, because a pinned slot blocks the mirror.
            self._mirror.unpin(slot.epoch)

    def has_epoch(self, number: int) -> bool:
        """Return whether all files of epoch `number` (from 1) exist. The `.ckpt` is written last."""
        try:
            read_header(self._folder / f"epoch-{number}{SUFFIX}")
        except (Damaged, OSError):
            return False
        return True

    def when_written(self, then: Callable[[], None]) -> None:
        """Call `then` from another thread when the files of all earlier calls are on disk, or could not be written."""
        self._pending.append(self._writer().submit(then))

    def save(self, capture: Callable[[], State], position: int, updates: int) -> None:
        """Write `update-<updates>.ckpt` now and return when it is on disk. OSError when it cannot be written."""
        self._wait(self._patient)
        snapshot = self._taken(capture(), position, updates)
        try:
            when_there_is_room(lambda: self._write_update(snapshot, position, updates), self._patient)
        finally:
            self._put_back(snapshot)
        self._last = time.monotonic()

    def final(self, model: nn.Module, optimizer: Optimizer, scheduler: Any = None) -> None:
        """Write the final `.pth` files and remove what only a resume needs. OSError when a file cannot be written."""
        self._ended(lambda: self._write_final(model, optimizer, scheduler))

    def final_weights(self, weights: Any, position: int) -> None:
        """Do as `final` for a sharded model: with its state dict, and the parts of this position."""
        self._ended(lambda: self._write_weights(weights))
        target = self._paths.train_dir / checkpoint.PARTS
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(self.parts(position), target, copy_function=os.link)
        self._remove_parts(but=position)

    def parts(self, position: int) -> Path:
        """Return the folder in which all members of a sharded model write their parts of a checkpoint."""
        return self._folder / f"parts-{position}"

    def _remove_parts(self, *, but: int | None = None) -> None:
        """Remove the parts that belong to no checkpoint."""
        # Only a sharded model has any. Nothing else of the folder is looked at for a model without.
        if folders := set(self._folder.glob("parts-*")):
            kept = {self.parts(position) for _, position in self._positions()}
            if but is not None:
                kept.add(self.parts(but))
            for folder in folders - kept:
                shutil.rmtree(folder, ignore_errors=True)

    def _ended(self, write: Callable[[], None]) -> None:
        self._wait(self._patient)
        when_there_is_room(write, self._patient)
        # Last of all: a death before this line leaves the files to resume from.
        for path in self._files("update"):
            path.unlink(missing_ok=True)
        self._mirror.remove()

    def close(self) -> None:
        """Wait for the files that are being written. All files stay, and a closed keeper may be used again."""
        self._wait()
        if self._thread is not None:
            self._thread.shutdown()
            self._thread = None
        self._mirror.close()

    # --- reading ------------------------------------------------------------------------------------------------------

    def newest(self) -> LoadedState | None:
        """Return the most advanced complete state, or the state a user asked for, None when there is none.

        Call it only while no member trains. A damaged file gets the suffix `.damaged` and a line in the log.

        Raises:
            NotFound: there is no checkpoint of the name in `paths.resume_from`.
            Unprocessable: that checkpoint is damaged.
        """
        self._wait()
        durable.sweep(self._folder)
        durable.sweep(self._paths.train_dir)
        try:
            # The second line names the request it belongs to, for the server.
            wanted = self._paths.resume_from.read_text(encoding="utf-8").partition("\n")[0]
        except FileNotFoundError:
            return self._most_advanced()
        return self._asked_for(wanted)

    def _most_advanced(self) -> LoadedState | None:
        candidates: list[tuple[int, int, Path | MirrorSlot]] = [
            (slot.position, 1, slot) for slot in self._mirror.slots()
        ]  # memory before disk, at the same position
        candidates += [(position, 0, path) for path, position in self._positions()]
        for _, _, place in sorted(candidates, key=lambda c: c[:2], reverse=True):
            try:
                return self._load(place)
            except (Damaged, OSError) as error:
                self._set_aside(place.path if isinstance(place, MirrorSlot) else place, error)
        return None

    def _asked_for(self, wanted: str) -> LoadedState:
        match = _WMLA_NAME.match(wanted)
        name = f"epoch-{match[1]}" if match else wanted.removesuffix(SUFFIX)
        path = self._folder / f"{name}{SUFFIX}"
        there = ", ".join(sorted(path.stem for path in self._files())) or "none"
        if not NAME.match(name) or not path.is_file():
            raise NotFound(
                f"There is no checkpoint {wanted!r} that training {self._training} could resume from.",
                hint=f"There are: {there}.",
                job=self._paths.job_id,
            )
        try:
            saved = self._load(path)
        except (Damaged, OSError) as error:
            raise Unprocessable(
                f"The checkpoint {name} is damaged ({error}).",
                hint=f"Resume from another one ({there}), or from none for the newest.",
                job=self._paths.job_id,
            ) from None
        # The request is removed last, so that a worker that dies in between repeats all of this.
        self._discard_behind(saved.position)
        self._paths.resume_from.unlink(missing_ok=True)
        return saved

    def _discard_behind(self, position: int) -> None:
        # The copies in memory may be further on than the requested checkpoint, and a later resume would prefer them.
        self._mirror.remove()
        for path, there in self._positions():
            if there <= position:
                continue
            if path.name.startswith("epoch"):
                # The checkpoint of an epoch is never deleted. The new name takes it out of the candidates.
                os.replace(path, path.with_name(f"{path.name}.discarded"))
            else:
                path.unlink(missing_ok=True)
        durable.sync(self._folder)

    def _load(self, place: Path | MirrorSlot) -> LoadedState:
        if isinstance(place, MirrorSlot):
            return LoadedState(self._mirror.load(place), place.position, place.updates, "memory")
        header, state = ckpt.read(place, self._training)
        return LoadedState(state, header.position, header.updates, place.stem)

    def _positions(self) -> list[tuple[Path, int]]:
        """Return all files with a complete header and their positions, and set the others aside."""
        found = []
        for path in self._files():
            try:
                found.append((path, read_header(path).position))
            except (Damaged, OSError) as error:
                self._set_aside(path, error)
        return found

    def _set_aside(self, path: Path, why: Exception) -> None:
        log.warning("%s is damaged (%s) and was skipped.", path, why)
        with contextlib.suppress(OSError):
            os.replace(path, path.with_name(f"{path.name}.damaged"))

    def _files(self, kind: str = "") -> list[Path]:
        """Return the checkpoints on disk in the order of their numbers."""
        found = []
        if self._folder.is_dir():
            for path in self._folder.glob(f"*{SUFFIX}"):
                match = NAME.match(path.stem)
                if match and match[1].startswith(kind):
                    found.append((int(match[2]), path))
        return [path for _, path in sorted(found)]

    # --- one thread ---------------------------------------------------------------------------------------------------

    def _taken(self, state: State, position: int, updates: int, epoch: int = 0) -> StateCopy:
        """Return a copy of `state`, the mirror's where it has room. Waits while both copies are still being written."""
        snapshot = self._free.get()
        try:
            on_cpu = all(tensor.device.type == "cpu" for tensor in (*state.own.values(), *state.tensors))
            kept = self._mirror.pin(state, position, updates, epoch) if on_cpu else None
            snapshot.take(state, kept)
            if not on_cpu and (copied := self._mirror.pin(snapshot.state, position, updates, epoch)) is not None:
                copied.release()  # files are written from page-locked memory, into which the device copies by itself
        except BaseException:
            self._put_back(snapshot)
            raise
        return snapshot

    def _put_back(self, snapshot: StateCopy) -> None:
        snapshot.give_back()
        self._free.put(snapshot)

    @property
    def _writing(self) -> bool:
        self._pending = [future for future in self._pending if not future.done()]
        return bool(self._pending)

    def _start(self, name: str, snapshot: StateCopy, write: Callable[[], None]) -> None:
        self._pending.append(self._writer().submit(self._attempt, name, snapshot, write))

    def _writer(self) -> ThreadPoolExecutor:
        # One thread, so that files are written in the order of their states.
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "edt-checkpoint", initializer=_yield_to_others)
        return self._thread

    def _attempt(self, name: str, snapshot: StateCopy, write: Callable[[], None]) -> None:
        try:
            write()
        except Exception as error:
            # A disk may raise anything, and so may torch. No error of a checkpoint may end the training.
            _not_written(name, error)
        finally:
            self._put_back(snapshot)

    def _may_wait(self) -> bool:
        """Return whether an epoch's files may wait for room on the disk, while the training goes on."""
        # The next checkpoint takes the other copy, and a third one would hold up the training.
        if self._free.empty():
            return False
        return self._awaited is None or self._awaited()

    def _wait(self, patient: Callable[[], bool] = lambda: False) -> None:
        """Wait for the files that are being written, and where they wait for room, as long as `patient` says."""
        self._awaited = patient
        for future in self._pending:
            future.result()
        self._pending.clear()
        self._awaited = None

    def _write_epoch(self, number: int, pair: checkpoint.Pair, state: State, position: int, updates: int) -> None:
        checkpoint.write(self._paths.train_dir, number, pair)
        self._write(f"epoch-{number}", state, position, updates, epoch=number)

    def _write_final(self, model: nn.Module, optimizer: Optimizer, scheduler: Any) -> None:
        checkpoint.save_schedule(self._paths.train_dir, optimizer, scheduler)
        checkpoint.save(self._paths.train_dir, checkpoint.FINAL, model, optimizer)
        self._link_final()

    def _write_weights(self, weights: Any) -> None:
        checkpoint.write_weights(self._paths.train_dir / checkpoint.MODEL, weights)
        self._link_final()

    def _link_final(self) -> None:
        durable.link(self._paths.final(self._training), self._paths.train_dir / checkpoint.MODEL)

    def _write_update(self, snapshot: StateCopy, position: int, updates: int) -> None:
        self._write(f"update-{updates}", snapshot.state, position, updates, epoch=None)
        for path in self._files("update")[:-KEPT]:
            path.unlink(missing_ok=True)
        self._remove_parts()

    def _write(self, name: str, state: State, position: int, updates: int, *, epoch: int | None) -> None:
        # The logs reach the disk before the state does. Otherwise a power cut could lose lines of the commit log for
        # updates that the state contains, and a resume from it would never compute them again.
        for path in (self._paths.commits(self._training), self._paths.metrics(self._training)):
            with contextlib.suppress(FileNotFoundError):
                durable.sync(path)
        path = self._folder / f"{name}{SUFFIX}"
        ckpt.write(path, state, training=self._training, position=position, updates=updates, epoch=epoch)


def _not_written(name: str, error: Exception) -> None:
    log.error("The checkpoint %s was not written: %s. The training goes on.", name, error)


def _yield_to_others() -> None:
    """Lower this thread's priority below the computing threads'. On Linux each thread has its own priority."""
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 10)
