"""Which memory the members of a group look at, and when."""

import os

import pytest

from edt_sdk.training.exchange import memory_window, shared_exchange, strategy
from edt_sdk.training.exchange.blocks import blocks
from edt_sdk.training.exchange.group import Group, connect_store
from edt_sdk.training.exchange.shared_exchange import hosts_of
from edt_sdk.training.exchange.strategy import Exchanges
from tests.training.numeric_job import CPU, Job, alone, on_hosts, train, without_windows
from tests.waiting import until


def announce_twice(rank, port):
    """Two generations are announced before the first of them has an update; each is met once, and ahead."""
    layout = Job("mlp", epochs=1).engine._layout
    exchanges = Exchanges(layout, fast=False)
    store = connect_store("127.0.0.1", port)
    groups = [Group(store, rank, 2, device=CPU, interface="127.0.0.1", generation=number) for number in (1, 2)]
    for group in groups:
        exchanges.meet(group)
    met = []
    strategy.meet = lambda group, *_: met.append(group)
    for group in groups:
        exchanges.vectors(group)
    kept = bool(exchanges._ahead)
    for group in groups:
        group.close()
    return len(met), kept


def test_a_group_that_was_met_ahead_is_not_met_again_once_a_newer_one_is_announced(processes):
    assert processes(2, announce_twice) == [(0, False), (0, False)]


def between_hosts(rank, port, together):
    """Return the gradients that this rank sends to the other of two hosts with two ranks each, in vectors."""
    if together:
        on_hosts(rank, (2, 2))
    else:
        without_windows(rank, range(4))
    others = [(rank // 2 * 2 + 2) % 4 + number for number in range(2)]
    sent, all_to_all, all_gather = [], Group.all_to_all, Group.all_gather

    def to_all(self, output, input, out_splits, in_splits):
        sent.append(sum(in_splits[other] for other in others) * 4)
        return all_to_all(self, output, input, out_splits, in_splits)

    def gather(self, output, input):
        if input.is_floating_point():  # and no record of the shards
            sent.append(len(others) * input.nbytes)
        return all_gather(self, output, input)

    Group.all_to_all, Group.all_gather = to_all, gather
    job = Job("mlp", shards=8, samples=24, epochs=1)
    group = Group(connect_store("127.0.0.1", port), rank, 4, device=CPU, interface="127.0.0.1", generation=1)
    job.updates(group, blocks(8, 4)[rank], 0, 1)
    return sum(sent) / 4 / sum(job.engine._layout.lengths)


@pytest.mark.parametrize(("together", "least", "most"), [(False, 2.0, 2.3), (True, 1.0, 1.15)])
def test_only_the_sums_of_hosts_travel(processes, together, least, most):
    sent = processes(4, between_hosts, together)
    # The padding of the slices counts too, and it is large beside a model this small.
    assert least <= sent[0] + sent[1] == sent[2] + sent[3] <= most


def trained(rank, port, older, hosts):
    """Train as one of four ranks, of which `older` are of the version before."""
    shared_exchange.LEAST_IN_PLACE = 0
    if rank in older:
        memory_window.IN_PLACE = 0
    return train(rank, port, "cnn", [(0, 4)], {"shards": 8}, hosts=hosts)


@pytest.mark.parametrize("older", [(), (1,), (0, 1, 2, 3)])
@pytest.mark.parametrize("hosts", [(), (2, 2)])
def test_members_of_the_version_before_find_what_they_read(processes, older, hosts):
    found = processes(4, trained, older, hosts)
    assert {hash for hash, _ in found} == {alone("cnn", shards=8)[0]}


def pages(vectors):
    """How many pages of the vectors' window there are."""
    return os.fstat(vectors._window._file).st_blocks


def test_vectors_that_a_smaller_share_does_not_need_take_no_memory():
    job = Job("mlp", shards=8, samples=24, epochs=1)
    vectors = job.engine._exchanges._own
    taken = [vectors.take() for _ in range(4)]
    for each in taken:
        each.sections[0].fill_(1.0)
    vectors.give_back(taken[1:])
    before = pages(vectors)
    vectors.release()
    until(lambda: len(vectors._free) == 3, "vectors without pages")
    assert pages(vectors) <= before / 2
    assert float(taken[0].sections[0].sum()) == len(taken[0].sections[0]), "it is in use"
    assert not any(vectors.take().sections[0].any() for _ in range(3)), "zeros, as at first"


def test_hosts_are_known_by_who_sees_whom():
    assert hosts_of([[1, 1, 0], [1, 1, 0], [0, 0, 1]]) == (range(2), range(2, 3))
    assert hosts_of([[1, 1], [1, 1]]) == (range(2),)
    assert hosts_of([[1, 0, 1], [0, 1, 0], [1, 0, 1]]) is None, "those of a host do not follow each other"
    assert hosts_of([[1, 1], [0, 1]]) is None, "one sees the other, which does not see it"
    assert hosts_of([[1, 0], [0, 0]]) is None, "one has no memory to show"
