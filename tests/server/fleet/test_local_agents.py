"""Which hosts can be named, and what each of them has."""

import pytest

from edt_sdk.schemas.errors import Unprocessable
from edt_server.fleet.local_agents import check_hosts, local_hosts
from edt_server.system.slots import usable_cores


@pytest.mark.parametrize("hosts", [{"": 1}, {"a/b": 1}, {"a@b": 2}, {"a": 0}, {"a": -1}, {"a": True}, {"a": "four"}])
def test_what_cannot_be_a_host_is_refused(hosts):
    with pytest.raises(Unprocessable) as refused:
        check_hosts(hosts)
    assert refused.value.ids == {"field": "local_hosts"}


def test_each_host_offers_its_slots_on_its_share_of_the_gpus():
    a, b = local_hosts({"a": 2, "b": 4}, gpus=(0, 1, 3))
    assert (a.name, a.gpus, a.offers) == ("a", (0, 1), 2)
    assert (b.name, b.gpus, b.offers) == ("b", (3,), 4)
    without = local_hosts({"a": 2, "b": 4}, gpus=())
    assert [host.offers for host in without] == [2, 4]
    assert all(1 <= host.cores <= usable_cores() for host in without)
