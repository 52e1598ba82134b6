"""What a training is resumed from when nobody is left who trained: files on disk and a copy in memory.

`epoch-<N>.ckpt` after an epoch with a checkpoint, all kept; `update-<N>.ckpt` behind N updates, the newest two kept;
one copy in memory (`mirror.py`), as new as two per cent of the time allow. The training waits for a copy of the state,
never for a disk: one thread writes. A file that cannot be written is a line in the log, a file that cannot be read is
passed over for the next older one. Only the member that writes (rank 0) uses this; it never decides when to resume.

An epoch's files are owed from its end until they are on disk. Meanwhile the copy in memory is that of its end, so that
whoever writes next can pay for a writer that was killed (`pay`), however far the training has gone on.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from queue import SimpleQueue

from torch import nn
from torch.optim import Optimizer

from edt_sdk.schemas.errors import NotFound, Unprocessable
from edt_sdk.schemas.wire.paths import JobPaths
from edt_sdk.schemas.wire.saved import NAME, SUFFIX, Damaged, read_header
from edt_sdk.training.checkpoints import ckpt, durable
from edt_sdk.training.checkpoints import model_files as checkpoint
from edt_sdk.training.checkpoints.mirror import Mirror, Slot
from edt_sdk.training.checkpoints.snapshot import Snapshot
from edt_sdk.training.state.state import State, restore

log = logging.getLogger(__name__)

KEPT = 2
_WMLA_NAME = re.compile(r"model_epoch_(\d+)(?:\.pth)?\Z")


@dataclass(frozen=True, slots=True)
class Saved:
    """A state and where it belongs.

    Attributes:
        state: on the CPU in memory of its own, for `state.restore`.
        position: in the schedule.
        updates: committed there.
        name: for people, such as "epoch-3" or "memory".
    """

    state: State
    position: int
    updates: int
    name: str


class Keeper:
    """Keeps and finds the states of one training.

    `capture` below is a function that gives `state.capture(…)` of this very moment; it is called at most once, before
    the method returns, and only if a copy is due.

    Args:
        paths: the job's files.
        training: number of the training within the job.
        memory: folder on a tmpfs for the copy in memory, None for none.
        interval: seconds between rolling checkpoints on disk.
    """

    def __init__(
        self,
        paths: JobPaths,
        training: int,
        *,
        memory: Path | None,
        interval: float,
    ) -> None:
        self._paths = paths
        self._training = training
        self._folder = paths.checkpoints(training)
        self._interval = interval
        self._mirror = Mirror(memory, training)
        self._last = time.monotonic()
        self._thread: ThreadPoolExecutor | None = None
        self._pending: list[Future[None]] = []
        # Two, so that an epoch's checkpoint need not wait while a rolling one is written.
        self._free: SimpleQueue[Snapshot] = SimpleQueue()
        for _ in range(2):
            self._free.put(Snapshot())

    # --- writing ------------------------------------------------------------------------------------------------------

    def committed(self, capture: Callable[[], State], position: int, updates: int) -> None:
        """An update is committed: copy the state, to memory, to disk, to both or to none, as the clock says."""
        now = time.monotonic()
        if now - self._last >= self._interval and not self._writing:
            self._last = now
            state = capture()
            snapshot = self._taken(state)
            capture = partial(_given, state)
            self._start(f"update-{updates}", snapshot, partial(self._write_update, snapshot, position, updates))
        self._mirror.offer(capture, position, updates)

    def epoch(
        self,
        number: int,
        capture: Callable[[], State],
        position: int,
        updates: int,
        model: nn.Module,
        optimizer: Optimizer,
    ) -> None:
        """Epoch `number` (from 1) ended with a checkpoint: its `.pth` pair and `epoch-<number>.ckpt`, from one copy.

        When this returns the state is in memory that outlives this process, where there is room. So this comes before
        anything of this member's without which the others could go on with the model.
        """
        snapshot = self._taken(capture())
        try:
            pair = checkpoint.pair(model, optimizer, snapshot.copies)
        except BaseException:
            self._free.put(snapshot)
            raise
        self._mirror.owe(snapshot.state, position, updates, number)
        self._last = time.monotonic()

        def write() -> None:
            try:
                self._write_epoch(number, pair, snapshot.state, position, updates)
            finally:
                # Also when it cannot be written: the next writer would fare no better, and memory must not be held.
                self._mirror.settle(number)

        self._start(f"epoch-{number}", snapshot, write)

    def pay(self, position: int, fresh: Callable[[], tuple[nn.Module, Optimizer]]) -> None:
        """Write the files of epochs that an earlier writer owed when it was killed. A failure is a line in the log.

        Args:
            position: of this member. What lies behind it is done again, and the files then written.
            fresh: gives a model and an optimizer of this training, on the CPU and not in use, to be filled.
        """
        for slot in self._mirror.owed():
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
            self._mirror.settle(slot.epoch)

    def has_epoch(self, number: int) -> bool:
        """Whether all files of epoch `number` (from 1) are there: the `.ckpt` is the last of them."""
        try:
            read_header(self._folder / f"epoch-{number}{SUFFIX}")
        except (Damaged, OSError):
            return False
        return True

    def save(self, capture: Callable[[], State], position: int, updates: int) -> None:
        """Write `update-<updates>.ckpt` now; it is on disk afterwards. OSError when that is impossible."""
        self._wait()
        snapshot = self._taken(capture())
        try:
            self._write_update(snapshot, position, updates)
        finally:
            self._free.put(snapshot)
        self._last = time.monotonic()

    def final(self, model: nn.Module, optimizer: Optimizer) -> None:
        """Write the final `.pth` pair and remove what only a resume would need. OSError when that is impossible."""
        self._wait()
        checkpoint.save(self._paths.train_dir, checkpoint.FINAL, model, optimizer)
        durable.link(self._paths.final(self._training), self._paths.train_dir / f"model_epoch_{checkpoint.FINAL}.pth")
        for path in self._files("update"):
            path.unlink(missing_ok=True)
        self._mirror.remove()

    def close(self) -> None:
        """Wait for what is being written; the files stay. A closed keeper may be used again."""
        self._wait()
        if self._thread is not None:
            self._thread.shutdown()
            self._thread = None
        self._mirror.close()

    # --- reading ------------------------------------------------------------------------------------------------------

    def newest(self) -> Saved | None:
        """The most advanced whole state, or the one that a person asked for; None when there is none.

        Only when nobody trains. A file that is damaged gets the suffix `.damaged` and a line in the log.

        Raises:
            NotFound: there is no checkpoint of the name in `paths.resume_from`.
            Unprocessable: there is, but it is damaged.
        """
        self._wait()
        durable.sweep(self._folder)
        durable.sweep(self._paths.train_dir)
        try:
            # What follows the name tells the server which request it belongs to.
            wanted = self._paths.resume_from.read_text(encoding="utf-8").partition("\n")[0]
        except FileNotFoundError:
            return self._most_advanced()
        return self._asked_for(wanted)

    def _most_advanced(self) -> Saved | None:
        candidates: list[tuple[int, int, Path | Slot]] = [
            (slot.position, 1, slot) for slot in self._mirror.slots()
        ]  # memory before disk, at the same position
        candidates += [(position, 0, path) for path, position in self._positions()]
        for _, _, place in sorted(candidates, key=lambda c: c[:2], reverse=True):
            try:
                return self._load(place)
            except (Damaged, OSError) as error:
                self._set_aside(place.path if isinstance(place, Slot) else place, error)
        return None

    def _asked_for(self, wanted: str) -> Saved:
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
        # In this order a death in between only repeats it: the request goes last.
        self._discard_behind(saved.position)
        self._paths.resume_from.unlink(missing_ok=True)
        return saved

    def _discard_behind(self, position: int) -> None:
        self._mirror.remove()
        for path, there in self._positions():
            if there <= position:
                continue
            if path.name.startswith("epoch"):
                os.replace(path, path.with_name(f"{path.name}.discarded"))
            else:
                path.unlink(missing_ok=True)
        durable.sync_folder(self._folder)

    def _load(self, place: Path | Slot) -> Saved:
        if isinstance(place, Slot):
            return Saved(self._mirror.load(place), place.position, place.updates, "memory")
        header, state = ckpt.read(place, self._training)
        return Saved(state, header.position, header.updates, place.stem)

    def _positions(self) -> list[tuple[Path, int]]:
        """All files with a whole header and the positions they say; others are set aside."""
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
        """The checkpoints on disk, in order of their numbers."""
        found = []
        if self._folder.is_dir():
            for path in self._folder.glob(f"*{SUFFIX}"):
                match = NAME.match(path.stem)
                if match and match[1].startswith(kind):
                    found.append((int(match[2]), path))
        return [path for _, path in sorted(found)]

    # --- one thread ---------------------------------------------------------------------------------------------------

    def _taken(self, state: State) -> Snapshot:
        """A copy of `state`; waits for memory where two copies are still being written."""
        snapshot = self._free.get()
        try:
            snapshot.take(state)
        except BaseException:
            self._free.put(snapshot)
            raise
        return snapshot

    @property
    def _writing(self) -> bool:
        self._pending = [future for future in self._pending if not future.done()]
        return bool(self._pending)

    def _start(self, name: str, snapshot: Snapshot, write: Callable[[], None]) -> None:
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "edt-checkpoint", initializer=_yield_to_others)
        self._pending.append(self._thread.submit(self._attempt, name, snapshot, write))

    def _attempt(self, name: str, snapshot: Snapshot, write: Callable[[], None]) -> None:
        try:
            write()
        except Exception as error:
            # Whatever a disk, or what torch makes of it, comes up with: the training does not end for it.
            _not_written(name, error)
        finally:
            self._free.put(snapshot)

    def _wait(self) -> None:
        for future in self._pending:
            future.result()
        self._pending.clear()

    def _write_epoch(self, number: int, pair: checkpoint.Pair, state: State, position: int, updates: int) -> None:
        checkpoint.write(self._paths.train_dir, number, pair)
        self._write(f"epoch-{number}", state, position, updates, epoch=number)

    def _write_update(self, snapshot: Snapshot, position: int, updates: int) -> None:
        self._write(f"update-{updates}", snapshot.state, position, updates, epoch=None)
        for path in self._files("update")[:-KEPT]:
            path.unlink(missing_ok=True)

    def _write(self, name: str, state: State, position: int, updates: int, *, epoch: int | None) -> None:
        # What happened before a state must not be younger than it: a power cut could else lose lines of the commit log
        # that belong to updates which are not done again.
        for path in (self._paths.commits(self._training), self._paths.metrics(self._training)):
            _sync(path)
        ckpt.write(
            self._folder / f"{name}{SUFFIX}",
            state,
            training=self._training,
            position=position,
            updates=updates,
            epoch=epoch,
        )


def _given(state: State) -> State:
    return state


def _not_written(name: str, error: Exception) -> None:
    log.error("The checkpoint %s was not written: %s. The training goes on.", name, error)


def _sync(path: Path) -> None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _yield_to_others() -> None:
    """Less processor time for this thread than for those that compute; a thread of Linux has a priority of its own."""
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 10)
