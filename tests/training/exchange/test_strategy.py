"""Which memory the members of a group look at, and when."""

from edt_sdk.training.exchange import strategy
from edt_sdk.training.exchange.group import Group, connect_store
from edt_sdk.training.exchange.strategy import Exchanges
from tests.training.numeric_job import CPU, Job


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
