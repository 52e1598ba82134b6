"""What one update does to a model: gradients, buffers, clipping, losses that are no numbers, and what is refused."""

from typing import ClassVar

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from edt_sdk.schemas.errors import Unprocessable
from edt_sdk.training.exchange.group import Group
from edt_sdk.training.sampling.order import Order, TrainStep
from edt_sdk.training.update.loader import ShardLoader
from edt_sdk.training.update.optimizer_step import draws_nothing
from edt_sdk.training.update.update import UpdateEngine
from tests.training.numeric_job import CPU, one_update


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_loss_that_is_no_number_stops_before_the_model_changes(bad):
    model = nn.Linear(3, 1)
    before = [p.detach().clone() for p in model.parameters()]
    data = [(torch.ones(3) * (bad if i == 2 else 1), torch.ones(1)) for i in range(4)]
    with pytest.raises(Unprocessable, match=r"update 0 \(epoch 0\).*in shard \d") as caught:
        one_update(model, torch.optim.SGD(model.parameters(), lr=0.1), dataset=data, nan_loss="stop")
    assert "learning rate" in caught.value.hint
    assert len(caught.value.ids["shards"]) == 1
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), before, strict=True))


def test_a_loss_that_is_no_number_is_said_five_times_and_then_now_and_then(caplog):
    model = nn.Linear(3, 1)
    data = [(torch.full((3,), float("nan")), torch.ones(1))] * 4
    with caplog.at_level("WARNING"):
        one_update(model, torch.optim.SGD(model.parameters(), lr=0.1), dataset=data, order=Order(4, (2, 2), 2, 0, 100))
    lines = [record.message for record in caplog.records if "not a finite number" in record.message]
    assert [line.split(" (")[0].rsplit(" ", 1)[1] for line in lines] == ["0", "1", "2", "3", "4", "99"]


def test_a_gradient_that_somebody_keeps_is_not_overwritten():
    class Keeping(torch.optim.SGD):
        kept: ClassVar = []

        def step(self, closure=None):
            gradient = self.param_groups[0]["params"][0].grad
            self.kept.append((gradient, gradient.clone()))
            super().step()

    model = nn.Linear(3, 1)
    data = [(torch.randn(3), torch.randn(1)) for _ in range(4)]
    one_update(model, Keeping(model.parameters(), lr=0.1), dataset=data, order=Order(4, (2, 2), 2, 0, 3))
    assert all(torch.equal(gradient, then) for gradient, then in Keeping.kept)
    assert len({gradient.data_ptr() for gradient, _ in Keeping.kept}) == 3


@pytest.mark.parametrize("rehearse", [False, True])
def test_a_gradient_that_is_finished_several_times_is_waited_for(rehearse):
    """Re-entrant checkpoints run backward within backward: a shared weight gets its gradient in parts."""

    class Shared(nn.Module):
        def __init__(self, *, checkpoints):
            super().__init__()
            self.layer = nn.Linear(3, 3)
            self.head = nn.Linear(3, 1)
            self.checkpoints = checkpoints

        def forward(self, x):
            x = x.clone().requires_grad_()
            for _ in range(2):
                x = checkpoint(self.layer, x, use_reentrant=True) if self.checkpoints else self.layer(x)
            return self.head(x)

    torch.manual_seed(3)
    data = [(torch.randn(3), torch.randn(1)) for _ in range(4)]
    plain, special = Shared(checkpoints=False), Shared(checkpoints=True)
    special.load_state_dict(plain.state_dict())
    for model in (plain, special):
        order = Order(4, (2, 2), 2, 0, 3)
        one_update(model, torch.optim.SGD(model.parameters(), lr=0.1), dataset=data, order=order, rehearse=rehearse)
    for ours, theirs in zip(special.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_float_buffers_are_the_mean_weighted_by_samples():
    model = nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 1))
    data = [(torch.randn(3), torch.zeros(1)) for _ in range(5)]
    order = Order(5, (3, 2), 3, 0, 1)
    one_update(model, torch.optim.SGD(model.parameters(), lr=0.1), dataset=data, order=order)
    first, second = (torch.stack([data[index][0] for index in shard]) for shard in order.shards(0, 0))
    # BatchNorm: 0.9 × old + 0.1 × that of the batch; old is 0 for the mean and 1 for the (unbiased) variance.
    torch.testing.assert_close(model[0].running_mean, 0.1 * (3 * first.mean(0) + 2 * second.mean(0)) / 5)
    torch.testing.assert_close(model[0].running_var, 0.9 + 0.1 * (3 * first.var(0) + 2 * second.var(0)) / 5)


def test_an_update_is_the_gradient_of_the_mean_over_all_samples():
    """Shards of unequal size: 5 samples as 3 + 2, against one plain backward pass in double precision."""
    data = [(torch.randn(3, dtype=torch.float64), torch.randn(1, dtype=torch.float64)) for _ in range(5)]
    model = nn.Linear(3, 1).double()
    plain = nn.Linear(3, 1).double()
    plain.load_state_dict(model.state_dict())
    loss = F.mse_loss(plain(torch.stack([x for x, _ in data])), torch.stack([y for _, y in data]))
    loss.backward()
    order = Order(5, (3, 2), 3, 0, 1)
    committed = one_update(model, torch.optim.SGD(model.parameters(), lr=0.0), dataset=data, order=order)
    for ours, theirs in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-12, atol=1e-12)
    assert sum(s.loss * s.samples for s in committed.stats) / 5 == pytest.approx(loss.item())
    assert all(stats.correct is None for stats in committed.stats)


def test_gradients_nobody_has_stay_none_and_frozen_parameters_stay_bit_for_bit():
    class Partly(nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.unused, self.frozen = nn.Linear(3, 1), nn.Linear(3, 1), nn.Linear(3, 3)
            self.frozen.requires_grad_(False)

        def forward(self, x):
            return self.used(self.frozen(x))

    model = Partly()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    one_update(model, torch.optim.SGD(model.parameters(), lr=0.1, weight_decay=0.5))
    assert model.unused.weight.grad is None
    assert model.frozen.weight.grad is None
    changed = {name for name, value in model.state_dict().items() if not torch.equal(value, before[name])}
    assert changed == {"used.weight", "used.bias"}
    assert model.used.weight.grad.data_ptr() % 64 == 0


def test_clipping_acts_on_the_combined_gradient():
    model = nn.Linear(3, 1)
    data = [(torch.full((3,), 100.0), torch.zeros(1))] * 4
    one_update(model, torch.optim.SGD(model.parameters(), lr=0.0), dataset=data, clip_grad_norm=0.25)
    norm = torch.stack([p.grad.norm() for p in model.parameters()]).norm()
    assert float(norm) == pytest.approx(0.25, rel=1e-4)


def test_half_precision_and_complex_parameters_are_combined():
    class Mixed(nn.Module):
        def __init__(self):
            super().__init__()
            self.brain = nn.Parameter(torch.ones(3, dtype=torch.bfloat16))
            self.wave = nn.Parameter(torch.ones(3, dtype=torch.complex64))
            self.long = nn.Parameter(torch.ones(3, dtype=torch.float64))

        def forward(self, x):
            return ((x * self.brain.float()) + (x * self.wave).abs() + x * self.long).sum(1, keepdim=True)

    model = Mixed()
    one_update(model, torch.optim.SGD(model.parameters(), lr=0.0), loss=lambda out, y: (out - y).mean())
    # d/dp of the mean over samples i = 0 … 3 of p·i is 1.5 for every element.
    assert model.brain.grad.dtype is torch.bfloat16
    assert model.brain.grad.tolist() == [1.5] * 3
    assert model.wave.grad.dtype is torch.complex64
    assert model.wave.grad.tolist() == [1.5 + 0j] * 3
    assert model.long.grad.tolist() == [1.5] * 3


def test_channels_last_parameters_get_channels_last_gradients():
    model = nn.Sequential(nn.Conv2d(4, 4, 3), nn.Flatten()).to(memory_format=torch.channels_last)
    data = [(torch.randn(4, 3, 3), torch.randn(4)) for _ in range(4)]
    one_update(model, torch.optim.SGD(model.parameters(), lr=0.1), dataset=data)
    assert model[0].weight.grad.stride() == model[0].weight.stride()


def test_optimizers_that_evaluate_the_model_are_refused():
    model = nn.Linear(3, 1)
    with pytest.raises(Unprocessable, match="LBFGS") as caught:
        one_update(model, torch.optim.LBFGS(model.parameters()))
    assert "SGD" in caught.value.hint


def test_only_torchs_own_optimizers_without_hooks_surely_draw_nothing():
    class Noisy(torch.optim.SGD):
        pass

    parameters = [nn.Parameter(torch.ones(2))]
    plain = torch.optim.AdamW(parameters)
    assert draws_nothing(plain)
    assert not draws_nothing(Noisy(parameters, lr=0.1))
    plain.register_step_post_hook(lambda *_: None)
    assert not draws_nothing(plain)


def test_a_model_in_evaluation_mode_is_trained_in_training_mode():
    model = nn.Sequential(nn.Linear(3, 1), nn.Dropout()).eval()
    one_update(model, torch.optim.SGD(model.parameters(), lr=0.1))
    assert model.training


def test_commit_needs_compute_and_the_right_block():
    model = nn.Linear(3, 1)
    order = Order(4, (2, 2), 2, 0, 1)
    engine = UpdateEngine(
        model, torch.optim.SGD(model.parameters(), lr=0.1), F.mse_loss, order=order, seed=0, device=CPU
    )
    group = Group(None, 0, 1, device=CPU, interface="127.0.0.1", generation=1)
    with pytest.raises(ValueError, match="without compute"):
        engine.commit(group, pending=0)
    engine.compute(TrainStep(0, 0, 0), range(1), ShardLoader([(torch.ones(3), torch.ones(1))] * 4))
    with pytest.raises(ValueError, match="not the block"):
        engine.commit(group, pending=0)


def test_in_mode_fast_gradients_add_up_where_they_are(caplog):
    """One whose parameter the optimizer does not own is gone afterwards; a sparse one is dense, as in mode `exact`."""

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(5, 3, sparse=True)
            self.stranger, self.head, self.unused = nn.Linear(3, 3), nn.Linear(3, 1), nn.Linear(3, 1)

        def forward(self, x):
            return self.head(self.stranger(self.embedding(x)))

    data = [(torch.tensor(i), torch.ones(1) * i) for i in (0, 1, 1, 4, 2, 2)]
    torch.manual_seed(0)
    first = Model()
    gradients = {}
    for mode in ("exact", "fast"):
        model = Model()
        model.load_state_dict(first.state_dict())
        owned = [p for name, p in model.named_parameters() if not name.startswith("stranger")]
        order = Order(6, (2, 2, 2), 2, 0, 1)
        one_update(model, torch.optim.SGD(owned, lr=0.1), dataset=data, order=order, block=range(3), mode=mode)
        gradients[mode] = {name: parameter.grad for name, parameter in model.named_parameters()}
    assert {name for name, gradient in gradients["fast"].items() if gradient is None} == {
        "stranger.weight", "stranger.bias", "unused.weight", "unused.bias"
    }  # fmt: skip
    for name, gradient in gradients["exact"].items():
        if gradient is not None:
            torch.testing.assert_close(gradients["fast"][name], gradient)
    assert sum("sparse" in record.message for record in caplog.records) == 2


def clamp(parameter):
    parameter.grad.clamp_(-0.5, 0.5)


def test_in_mode_fast_a_hook_sees_the_gradient_of_one_shard():
    """Clamped by itself, not on top of the others'."""
    torch.manual_seed(0)
    data = [(torch.randn(3), torch.randn(1) * 10) for _ in range(4)]
    first, weights = nn.Linear(3, 1), []
    for mode in ("exact", "fast"):
        model = nn.Linear(3, 1)
        model.load_state_dict(first.state_dict())
        model.weight.register_post_accumulate_grad_hook(clamp)
        one_update(model, torch.optim.SGD(model.parameters(), lr=0.1), dataset=data, mode=mode)
        weights.append(model.weight.detach())
    torch.testing.assert_close(*weights)


def test_in_mode_fast_an_update_that_is_computed_again_counts_once():
    data = [(torch.randn(3), torch.randn(1)) for _ in range(4)]
    order = Order(4, (2, 2), 2, 0, 1)
    group = Group(None, 0, 1, device=CPU, interface="127.0.0.1", generation=1)
    first, found = nn.Linear(3, 1), []
    for times in (1, 2):
        model = nn.Linear(3, 1)
        model.load_state_dict(first.state_dict())
        engine = UpdateEngine(
            model, torch.optim.SGD(model.parameters(), lr=0.1), F.mse_loss, order=order, seed=0, device=CPU, mode="fast"
        )
        for _ in range(times):
            engine.compute(TrainStep(0, 0, 0), range(2), ShardLoader(data), group)
        engine.commit(group, pending=0)
        found.append(model.weight.grad)
    assert torch.equal(*found)
