"""A state given to members who can read the giver's memory, and to those who cannot: the same bits, in real processes.

What moves over a mere channel is tested with the state itself, in `test_state.py`.
"""

from __future__ import annotations

import os
import select

import pytest
import torch
from torch import nn

from edt_sdk.training.exchange.group import Group, connect_store
from edt_sdk.training.exchange.peer_errors import PeerLost, is_lost_peer
from edt_sdk.training.state import foreign_memory, state, transfer
from edt_sdk.training.state.preallocation import space_for_state, tensors_a_parameter

CPU = torch.device("cpu")


def trained(seed):
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(300, 200), nn.BatchNorm1d(200), nn.Linear(200, 3))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    model(torch.randn(5, 300)).square().mean().backward()
    optimizer.step()
    return model, optimizer


def bits(model, optimizer):
    tensors = [*model.state_dict().values()]
    for parameter in model.parameters():
        tensors += [value for _, value in sorted(optimizer.state[parameter].items())]
    return [tensor.detach().contiguous().view(-1).view(torch.uint8).tolist() for tensor in tensors]


def cannot_read(pid, theirs, ours, length):
    raise PermissionError(1, "Operation not permitted")


def pass_on(rank, port, blind, staged):
    """Rank 0 gives to the others; those in `blind` may not read its memory."""
    if rank in blind:
        foreign_memory._read = cannot_read
    group = Group(connect_store("127.0.0.1", port), rank, 3, device=CPU, interface="127.0.0.1", generation=1)
    model, optimizer = trained(rank)
    sent = []
    if rank == 0:
        given = group.send
        group.send = lambda tensor, dst: sent.append(tensor.nbytes) or given(tensor, dst)
        transfer.give(group, (1, 2), state.capture(model, optimizer, "extra"))
    else:
        space = space_for_state(optimizer)
        arrived = transfer.take(group, 0, model, CPU, staged=staged, space=space)
        assert state.restore(arrived, model, optimizer) == "extra"
        mine = {tensor.data_ptr() for tensor in space}
        assert optimizer.state[model[0].weight]["exp_avg"].data_ptr() in mine
        assert optimizer.state[model[0].weight]["exp_avg_sq"].data_ptr() in mine
    group.close()
    return bits(model, optimizer), max(sent, default=0)


@pytest.mark.parametrize("staged", [False, True])
@pytest.mark.parametrize("blind", [(), (1,), (1, 2)])
def test_all_have_the_givers_bits_whoever_can_read_its_memory(processes, blind, staged):
    results = processes(3, pass_on, blind, staged)
    assert results[1][0] == results[2][0] == results[0][0]
    assert (results[0][1] >= 300 * 200 * 4) == bool(blind)  # a tensor is sent only where somebody cannot read it


def give_and_die(rank, port):
    group = Group(connect_store("127.0.0.1", port), rank, 2, device=CPU, interface="127.0.0.1", generation=1)
    model, optimizer = trained(rank)
    pids = torch.empty(2, dtype=torch.int64)
    group.all_gather(pids, torch.tensor([os.getpid()])).wait()
    if rank == 0:

        def dies(tensor, src):
            os._exit(0)

        group.recv = dies
        transfer.give(group, (1,), state.capture(model, optimizer, None))
    before = bits(model, optimizer)
    read = foreign_memory._read
    giver = os.pidfd_open(int(pids[0]))

    def late(pid, theirs, ours, length):
        if length > 8:
            select.select([giver], [], [])  # until it has ended
        read(pid, theirs, ours, length)

    foreign_memory._read = late
    try:
        transfer.take(group, 0, model, CPU, staged=True)
    except (PeerLost, RuntimeError) as error:
        return is_lost_peer(error), bits(model, optimizer) == before
    return None


def test_a_giver_that_dies_while_it_is_read_is_a_lost_member(processes):
    assert processes(2, give_and_die, may_die=True)[1] == (True, True)


OPTIMIZERS = {
    "sgd": (0, lambda p: torch.optim.SGD(p, lr=0.1)),
    "momentum": (1, lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9)),
    "adamw": (3, lambda p: torch.optim.AdamW(p, lr=0.1, amsgrad=True)),
    "adadelta": (2, lambda p: torch.optim.Adadelta(p)),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_small_optimizer_tells_how_much_state_there_will_be(name):
    expected, make = OPTIMIZERS[name]
    model = nn.Linear(3, 2)
    optimizer = make([{"params": [model.weight], "lr": 0.5}, {"params": [model.bias]}])
    assert tensors_a_parameter(optimizer) == expected
    assert not optimizer.state
    space = space_for_state(optimizer)
    assert [tensor.shape for tensor in space] == [(2, 3), (2,)] * expected


def test_an_optimizer_of_the_users_is_not_made_a_second_time():
    class Own(torch.optim.SGD):
        pass

    Own.__module__ = "notebook"
    assert tensors_a_parameter(Own(nn.Linear(2, 2).parameters(), lr=0.1, momentum=0.9)) == 0
