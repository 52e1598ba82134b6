"""Hold this worker's part of a sharded model, and move the parts when workers come or go.

A part is a range of rows of each parameter, and of each tensor of its size in an optimizer's state. While members
train, torch's FSDP2 (`fully_shard`) divides the model. It cannot change the number of workers. So `leave` takes the
parts out of the model, moves them to the members that stay, and takes FSDP2 off. `arrive` moves them to all members of
the next generation, and puts FSDP2 on again. A worker that is alone has a plain model.

All transfers use the connections of the generation's group, which torch gets as its default process group.
"""

from __future__ import annotations

import ctypes
import logging
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._C._distributed_c10d import HashStore
from torch.distributed._composable.contract import REGISTRY_KEY, STATE_KEY
from torch.distributed._composable_state import _module_state_mapping
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, Shard
from torch.optim import Optimizer

from edt_sdk.training.exchange.group import Group
from edt_sdk.training.state.state import group_scalars, memory_of

log = logging.getLogger(__name__)

_MMAP_THRESHOLD = -3  # in glibc's malloc.h
# A checkpoint takes at most one part in so many of the time.
_PATIENCE = 20

_links: dict[str, Any] = {}
for _kind in ("cpu", "cuda"):
    # No links of torch's own making: those of the group listen on the job's address alone, and can be ended.
    dist.Backend.register_backend(
        f"edt_{_kind}", lambda *_, kind=_kind: _links[kind], extended_api=True, devices=[_kind]
    )


class DividedModel:
    """Divides a model and its optimizers among the members of a group.

    `interval`: least seconds between two checkpoints.

    Attributes:
        model, optimizers: as they were given.
        due: whether all members write a checkpoint now.
        used: whether the model was divided before, and is no longer as the script has made it.
    """

    def __init__(
        self, model: nn.Module, optimizers: Mapping[str, Optimizer], blocks: tuple[type, ...], *, interval: float
    ) -> None:
        self.model = model
        self.optimizers = optimizers
        self.used = self.due = False
        self._interval = interval
        _give_memory_back()
        self._next = time.monotonic() + interval
        units = [module for module in model.modules() if isinstance(module, blocks) and module is not model]
        self._units = units[::-1]  # inner ones first, as `fully_shard` wants it
        self._parameters = dict(model.named_parameters())
        names = {id(parameter): name for name, parameter in self._parameters.items()}
        # Where each parameter is. A tied one is in several places.
        self._places = [
            (module, key, names[id(parameter)])
            for module in model.modules()
            for key, parameter in module._parameters.items()
            if parameter is not None
        ]
        self._part = (-1, 0)  # number of this member's part, and of all parts, if it has one
        self._parts: list[Tensor] | None = None  # between two groups, when they are not in the model
        self._holders: Sequence[int] = (0,)

    # --- from one group to the next -----------------------------------------------------------------------------------

    def find(self, group: Group, *, holds: bool) -> bool:
        """Find the parts among the members of a group. Return whether all are there."""
        found = torch.empty(2 * group.world, dtype=torch.int64)
        group.all_gather(found, torch.tensor(self._part if holds else (-1, 0))).wait()
        holders = {number: rank for rank, (number, of) in enumerate(found.view(-1, 2).tolist()) if of}
        self._holders = [holders[number] for number in sorted(holders)]
        return {of for _, of in found.view(-1, 2).tolist() if of} == {len(holders)}

    def begin(self) -> None:
        """Have rank 0 hold the whole model, as its script has made it."""
        self._holders = (0,)

    def arrive(self, group: Group, saved: Path | None) -> None:
        """Divide the model among the members of a group. The parts are those in the group, or those that were saved."""
        if saved is not None or group.rank not in self._holders:
            self._take_off()  # or a member that comes would have its own whole model and the parts at once
        slots, everyone = list(self._slots()), range(group.world)
        if saved is None:
            parts = [_moved(group, tensor, shape, self._holders, everyone) for tensor, shape in slots]
        else:
            parts = [
                torch.empty(
                    (len(_rows(shape, group.world)[group.rank]), *shape[1:]), dtype=tensor.dtype, device=group.device
                )
                for tensor, shape in slots
            ]
        self._take_off()
        self._put_on(group, parts)
        self._part, self._parts = (group.rank, group.world), None
        self.due = False  # those who have come know of no checkpoint
        if saved is not None:
            content = self._content()
            for each in content["optimizers"].values():
                del each["param_groups"]
                for name, state in each["state"].items():
                    each["state"][name] = {key: v for key, v in state.items() if _is_part(v, self._parameters[name])}
            optimizers = {name: each for name, each in content["optimizers"].items() if any(each["state"].values())}
            with _quiet():
                load({"model": self._parameters, "optimizers": optimizers}, checkpoint_id=saved)

    def leave(self, group: Group, stay: Sequence[int]) -> None:
        """Move all parts to the ranks that stay, in ascending order, and let go of the group."""
        everyone = range(group.world)
        if len(stay) == group.world:
            self._parts = [tensor for tensor, _ in self._slots()]
        else:
            self._parts = [_moved(group, tensor, shape, everyone, stay) for tensor, shape in self._slots()]
            self._part = (stay.index(group.rank), len(stay)) if group.rank in stay else (-1, 0)
        self._take_off()
        self.drop()

    def is_time(self) -> bool:
        """Return whether this member would write a checkpoint. Rank 0 decides for all."""
        return time.monotonic() >= self._next

    def clear(self) -> None:
        """Let go of all parts: the script makes another model."""
        self._take_off()
        self._parts = None

    def drop(self) -> None:
        """Let go of the connections of the group."""
        if dist.is_initialized():
            dist.destroy_process_group()
        _links.clear()

    # --- what is seen from outside ------------------------------------------------------------------------------------

    @contextmanager
    def set_aside(self) -> Iterator[None]:
        """Have tensors without elements in place of the parts in the optimizers' state, in the block."""
        kept = []
        for optimizer in self.optimizers.values():
            for parameter, state in optimizer.state.items():
                kept.append((state, dict(state)))
                state.update({key: _blank(v) for key, v in state.items() if _is_part(v, parameter)})
        try:
            yield
        finally:
            for state, before in kept:
                state.update(before)

    def whole(self, group: Group, module: nn.Module) -> dict[str, Any]:
        """Return the state dict of a module on the CPU in rank 0. The others call it too, and get nothing."""
        found: dict[str, Any] = {}
        done: dict[int, Tensor] = {}  # tied parameters stay tied
        for name, value in module.state_dict(keep_vars=True).items():
            if isinstance(value, Tensor) and id(value) not in done:
                here = value.detach()
                if isinstance(value, DTensor):
                    here = _moved(group, local(value), value.shape, range(group.world), (0,))
                done[id(value)] = here.to("cpu", copy=here is not value)
            found[name] = done[id(value)] if isinstance(value, Tensor) else value
        return found if group.rank == 0 else {}

    def save(self, group: Group, folder: Path) -> bool:
        """Write a checkpoint in torch's distributed format with all members. Return whether it was written."""
        begin = time.monotonic()
        self.due = False
        try:
            with _quiet():
                save(self._content(), checkpoint_id=folder)
        except CheckpointException as error:
            if group.rank == 0:
                reasons = "; ".join(str(each[0]) for each in error.failures.values())
                log.error("The checkpoint %s was not written: %s. The training goes on.", folder.name, reasons)
            return False
        finally:
            now = time.monotonic()
            self._next = now + max(self._interval, _PATIENCE * (now - begin))
        return True

    # --- inside -------------------------------------------------------------------------------------------------------

    def _content(self) -> dict[str, Any]:
        """Return what a checkpoint holds: the state dict of the model, and those of the optimizers by name."""
        names = {id(parameter): name for name, parameter in self._parameters.items()}
        optimizers = {}
        for each, optimizer in self.optimizers.items():
            groups = zip(optimizer.param_groups, group_scalars(optimizer), strict=True)
            optimizers[each] = {
                "state": {names[id(parameter)]: dict(state) for parameter, state in optimizer.state.items()},
                "param_groups": [{**scalars, "params": [names[id(p)] for p in g["params"]]} for g, scalars in groups],
            }
        return {"model": self.model.state_dict(), "optimizers": optimizers}

    def _slots(self) -> Iterator[tuple[Tensor, torch.Size]]:
        """Yield each part and the shape of the whole tensor, in the same order in all members."""
        slots = [(parameter, parameter) for parameter in self._parameters.values()]
        for optimizer in self.optimizers.values():
            for parameter in (p for group in optimizer.param_groups for p in group["params"]):
                slots += [(v, parameter) for v in optimizer.state.get(parameter, {}).values() if _is_part(v, parameter)]
        parts = self._parts or [local(value) for value, _ in slots]
        for part, (_, parameter) in zip(parts, slots, strict=True):
            yield part, parameter.shape

    def _take_off(self) -> None:
        """Make the model one without FSDP2 and without values."""
        self.used = True
        for module in (*self._units, self.model):
            if isinstance(module, FSDPModule):
                state = module._get_fsdp_state()
                state._pre_forward_hook_handle.remove()
                state._post_forward_hook_handle.remove()
                module.__class__ = type(module).__mro__[type(module)._orig_cls_mro_index]
                for key in (STATE_KEY, REGISTRY_KEY):
                    del module.__dict__[key]
                del _module_state_mapping[module]
        self._replace(
            {
                name: nn.Parameter(torch.empty(p.shape, dtype=p.dtype, device="meta"), p.requires_grad)
                for name, p in self._parameters.items()
            }
        )
        for optimizer in self.optimizers.values():
            for parameter, state in optimizer.state.items():
                state.update({key: _blank(v) for key, v in state.items() if _is_part(v, parameter)})

    def _put_on(self, group: Group, parts: Sequence[Tensor]) -> None:
        """Put the parts into the model and the optimizers, in the order of `_slots`, and FSDP2 around them."""
        device, mesh = group.device, None
        if group.world > 1:
            self.drop()
            _links.update(cpu=group._gloo, cuda=group._nccl)
            backend = "cpu:edt_cpu" + (",cuda:edt_cuda" if device.type == "cuda" else "")
            # The store stays unused, as the links are there already.
            dist.init_process_group(backend, store=HashStore(), rank=group.rank, world_size=group.world)
            # Or each end of the group would be a line of warning.
            group_of_torch: Any = dist.group.WORLD
            group_of_torch._set_default_backend(dist.ProcessGroup.BackendType.CUSTOM)
            mesh = DeviceMesh(device.type, list(range(group.world)))
            for module in (*self._units, self.model):
                fully_shard(module, mesh=mesh, reshard_after_forward=True)
        waiting = iter(parts)

        def made(shape: torch.Size) -> Tensor:
            part = next(waiting)
            if mesh is None:
                return part
            stride = torch.empty(shape, device="meta").stride()
            return DTensor.from_local(part, mesh, (Shard(0),), run_check=False, shape=shape, stride=stride)

        self._replace({name: nn.Parameter(made(p.shape), p.requires_grad) for name, p in self._parameters.items()})
        for optimizer in self.optimizers.values():
            for parameter in (p for g in optimizer.param_groups for p in g["params"]):
                state = optimizer.state.get(parameter, {})
                state.update({key: made(parameter.shape) for key, v in state.items() if _is_part(v, parameter)})
        for module in self.model.modules():
            for key, buffer in module._buffers.items():
                module._buffers[key] = buffer if buffer is None else buffer.to(device)

    def _replace(self, parameters: dict[str, nn.Parameter]) -> None:
        """Put other objects in the place of all parameters, in the model and in the optimizers."""
        for module, key, name in self._places:
            module._parameters[key] = parameters[name]
        others = {id(old): parameters[name] for name, old in self._parameters.items()}
        for optimizer in self.optimizers.values():
            for group in optimizer.param_groups:
                group["params"][:] = [others[id(parameter)] for parameter in group["params"]]
            states: dict[Tensor, Any] = {others[id(parameter)]: state for parameter, state in optimizer.state.items()}
            optimizer.state.clear()
            optimizer.state.update(states)
        self._parameters = parameters


def _give_memory_back() -> None:
    """Have glibc give memory back to the system when a large tensor is freed.

    It raises its threshold for that with each one. The parameters of each block, which are gathered and freed, would
    then leave gaps on the heap, which it keeps: 1.4 GB in place of 0.6 for a model of 200 MB.
    """
    if (mallopt := getattr(ctypes.CDLL(None), "mallopt", None)) is not None:
        mallopt(_MMAP_THRESHOLD, 128 << 10)


@contextmanager
def _quiet() -> Iterator[None]:
    """Drop the warning that there is no process group where a worker is alone."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "torch.distributed is disabled")
        yield


def _is_part(value: Any, parameter: Tensor) -> bool:
    """Return whether a value in the state of an optimizer is divided as its parameter is, or stands for such a one."""
    return isinstance(value, Tensor) and value.dim() > 0 and (value.shape == parameter.shape or not value.numel())


def _blank(value: Tensor) -> Tensor:
    return torch.empty(0, dtype=value.dtype)


def local(value: Tensor) -> Tensor:
    """Return the part of a tensor that this member has, which shares its memory."""
    here: Tensor = value.to_local() if isinstance(value, DTensor) else value
    return here.detach()


def _rows(shape: Sequence[int], count: int) -> list[range]:
    """Return the rows of each of `count` parts, as torch's `chunk` cuts them: the last ones may have fewer, or none."""
    size = -(-shape[0] // count)
    return [range(min(n * size, shape[0]), min((n + 1) * size, shape[0])) for n in range(count)]


def _moved(group: Group, part: Tensor, shape: torch.Size, source: Sequence[int], target: Sequence[int]) -> Tensor:
    """Return this member's part of a tensor of which the ranks in `source` had a part each, and now those in `target`.

    Ranks are in the order of their parts. Those in `target` ascend.
    """
    sources = dict(zip(source, _rows(shape, len(source)), strict=True))
    targets = dict(zip(target, _rows(shape, len(target)), strict=True))
    had, gets = sources.get(group.rank, range(0)), targets.get(group.rank, range(0))
    row = shape[1:].numel() * part.element_size()
    nothing = range(0)
    incoming = [row * _common(gets, sources.get(rank, nothing)) for rank in range(group.world)]
    outgoing = [row * _common(had, targets.get(rank, nothing)) for rank in range(group.world)]
    found = torch.empty(sum(incoming), dtype=torch.uint8, device=group.device)
    own = memory_of(part.to(group.device).contiguous()) if len(had) else found.new_empty(0)
    group.all_to_all(found, own, incoming, outgoing).wait()
    if list(source) != sorted(source):
        pieces = torch.split(found, incoming)
        found = torch.cat([pieces[rank] for rank in source])
    return found.view(part.dtype).view(len(gets), *shape[1:])


def _common(one: range, other: range) -> int:
    return max(0, min(one.stop, other.stop) - max(one.start, other.start))
