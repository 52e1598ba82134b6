"""A member that is lost costs the update in flight, and no bit."""

import os

import pytest

from edt_sdk.training.exchange import group_exchange as exchange
from edt_sdk.training.exchange import shared_exchange
from edt_sdk.training.exchange.blocks import blocks
from edt_sdk.training.exchange.group import Group, connect_store
from edt_sdk.training.exchange.peer_errors import is_lost_peer
from tests.training.numeric_job import CPU, Job, alone, digest, steps_of, without_windows


def lose_a_member(rank, port, overlap, unseen):
    exchange.PIECE = 64 * 8
    without_windows(rank, unseen)
    job = Job("transformer", epochs=1)
    group = Group(connect_store("127.0.0.1", port), rank, 2, device=CPU, interface="127.0.0.1", generation=1)
    block = blocks(job.shards, 2)[rank]
    job.updates(group, block, 0, 1)
    before = digest(job.model, job.optimizer)
    if not overlap:
        job.engine.compute(steps_of(job.order)[1], block, job.loader)
    if rank == 1:
        os._exit(0)
    lost = False
    try:
        if overlap:  # noticed in the middle of a backward pass
            job.engine.compute(steps_of(job.order)[1], block, job.loader, group)
        job.engine.commit(group, pending=1)
    except RuntimeError as error:
        lost = is_lost_peer(error)
    group.close()
    assert lost
    assert digest(job.model, job.optimizer) == before
    last = Group(None, 0, 1, device=CPU, interface="127.0.0.1", generation=2)
    job.updates(last, range(job.shards), 1, len(steps_of(job.order)))
    return digest(job.model, job.optimizer)


@pytest.mark.parametrize("unseen", [(), (0, 1)], ids=["read", "sent"])
@pytest.mark.parametrize("overlap", [True, False])
def test_a_lost_member_costs_the_update_in_flight_and_no_bit(processes, overlap, unseen):
    expected, _ = alone("transformer", epochs=1)
    assert processes(2, lose_a_member, overlap, unseen, may_die=True) == [expected, None]


def lose_a_member_while_adding(rank, port, when):
    """Rank 1 dies before it has added up its slices, or when it has and nobody has copied them."""
    job = Job("transformer", epochs=1)
    group = Group(connect_store("127.0.0.1", port), rank, 2, device=CPU, interface="127.0.0.1", generation=1)
    job.updates(group, blocks(job.shards, 2)[rank], 0, 1)
    before = digest(job.model, job.optimizer)
    if rank == 1:
        add_up = shared_exchange.SharedExchange._add_up
        shared_exchange.SharedExchange._add_up = lambda self: (when == "after" and add_up(self), os._exit(0))
    with pytest.raises(RuntimeError) as caught:
        job.updates(group, blocks(job.shards, 2)[rank], 1, 2)
    assert is_lost_peer(caught.value)
    group.close()
    assert digest(job.model, job.optimizer) == before
    last = Group(None, 0, 1, device=CPU, interface="127.0.0.1", generation=2)
    job.updates(last, range(job.shards), 1, len(steps_of(job.order)))
    return digest(job.model, job.optimizer)


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_member_lost_while_slices_are_added_costs_no_bit(processes, when):
    expected, _ = alone("transformer", epochs=1)
    assert processes(2, lose_a_member_while_adding, when, may_die=True) == [expected, None]
