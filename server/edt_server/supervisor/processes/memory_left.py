"""Measure how much memory is free: the machine's, or the rest of the limit of a control group around this process.

Page cache counts as free. An optional process starts only where a fifth of the memory is free besides what it needs,
and has to go when less than a tenth is.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

_TO_BEGIN = 0.2
_TO_STAY = 0.1
_KILO = 1024


@dataclass(frozen=True, slots=True)
class Memory:
    """The bytes there are, and how many of them are free."""

    total: int
    free: int

    def fits(self, nbytes: int) -> bool:
        """Return whether an optional process may start that takes so much."""
        return self.free - nbytes >= self.total * _TO_BEGIN

    @property
    def scarce(self) -> bool:
        """Whether optional processes have to go."""
        return self.free < self.total * _TO_STAY


def memory_now(proc: Path = Path("/proc"), groups: Path = Path("/sys/fs/cgroup")) -> Memory | None:
    """Return the memory of the tightest control group (version 1 or 2) around this process, None where unknown."""
    try:
        told = dict(line.split(":", 1) for line in (proc / "meminfo").read_text().splitlines())
        total, free = (int(told[name].split()[0]) * _KILO for name in ("MemTotal", "MemAvailable"))
    except (OSError, KeyError, ValueError):
        return None
    found = Memory(total, free)
    for folder, names in _groups(proc, groups):
        group = _of_group(folder, *names)
        if group is not None and group.total <= total and group.free < found.free:
            found = group
    return found


def size(pids: Collection[int]) -> int:
    """Return the bytes of the largest of these processes, shared pages included. 0 without any."""
    sizes = [0]
    for pid in pids:
        try:
            sizes.append(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE"))
        except (OSError, IndexError, ValueError):
            continue  # it has just exited
    return max(sizes)


def room_for_another(workers: Collection[int]) -> bool:
    """Return whether there is memory for one more process like those of these pids."""
    memory = memory_now()
    return memory is not None and memory.fits(size(workers))


def memory_is_scarce() -> bool:
    """Return whether optional processes have to go."""
    memory = memory_now()
    return memory is not None and memory.scarce


def _groups(proc: Path, groups: Path) -> Iterator[tuple[Path, tuple[str, str, str]]]:
    """Return the folders of the control groups that may limit this process's memory, with the names of their files."""
    try:
        lines = (proc / "self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            root, names = groups, ("memory.max", "memory.current", "inactive_file")
        elif "memory" in controllers.split(","):
            root, names = groups / "memory", ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
        else:
            continue
        inner = root / path.strip("/")
        # In a container the path may be the host's, and the root the container's own group.
        yield from ((folder, names) for folder in (inner, *inner.parents) if folder == root or root in folder.parents)


def _of_group(folder: Path, limit: str, used: str, inactive: str) -> Memory | None:
    try:
        most = (folder / limit).read_text().strip()
        if not most.isdecimal():
            return None  # "max"
        told = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
        taken = int((folder / used).read_text()) - int(told.get(inactive, 0))
        return Memory(int(most), max(0, int(most) - taken))
    except (OSError, ValueError):
        return None
