"""Find the slots that hosts offer: what a host has, and how many slots the plan makes of its resources.

GPUs are found with `nvidia-smi`, never by importing torch into the server. The server's own limits bound what it
offers: CUDA_VISIBLE_DEVICES, the CPU affinity and the cgroup's CPU quota are respected.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import subprocess
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import count as numbers
from operator import attrgetter
from pathlib import Path

from edt_sdk.schemas.errors import Unprocessable
from edt_sdk.schemas.plan import Plan, ResourceGroup, slots_by_formula
from edt_sdk.schemas.wire.control import Slot

log = logging.getLogger(__name__)

_QUERY = ("nvidia-smi", "--query-gpu=index,uuid", "--format=csv,noheader")
_ID = attrgetter("id")
_QUERY_SECONDS = 20.0  # a driver that is not loaded yet takes some


@dataclass(frozen=True, slots=True)
class Host:
    """The resources of a host: GPUs as `nvidia-smi` numbers them, CPU cores that may be kept busy.

    `offers` is the slots without a formula of the plan. 0 means a slot per GPU, or per core without GPUs. `kind` is
    what the bits of a training depend on, "" where that is not known, and `portable_kind` those of a portable job.
    """

    name: str
    gpus: tuple[int, ...] = ()
    cores: int = 1
    offers: int = 0
    kind: str = ""
    portable_kind: str = ""


def find_host(count: int = 0) -> Host:
    """Return the resources of this host. Without a formula of the plan it offers `count` slots, 0 for all.

    To offer CPU slots on a machine with GPUs start the server with CUDA_VISIBLE_DEVICES="". Unprocessable when `count`
    is negative.
    """
    if count < 0:
        raise Unprocessable(
            f"A host cannot offer {count} slots.", hint="Give 0 to find them automatically.", field="local_slots"
        )
    gpus = find_gpus()
    if gpus and count > len(gpus):
        log.warning("%d slots were asked for, but there are %d GPUs: one slot per GPU", count, len(gpus))
    return Host(socket.gethostname(), gpus, usable_cores(), count)


def plan_slots(plan: Plan, hosts: Sequence[Host], before: Sequence[Slot] = ()) -> tuple[Slot, ...]:
    """Return the slots of the hosts (numbered in their order) under the plan's resource groups, by id. Pure.

    A host belongs to the resource group that names it, else to the group that names no host. Without either it offers
    no slots. A group's formula gives the number of slots of each of its hosts, on its GPUs in turn, unless it counts
    cores. Several slots may then share a GPU. Without a formula a host offers its own number. Those that are
    `unlike` offer none.

    Slots that stay on the same host and device as `before` keep their ids, and new slots get unused ids.
    """
    kept: dict[str, list[Slot]] = {}
    for slot in sorted(before, key=_ID):
        kept.setdefault(slot.host, []).append(slot)
    taken = {slot.id for slot in before}
    fresh = (number for number in numbers() if number not in taken)
    offers: dict[tuple[object, ...], list[str]] = {}  # most of a thousand hosts are alike
    others = unlike(plan, hosts)
    slots: list[Slot] = []
    for host, group in _grouped(plan, hosts):
        if host.name in others:
            group = None
        alike = (group and group.name, host.gpus, host.cores, host.offers)
        devices = offers.get(alike)
        if devices is None:
            devices = offers[alike] = list(_devices(host, group))
        old = kept.pop(host.name, [])
        if [slot.device for slot in old] == devices:  # nearly all hosts, when one comes or goes
            slots += old
            continue
        slots += _fitted(host.name, devices, old, fresh)
    slots.sort(key=_ID)
    return tuple(slots)


def unlike(plan: Plan, hosts: Sequence[Host]) -> dict[str, str]:
    """Return the hosts that round otherwise than the first host of their resource group, and why they offer no slots.

    A training that spans two kinds would not have the bits of one worker.
    """
    first: dict[str, tuple[str, str]] = {}
    found: dict[str, str] = {}
    for host, group in _grouped(plan, hosts):
        if group is None or not host.kind:
            continue
        # An agent of an older version knows one kind only, which is that of no portable job.
        kind = host.portable_kind or host.kind if group.portable else host.kind
        name, other = first.setdefault(group.name, (host.name, kind))
        if kind != other:
            command = f"edt resource update {group.name} --portable"
            otherwise = "" if group.portable else f", or make this one portable: {command}"
            found[host.name] = (
                f"Its processor or torch rounds otherwise than that of {name}, the first host of the resource group "
                f"{group.name}, so it offers no slots. Put it into a resource group of its own{otherwise}."
            )
    return found


def _grouped(plan: Plan, hosts: Iterable[Host]) -> Iterator[tuple[Host, ResourceGroup | None]]:
    """Yield each host with its resource group."""
    named = {host: group for group in plan.resource_groups for host in group.hosts}
    rest = next((group for group in plan.resource_groups if not group.hosts), None)
    for host in hosts:
        yield host, named.get(host.name, rest)


def _fitted(host: str, devices: Iterable[str], old: Iterable[Slot], fresh: Iterator[int]) -> Iterator[Slot]:
    """Return a slot for each device: an `old` one where there is one, the lowest id first, else one with a new id."""
    by_device: dict[str, deque[Slot]] = defaultdict(deque)
    for slot in old:
        by_device[slot.device].append(slot)
    for device in devices:
        left = by_device[device]
        yield left.popleft() if left else Slot(id=next(fresh), host=host, device=device)


def _devices(host: Host, group: ResourceGroup | None) -> Iterator[str]:
    """Return the device of each slot the host offers in the group."""
    if group is None:
        return
    if not group.slots:
        gpus = host.gpus[: host.offers or None]
        yield from (f"cuda:{gpu}" for gpu in gpus)
        yield from ["cpu"] * (0 if gpus else host.offers or host.cores)
        return
    count = slots_by_formula(group.slots, len(host.gpus), host.cores)
    on_gpus = bool(host.gpus) and "ncpus" not in group.slots
    # In turn over the GPUs, so that more slots than GPUs are spread evenly.
    yield from (f"cuda:{host.gpus[n % len(host.gpus)]}" if on_gpus else "cpu" for n in range(count))


def threads_per_slot(slots: int) -> int:
    """Return the intra-op threads of a worker when every slot is used: usable cores ÷ slots, at least 1."""
    return max(1, usable_cores() // max(1, slots))


def find_gpus() -> tuple[int, ...]:
    """Return the indices of the GPUs this process may use. A missing or failing tool means none, and is logged once."""
    try:
        answer = subprocess.run(_QUERY, capture_output=True, text=True, timeout=_QUERY_SECONDS, check=True).stdout
    except (OSError, subprocess.SubprocessError) as wrong:
        _say_once(f"no GPUs: {_why(wrong)}; CPU slots are used")
        return ()
    rows = [tuple(part.strip() for part in line.split(",")) for line in answer.splitlines() if line.strip()]
    try:
        there = [(int(index), uuid) for index, uuid in rows]
    except ValueError:
        _say_once(f"no GPUs: nvidia-smi answered {answer.strip()[:200]!r}; CPU slots are used")
        return ()
    return _visible(there, os.environ.get("CUDA_VISIBLE_DEVICES"))


def usable_cores(proc: Path = Path("/proc"), cgroups: Path = Path("/sys/fs/cgroup")) -> int:
    """Return how many cores this process may keep busy: its CPU affinity, bounded by its cgroup's quota, at least 1."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = _quota(proc, cgroups)
    return max(1, cores if quota is None else min(cores, int(quota)))


def _visible(there: list[tuple[int, str]], variable: str | None) -> tuple[int, ...]:
    """Return the GPUs that CUDA shows under this CUDA_VISIBLE_DEVICES: in its order, up to the first invalid entry."""
    if variable is None:
        return tuple(index for index, _ in there)
    shown: list[int] = []
    for entry in (part.strip() for part in variable.split(",")):
        found = [index for index, uuid in there if entry == str(index) or (len(entry) > 4 and uuid.startswith(entry))]
        if len(found) != 1:
            break
        if found[0] not in shown:
            shown.append(found[0])
    return tuple(shown)


def _quota(proc: Path, cgroups: Path) -> float | None:
    """Return the cores that the tightest cgroup around this process grants, None without a limit (cgroup v1 and v2)."""
    try:
        memberships = (proc / "self" / "cgroup").read_text().splitlines()
    except OSError:
        return None
    quotas: list[float] = []
    for line in memberships:
        _, controllers, group = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        root = cgroups / controllers if controllers else cgroups
        # Inside a container the group may have the host's path. Then only the root is there.
        inner = root / group.lstrip("/")
        for folder in (inner, *inner.parents):
            if not folder.is_relative_to(root):
                break
            files = ("cpu.cfs_quota_us", "cpu.cfs_period_us") if controllers else ("cpu.max",)
            with contextlib.suppress(OSError):
                quota, period = " ".join((folder / file).read_text() for file in files).split()
                if quota != "max" and int(quota) >= 0:
                    quotas.append(int(quota) / int(period))
    return min(quotas, default=None)


def _why(wrong: OSError | subprocess.SubprocessError) -> str:
    if isinstance(wrong, FileNotFoundError):
        return "there is no nvidia-smi"
    if isinstance(wrong, subprocess.CalledProcessError):
        said = (wrong.stdout or wrong.stderr or "").strip().splitlines()
        return f"nvidia-smi ended with {wrong.returncode}" + (f" ({said[0]})" if said else "")
    return str(wrong)


@cache
def _say_once(message: str) -> None:
    log.info("%s", message)
