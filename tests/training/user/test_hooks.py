"""What callbacks change on rank 0 reaches rank 1, over a real group of two threads."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from edt_sdk.callbacks import Callback
from edt_sdk.schemas.errors import Unprocessable
from edt_sdk.training.exchange.group import Group, connect_store, open_store
from edt_sdk.training.user.hooks import Hooks


class Member:
    def __init__(self, *callbacks: Any) -> None:
        torch.manual_seed(1)
        self.model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.Linear(2, 1))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.8, momentum=0.5)
        self.hooks = Hooks(callbacks, self.model, self.optimizer, 3, 9)


def nothing() -> None:
    pass


def together(job: Callable[[Group], object]) -> None:
    """Run `job(group)` as both ranks of a group, each in a thread."""
    store, port = open_store("127.0.0.1")
    raised: list[BaseException] = []

    def run(rank: int) -> None:
        try:
            own = store if rank == 0 else connect_store("127.0.0.1", port)
            group = Group(own, rank, 2, device=torch.device("cpu"), interface="127.0.0.1", generation=1)
            job(group)
            group.close()
        except BaseException as error:
            raised.append(error)

    threads = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(180)
    assert not any(thread.is_alive() for thread in threads)
    if raised:
        raise raised[0]


class Busy(Callback):
    def on_epoch_begin(self, epoch: int) -> None:
        group = self.params["optimizer"].param_groups[0]
        group["lr"] *= 0.25
        group["momentum"] = 0.75
        self.model[0].weight.requires_grad_(False)
        self.model[1].eval()
        with torch.no_grad():
            self.model[2].bias.fill_(float("nan"))
            self.model[1].running_mean.data.add_(2)
        self.seen = epoch, self.params["epochs"]


def test_everything_a_hook_changes_is_changed_everywhere() -> None:
    callbacks = Busy(), Busy()
    members = Member(callbacks[0]), Member(callbacks[1])
    together(lambda group: members[group.rank].hooks.run(group, 4, "on_epoch_begin", 2, done=nothing))
    assert callbacks[0].seen == (2, 3)
    assert not hasattr(callbacks[1], "seen")
    for member in members:
        group = member.optimizer.param_groups[0]
        assert (group["lr"], group["momentum"]) == (0.2, 0.75)
        assert not member.model[0].weight.requires_grad
        assert member.model[0].bias.requires_grad
        assert [module.training for module in member.model] == [True, False, True]
        assert member.model[2].bias.isnan().all()
        assert member.model[1].running_mean.tolist() == [2, 2]


class Forgetful(Callback):
    def on_epoch_end(self, epoch: int) -> None:
        self.model.eval()


class Other:
    """No subclass, one hook."""

    def on_train_begin(self) -> None:
        self.drawn = torch.rand(1).item()


def test_a_model_left_in_evaluation_trains_on_and_objects_need_not_have_every_hook() -> None:
    members = Member(Forgetful(), Other()), Member(Forgetful(), Other())
    together(lambda group: members[group.rank].hooks.run(group, 4, "on_epoch_end", 0, done=nothing))
    assert all(module.training for member in members for module in member.model.modules())


def test_random_numbers_follow_from_seed_and_place_and_disturb_nothing() -> None:
    alone = Group(None, 0, 1, device=torch.device("cpu"), interface="127.0.0.1", generation=1)
    drawn = []
    for position in (1, 1, 2):
        other = Other()
        member = Member(other)
        torch.manual_seed(position)
        before = torch.get_rng_state()
        member.hooks.run(alone, position, "on_train_begin", done=nothing)
        assert torch.equal(torch.get_rng_state(), before)
        drawn.append(other.drawn)
    assert drawn[0] == drawn[1] != drawn[2]


class Counting(Callback):
    def __init__(self, model: nn.Module) -> None:
        self.head = model[2]
        self.count = 0

    def on_epoch_end(self, epoch: int) -> None:
        self.count += 1
        self.average = {name: p.detach().clone() for name, p in self.model.named_parameters()}


def test_after_a_hook_everybody_has_the_objects_and_the_next_rank_0_goes_on_with_them() -> None:
    members = Member(), Member()
    for member in members:
        member.hooks = Hooks([Counting(member.model)], member.model, member.optimizer, 3, 9)
    together(lambda group: members[group.rank].hooks.run(group, 1, "on_epoch_end", 0, done=nothing))
    assert members[0].hooks.frozen == members[1].hooks.frozen is not None
    alone = Group(None, 0, 1, device=torch.device("cpu"), interface="127.0.0.1", generation=2)
    members[1].hooks.run(alone, 2, "on_epoch_end", 1, done=nothing)
    moved = members[1].hooks._callbacks[0]
    assert moved.count == 2
    assert moved.head is members[1].model[2]
    assert moved.model is members[1].model
    assert moved.params["optimizer"] is members[1].optimizer
    joiner = Member(Counting(members[0].model))
    joiner.hooks.adopt(members[1].hooks.frozen)
    joiner.hooks.run(alone, 3, "on_epoch_end", 2, done=nothing)
    assert joiner.hooks._callbacks[0].count == 3


class Odd(Callback):
    def __init__(self) -> None:
        self.calls = 0

    def on_epoch_end(self, epoch: int) -> None:
        self.calls += 1
        self.lock = threading.Lock()


def test_objects_that_cannot_be_pickled_stay_where_they_are_and_one_line_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    members = Member(Odd()), Member(Odd())

    def job(group: Group) -> None:
        for position in (1, 2):
            members[group.rank].hooks.run(group, position, "on_epoch_end", 0, done=nothing)

    with caplog.at_level("INFO"):
        together(job)
    assert [member.hooks._callbacks[0].calls for member in members] == [2, 0]
    assert members[0].hooks.frozen is None
    assert len([record for record in caplog.records if "cannot be pickled" in record.message]) == 1


class Curious(Callback):
    def on_epoch_end(self, epoch: int) -> None:
        self.heard = (*getattr(self, "heard", ()), (self.params["loss"], self.params["test_loss"]))


def test_the_last_losses_are_told() -> None:
    alone = Group(None, 0, 1, device=torch.device("cpu"), interface="127.0.0.1", generation=1)
    curious = Curious()
    member = Member(curious)
    member.hooks.run(alone, 1, "on_epoch_end", 0, done=nothing)
    member.hooks.tell(loss=0.5, test_loss=0.25)
    member.hooks.run(alone, 2, "on_epoch_end", 1, done=nothing)
    assert curious.heard == ((None, None), (0.5, 0.25))


def test_a_hook_is_done_on_rank_0_before_the_others_are_told() -> None:
    members = Member(Busy()), Member(Busy())
    done: list[int] = []
    # A member whose link stands may close it while the other's still connects, which is another error.
    built = threading.Barrier(2)

    def job(group: Group) -> None:
        built.wait(180)
        if group.rank == 1:
            group.close()  # gone
            return
        with pytest.raises(RuntimeError):
            members[0].hooks.run(group, 4, "on_epoch_begin", 2, done=lambda: done.append(0))

    together(job)
    assert done == [0]


class Adding(Callback):
    def on_epoch_begin(self, epoch: int) -> None:
        self.params["optimizer"].add_param_group({"params": [nn.Parameter(torch.zeros(1))]})


class Thawing(Callback):
    def on_epoch_begin(self, epoch: int) -> None:
        self.model[0].weight.requires_grad_(True)


@pytest.mark.parametrize("callback", [Adding(), Thawing()])
def test_other_parameters_than_at_the_start_are_refused(callback: Callback) -> None:
    alone = Group(None, 0, 1, device=torch.device("cpu"), interface="127.0.0.1", generation=1)
    member = Member()
    member.model[0].weight.requires_grad_(False)
    hooks = Hooks([callback], member.model, member.optimizer, 3, 9)
    with pytest.raises(Unprocessable, match="other parameters, or thawed"):
        hooks.run(alone, 1, "on_epoch_begin", 0, done=nothing)
