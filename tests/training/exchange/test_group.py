"""Groups of real processes: what travels arrives, everything listens on loopback, a death is noticed."""

import os
import signal
import threading
import time

import pytest
import torch
from torch import nn

from edt_sdk.training.exchange.group import Group, connect_store, open_store
from edt_sdk.training.exchange.peer_errors import is_lost_peer
from edt_sdk.training.state import state, transfer

CPU = torch.device("cpu")


def group_of(rank, port, world, **options):
    options = {"device": CPU, "interface": "127.0.0.1", "generation": 1} | options
    return Group(connect_store("127.0.0.1", port), rank, world, **options)


def listening():
    """(inode, address) of this process's listening TCP sockets, the address as /proc writes it."""
    own = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            own.add(os.readlink(f"/proc/self/fd/{name}"))
        except FileNotFoundError:
            continue
    found = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with open(table) as lines:
            for line in lines.readlines()[1:]:
                fields = line.split()
                if fields[3] == "0A" and f"socket:[{fields[9]}]" in own:
                    found.add((fields[9], fields[1].split(":")[0]))
    return found


LOOPBACK = ("0100007F", "00000000000000000000000001000000", "0000000000000000FFFF00000100007F")


def sockets(rank, port):
    inherited = listening()  # what a test before this one has left open in the process that was forked
    store, own_port = open_store("127.0.0.1")  # as every worker does
    group = group_of(rank, port, 2)
    group.broadcast_bytes(b"x" if rank == 0 else None, 0)
    connect_store("127.0.0.1", own_port).set("reached", "")
    assert store.check(["reached"])
    return [address for _, address in listening() - inherited]


def test_everything_listens_on_loopback(processes):
    for found in processes(2, sockets):
        assert len(found) == 2  # the worker's store and gloo
        assert set(found) <= set(LOOPBACK)


def test_a_store_reports_its_real_port():
    store, port = open_store("127.0.0.1")
    store.set("key", "value")
    assert connect_store("127.0.0.1", port).get("key") == b"value"
    assert port > 0
    other, other_port = open_store("127.0.0.1")
    assert other_port != port
    del other


def everything(rank, port):
    group = group_of(rank, port, 3)
    gathered = torch.empty(6, dtype=torch.int64)
    handle = group.all_gather(gathered, torch.tensor([rank, 10 * rank]))
    # Rank r sends r + 1 numbers to each rank above it and nothing to the others.
    in_splits = [rank + 1 if to > rank else 0 for to in range(3)]
    out_splits = [sender + 1 if sender < rank else 0 for sender in range(3)]
    output = torch.empty(sum(out_splits))
    group.all_to_all(output, torch.full((sum(in_splits),), float(rank)), out_splits, in_splits).wait()
    handle.wait()
    tensor = torch.full((2,), rank)
    group.broadcast(tensor, 2).wait()
    data = [group.broadcast_bytes(data if rank == 1 else None, 1) for data in (b"", b"\x00\xff" * 70_000)]
    received = torch.zeros(3)
    if rank == 0:
        group.send(torch.arange(3.0), 2).wait()
    if rank == 2:
        group.recv(received, 0).wait()
    group.close()
    group.close()
    return gathered.tolist(), output.tolist(), tensor.tolist(), data, received.tolist()


def test_what_is_sent_arrives(processes):
    results = processes(3, everything)
    for rank, (gathered, output, tensor, data, received) in enumerate(results):
        assert gathered == [0, 0, 1, 10, 2, 20]
        assert output == [[], [0.0], [0.0, 1.0, 1.0]][rank]
        assert tensor == [2, 2]
        assert data == [b"", b"\x00\xff" * 70_000]
        assert received == ([0.0, 1.0, 2.0] if rank == 2 else [0.0] * 3)


def test_a_group_of_one_needs_nobody():
    group = Group(None, 0, 1, device=CPU, interface="127.0.0.1", generation=3)
    output = torch.empty(2)
    group.all_gather(output, torch.ones(2)).wait()
    assert output.tolist() == [1, 1]
    group.all_to_all(output, torch.zeros(2), [2], [2]).wait()
    assert output.tolist() == [0, 0]
    assert group.broadcast_bytes(b"abc", 0) == b"abc"
    group.close()


def one_after_the_other(rank, port):
    """Generations 1, 2, 3 in one store, the next built before the last is closed."""
    store = connect_store("127.0.0.1", port)
    before = None
    for generation in (1, 2, 3):
        group = Group(store, rank, 2, device=CPU, interface="127.0.0.1", generation=generation)
        if before is not None:
            before.close()
        output = torch.empty(2, dtype=torch.int64)
        group.all_gather(output, torch.tensor([generation])).wait()
        assert output.tolist() == [generation] * 2
        before = group
    return True


def test_generations_share_a_store(processes):
    assert processes(2, one_after_the_other) == [True, True]


def outlive(rank, port):
    group = group_of(rank, port, 3)
    group.broadcast_bytes(b"" if rank == 0 else None, 0)
    if rank == 2:
        os._exit(0)
    output = torch.empty(3)
    lost = False
    start = time.monotonic()
    try:
        while True:
            group.all_gather(output, torch.ones(1)).wait()
    except RuntimeError:
        lost = True
    group.close()
    return lost, time.monotonic() - start


def test_a_death_is_noticed_by_all(processes):
    first, second, dead = processes(3, outlive, may_die=True)
    assert dead is None
    for lost, seconds in (first, second):
        assert lost
        assert seconds < 60  # by the closed socket: the timeout is a year


def drops_what_never_ends(rank, port):
    store = connect_store("127.0.0.1", port)
    group = group_of(rank, port, 3)
    store.set(f"built/{rank}", "")  # who closes while another one connects lets that one fail
    store.wait([f"built/{each}" for each in range(3)])
    if rank < 2:
        # Rank 2 takes part in none of them: several are queued, and each waits for somebody who does the same.
        mine, everybody = torch.zeros(1 << 16), torch.empty(3 << 16)
        handles = [group.all_gather(everybody, mine) for _ in range(5)]
        group.close()
        store.set(f"dropped/{rank}", "")
        with pytest.raises(ValueError, match="closed"):
            handles[-1].wait()
    store.wait(["dropped/0", "dropped/1"])
    return "dropped"


@pytest.mark.timeout(180)
def test_a_group_is_dropped_whatever_is_under_way(processes):
    assert processes(3, drops_what_never_ends) == ["dropped"] * 3


class GiveUpError(Exception):
    pass


def test_waiting_for_the_others_can_be_given_up():
    store, _ = open_store("127.0.0.1")
    calls = []

    def waiting():
        calls.append(threading.get_ident())
        if len(calls) == 3:
            raise GiveUpError

    with pytest.raises(GiveUpError):
        Group(store, 0, 2, device=CPU, interface="127.0.0.1", generation=1, waiting=waiting)
    assert len(calls) == 3


def dies_before_the_links(rank, port):
    if rank == 1:
        connect_store("127.0.0.1", port).set("generation-1/here/1", "")
        os._exit(0)
    start = time.monotonic()
    calls = []

    def waiting():
        calls.append(time.monotonic())
        if len(calls) == 20:
            raise GiveUpError

    with pytest.raises(GiveUpError):
        group_of(0, port, 2, waiting=waiting)
    # The same store serves the next generation, although the attempt before still waits inside the library.
    group = group_of(0, port, 1, generation=2)
    return time.monotonic() - start, group.world


def test_who_dies_between_arrival_and_links_holds_nobody_up(processes):
    (seconds, world), _ = processes(2, dies_before_the_links, may_die=True)
    assert world == 1
    assert seconds < 30  # the library's own timeout is a minute


def test_a_store_whose_worker_is_gone_is_a_lost_member():
    store, port = open_store("127.0.0.1")
    del store
    with pytest.raises(RuntimeError, match="gone") as caught:
        Group(lambda: connect_store("127.0.0.1", port), 1, 2, device=CPU, interface="127.0.0.1", generation=1)
    assert is_lost_peer(caught.value)


def gives_a_part(rank, port):
    model = nn.Linear(3000, 3000)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    group = group_of(rank, port, 2)
    if rank == 0:
        captured = state.capture(model, optimizer, None)
        sent = []

        class Dying:
            def send(self, tensor, dst):
                if len(sent) == 3:
                    sent[-1].wait()
                    os._exit(0)
                sent.append(group.send(tensor, dst))
                return sent[-1]

        transfer.send(Dying(), [1], captured)
    before = model.weight.detach().clone()
    lost = False
    try:
        transfer.receive(group, 0, model, CPU, staged=True)
    except RuntimeError as error:
        lost = is_lost_peer(error)
    return lost, torch.equal(model.weight, before)


def test_who_dies_while_giving_its_state_is_a_lost_member(processes):
    assert processes(2, gives_a_part, may_die=True)[1] == (True, True)


def test_a_group_of_several_needs_a_store():
    with pytest.raises(ValueError, match="store"):
        Group(None, 0, 2, device=CPU, interface="127.0.0.1", generation=1)


def woken(rank, port):
    """Rank 0 waits for a member that never sends, and another thread of rank 0 ends the wait."""
    group = group_of(rank, port, 2)
    group.barrier()
    told = connect_store("127.0.0.1", port)
    if rank == 1:
        told.wait(["woken"])
        return True
    threading.Timer(0.2, group.wake).start()
    try:
        group.recv(torch.zeros(1), 1).wait()
    except RuntimeError as error:
        lost = is_lost_peer(error)
    else:
        lost = False
    told.set("woken", "")
    group.close()
    return lost


def test_a_wait_is_ended_from_another_thread_while_the_peer_lives(processes):
    assert processes(2, woken) == [True, True]


def left_in_a_message(rank, port, way):
    """Rank 1 dies when a part of what it sends has arrived, which gloo tells nobody who waits for the rest."""
    group = group_of(rank, port, 2)
    told = connect_store("127.0.0.1", port)
    if rank == 1:
        told.set("pid", str(os.getpid()))
    numbers = 1 << 25
    values, found = torch.ones(numbers), torch.zeros(numbers)
    group.barrier()
    if way == "message":
        handle = group.recv(found, 1) if rank == 0 else group.send(values, 0)
    else:
        to_other = [0, numbers] if rank == 0 else [numbers, 0]
        handle = group.all_to_all(found, values, to_other, to_other)
    if rank == 1:
        handle.wait()
        told.wait(["never"])
    peer = int(told.get("pid"))

    def kill():
        while not found[0]:
            pass
        os.kill(peer, signal.SIGSTOP)
        partial = not found[-1]
        os.kill(peer, signal.SIGKILL)
        time.sleep(0.1)
        seen.append(partial)
        group.wake()  # as the supervisor's word does

    seen = []
    killer = threading.Thread(target=kill)
    killer.start()
    lost = False
    try:
        handle.wait()
    except RuntimeError as error:
        lost = is_lost_peer(error)
    killer.join()
    group.close()
    return lost, seen


@pytest.mark.parametrize("way", ["message", "all"])
def test_a_wait_for_the_rest_of_a_message_ends_when_its_sender_is_gone(processes, way):
    for _ in range(10):
        lost, seen = processes(2, left_in_a_message, way, may_die=True)[0]
        if seen == [True]:
            assert lost
            return
    pytest.fail("all of it had arrived each time before the sender was killed")
