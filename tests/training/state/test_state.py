"""A joiner continues with the very bits of the survivor, for every optimizer, over a channel that only moves memory."""

from __future__ import annotations

import copy
import threading
from collections import defaultdict
from collections.abc import Callable
from queue import Queue
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from edt_sdk.schemas.errors import Unprocessable
from edt_sdk.training.state import state, transfer
from edt_sdk.training.state.tied_objects import freeze, thaw

DEVICE = torch.device("cpu")


class Channel:
    """Two ranks of one process; copies what is sent, as a socket does."""

    def __init__(self) -> None:
        self.queues: dict[int, Queue[Tensor]] = defaultdict(Queue)

    def send(self, tensor: Tensor, dst: int) -> Channel:
        assert tensor.is_contiguous()
        self.queues[dst].put(tensor.clone())
        return self

    def recv(self, tensor: Tensor, src: int) -> Channel:
        tensor.copy_(self.queues[1].get(timeout=180))
        return self

    def wait(self) -> None:
        pass


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 3, 3)
        self.norm = nn.BatchNorm2d(3)
        self.head = nn.Linear(3 * 16, 4)
        self.register_buffer("scratch", torch.zeros(2), persistent=False)
        self.register_buffer("wide", torch.zeros(1).expand(5))
        self.narrow = nn.Parameter(torch.zeros(3, dtype=torch.bfloat16))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.norm(self.conv(x)).flatten(1)) + self.narrow.float().sum()


def trained(make: Callable[..., torch.optim.Optimizer]) -> tuple[Net, torch.optim.Optimizer]:
    torch.manual_seed(1)
    model = Net()
    with torch.no_grad():
        model.conv.to(memory_format=torch.channels_last)
    optimizer = make(
        [{"params": [*model.conv.parameters(), model.narrow]}, {"params": model.head.parameters(), "lr": 3e-3}]
    )
    for _ in range(3):
        steps(model, optimizer, 1)
        model.scratch += 1.5
    optimizer.param_groups[0]["lr"] *= 0.3
    return model, optimizer


def steps(model: Net, optimizer: torch.optim.Optimizer, count: int) -> None:
    for n in range(count):
        torch.manual_seed(n)
        optimizer.zero_grad()
        model(torch.randn(5, 1, 6, 6)).square().mean().backward()
        optimizer.step()


def bits(model: nn.Module, optimizer: torch.optim.Optimizer) -> list[object]:
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    found: list[object] = []
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        found.append(
            (name, tensor.dtype, tensor.stride(), tensor.detach().contiguous().flatten().view(torch.uint8).tolist())
        )
    for parameter in parameters:
        for key, value in sorted(optimizer.state[parameter].items()):
            if isinstance(value, Tensor):
                value = (value.dtype, value.stride(), value.contiguous().flatten().view(torch.uint8).tolist())
            found.append((key, value))
    found += [{k: v for k, v in group.items() if k != "params"} for group in optimizer.param_groups]
    return found


OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    "plain sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01, amsgrad=True),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01),
    "adadelta": lambda p: torch.optim.Adadelta(p, lr=0.5),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.01, momentum=0.5, centered=True),
}


@pytest.mark.parametrize("staged", [False, True])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_joiner_gets_every_bit_and_continues_alike(name: str, staged: bool) -> None:
    survivor, optimizer = trained(OPTIMIZERS[name])
    torch.manual_seed(99)
    joiner = Net()
    joiner.conv.to(memory_format=torch.channels_last)
    joiners = OPTIMIZERS[name](
        [{"params": [*joiner.conv.parameters(), joiner.narrow]}, {"params": joiner.head.parameters(), "lr": 3e-3}]
    )
    memory = {n: p.data_ptr() for n, p in joiner.named_parameters()}

    channel = Channel()
    captured = state.capture(survivor, optimizer, {"position": 17})
    sender = threading.Thread(target=transfer.send, args=(channel, [1], captured))
    sender.start()
    extra = state.restore(transfer.receive(channel, 0, joiner, DEVICE, staged=staged), joiner, joiners)
    sender.join(180)

    assert extra == {"position": 17}
    assert bits(joiner, joiners) == bits(survivor, optimizer)
    assert memory == {n: p.data_ptr() for n, p in joiner.named_parameters()}
    steps(survivor, optimizer, 3)
    steps(joiner, joiners, 3)
    assert bits(joiner, joiners) == bits(survivor, optimizer)


class Both(torch.optim.Optimizer):
    """One optimizer around several, as people write it for Muon and AdamW, with slow weights of its own."""

    def __init__(self, groups: list[dict[str, Any]]) -> None:
        parameters = [parameter for group in groups for parameter in group["params"]]
        super().__init__(parameters, {})
        self.first = torch.optim.SGD(groups[0]["params"], lr=0.1, momentum=0.9)
        self.others = [torch.optim.AdamW(group["params"], lr=0.01) for group in groups[1:]]
        self.param_groups = [group for inner in self.inner for group in inner.param_groups]
        self.slow: dict[Tensor, Tensor] = {}

    @property
    def inner(self) -> list[torch.optim.Optimizer]:
        return [self.first, *self.others]

    def step(self, closure: None = None) -> None:
        for inner in self.inner:
            inner.step()
        for parameter in (p for group in self.param_groups for p in group["params"]):
            slow = self.slow.setdefault(parameter, parameter.detach().clone())
            slow.lerp_(parameter.detach(), 0.5)
            parameter.data.lerp_(slow, 0.1)


def both(groups: list[dict[str, Any]]) -> Both:
    return Both([{**group, "params": list(group["params"])} for group in groups])


def test_a_joiner_gets_the_optimizers_inside_an_optimizer_and_whatever_else_it_keeps() -> None:
    survivor, optimizer = trained(both)
    joiner, joiners = trained(both)
    for _ in range(2):
        steps(joiner, joiners, 1)
    channel = Channel()
    transfer.send(channel, [1], state.capture(survivor, optimizer, None))
    state.restore(transfer.receive(channel, 0, joiner, DEVICE, staged=True), joiner, joiners)
    assert isinstance(optimizer, Both)
    assert isinstance(joiners, Both)
    for one, other in zip(optimizer.inner, joiners.inner, strict=True):
        assert bits(survivor, one) == bits(joiner, other)
        assert other.param_groups[0] is joiners.param_groups[joiners.inner.index(other)]
    before = [parameter.detach().clone() for parameter in survivor.parameters()]
    steps(joiner, joiners, 3)
    assert all(map(torch.equal, before, survivor.parameters())), "the joiner shares memory with the survivor"
    steps(survivor, optimizer, 3)
    assert all(map(torch.equal, joiner.parameters(), survivor.parameters()))
    assert [tensor.tolist() for tensor in joiners.slow.values()] == [t.tolist() for t in optimizer.slow.values()]


def test_an_attribute_of_an_optimizer_that_cannot_travel_is_named() -> None:
    model, optimizer = trained(OPTIMIZERS["sgd"])
    optimizer.journal = threading.Lock()  # type: ignore[attr-defined]
    with pytest.raises(Unprocessable, match=r"optimizer\.journal cannot be sent to other workers") as refused:
        state.capture(model, optimizer, None)
    assert "__getstate__" in refused.value.hint


def test_nothing_is_shared_between_sender_and_receiver() -> None:
    survivor, optimizer = trained(OPTIMIZERS["adam"])
    joiner, joiners = trained(OPTIMIZERS["adam"])
    channel = Channel()
    transfer.send(channel, [1], state.capture(survivor, optimizer, None))
    state.restore(transfer.receive(channel, 0, joiner, DEVICE, staged=False), joiner, joiners)
    before = bits(joiner, joiners)
    steps(survivor, optimizer, 1)
    assert bits(joiner, joiners) == before


class Torn(Channel):
    """Breaks after some transfers."""

    def recv(self, tensor: Tensor, src: int) -> Channel:
        if self.queues[1].qsize() <= 1:
            raise RuntimeError("the sender is gone")
        return super().recv(tensor, src)


def large() -> tuple[nn.Module, torch.optim.Optimizer]:
    model = nn.Sequential(nn.Linear(300, 300), nn.Linear(300, 300))
    return model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def test_a_staged_state_that_is_torn_leaves_everything_as_it_was() -> None:
    (survivor, optimizer), (other, others) = large(), large()
    before = bits(other, others)
    for staged in (True, False):
        channel = Torn()
        transfer.send(channel, [1], state.capture(survivor, optimizer, None))
        with pytest.raises(RuntimeError, match="gone"):
            transfer.receive(channel, 0, other, DEVICE, staged=staged)
        assert (bits(other, others) == before) == staged


def test_large_tensors_go_in_pieces_to_several_at_once() -> None:
    model = nn.Linear(2000, 1500)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    twin = nn.Linear(2000, 1500)
    twins = torch.optim.SGD(twin.parameters(), lr=0.1)
    channel = Channel()
    transfer.send(channel, [1, 2], state.capture(model, optimizer, None))
    assert channel.queues[1].qsize() == channel.queues[2].qsize() == 4
    state.restore(transfer.receive(channel, 0, twin, DEVICE, staged=False), twin, twins)
    assert bits(model, optimizer) == bits(twin, twins)


def test_buffers_that_changed_shape_or_came_later_arrive() -> None:
    survivor, optimizer = trained(OPTIMIZERS["sgd"])
    joiner, joiners = trained(OPTIMIZERS["sgd"])
    survivor.scratch = torch.arange(6.0).reshape(2, 3)
    survivor.norm.register_buffer("late", torch.tensor([True, False]))
    state.restore(state.capture(survivor, optimizer, None), joiner, joiners)
    assert torch.equal(joiner.scratch, survivor.scratch)
    assert joiner.norm.late.tolist() == [True, False]


def test_state_that_refers_to_itself_to_parameters_and_to_odd_keys_survives() -> None:
    model, optimizer = trained(OPTIMIZERS["sgd"])
    twin, twins = trained(OPTIMIZERS["sgd"])
    shared = torch.full((2,), 7.0)
    optimizer.state[model.head.bias]["history"] = [shared, shared, model.head.weight]
    optimizer.state["global"] = {"calls": 3}  # type: ignore[index]
    optimizer.lookahead = 5  # type: ignore[attr-defined]
    state.restore(copy.deepcopy(state.capture(model, optimizer, None)), twin, twins)
    history = twins.state[twin.head.bias]["history"]
    assert history[0] is history[1]
    assert history[0].tolist() == [7.0, 7.0]
    assert history[2] is twin.head.weight
    assert twins.state["global"] == {"calls": 3}  # type: ignore[index]
    assert twins.lookahead == 5  # type: ignore[attr-defined]


def test_another_number_of_groups_or_another_shape_is_refused() -> None:
    model, optimizer = trained(OPTIMIZERS["sgd"])
    with pytest.raises(Unprocessable, match="groups"):
        state.put_group_scalars(optimizer, [{"lr": 1.0}])
    with pytest.raises(Unprocessable, match=r"head\.bias"):
        state.put_tensors(model, {"head.bias": torch.zeros(9)})


def test_differences_are_found_by_bits() -> None:
    model, _ = trained(OPTIMIZERS["sgd"])
    before = state.own_copies(model)
    assert state.differing(model, before) == {}
    with torch.no_grad():
        model.scratch.copy_(torch.tensor([float("nan"), -0.0]))
        before = state.own_copies(model)
        assert state.differing(model, before) == {}
        model.scratch[1] = 0.0
        model.conv.bias.data.add_(1)
    assert set(state.differing(model, before)) == {"scratch", "conv.bias"}


class Keeper:
    """A callback that holds parts of the training and things of its own."""

    def __init__(self, model: Net, optimizer: torch.optim.Optimizer) -> None:
        self.norm = model.norm
        self.weight = model.head.weight
        self.optimizer = optimizer
        self.group = optimizer.param_groups[1]
        self.scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
        self.average = [p.detach().clone() for p in model.parameters()]


def test_a_callback_arrives_holding_the_receivers_own_objects() -> None:
    model, optimizer = trained(OPTIMIZERS["sgd"])
    twin, twins = trained(OPTIMIZERS["sgd"])
    keeper = Keeper(model, optimizer)
    arrived = thaw(freeze([keeper], model, optimizer, None), twin, twins, None)[0]
    assert arrived.norm is twin.norm
    assert arrived.weight is twin.head.weight
    assert arrived.optimizer is twins
    assert arrived.group is twins.param_groups[1]
    assert arrived.scheduler.optimizer is twins
    assert torch.equal(arrived.average[0], keeper.average[0])
