"""One shard: what goes into the vector, the custom step of WMLA, and errors a user can act on."""

import logging
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from edt_sdk.schemas.errors import Unprocessable
from edt_sdk.training.exchange.layout import Layout
from edt_sdk.training.state.nested import to_device
from edt_sdk.training.update.buffers import Buffers
from edt_sdk.training.update.gradients import Contribution
from edt_sdk.training.update.loader import Batch
from edt_sdk.training.update.shard import ShardRunner
from edt_sdk.training.update.user_functions import metric_names

CPU = torch.device("cpu")


class Runner:
    def __init__(self, model, loss=F.cross_entropy, optimizer=None, **options):
        optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.1)
        self.layout = Layout(model, optimizer)
        buffers = Buffers(self.layout)
        buffers.save()
        options = {"fn_step_train": None, "metrics": ()} | options
        self.runner = ShardRunner(model, optimizer, loss, layout=self.layout, buffers=buffers, device=CPU, **options)
        self.vector = self.layout.zeros()

    def train(self, data, samples=4, shard=0, seed=1):
        batch = Batch(data, np.arange(samples))
        return self.runner.train(shard, batch, seed=seed, contribution=Contribution(self.vector, samples))


def pair(samples=4):
    return torch.randn(samples, 3), torch.arange(samples) % 2


def test_a_contribution_is_gradient_times_samples():
    model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    runner = Runner(model)
    outcome = runner.train(pair())
    for parameter, view in zip(model.parameters(), runner.vector.views, strict=False):
        assert torch.equal(view, parameter.grad * 4)
    assert torch.equal(runner.vector.views[4], model[1].running_mean * 4)
    assert outcome.present == (True,) * 4
    assert outcome.changed.tolist() == [True, True, True]
    assert int(outcome.others[0]) == 1  # num_batches_tracked of shard 0
    assert runner.train(pair(), shard=3).others == ()
    assert int(model[1].num_batches_tracked) == 1  # each shard starts from the same buffers
    assert outcome.samples == 4


def test_a_shard_starts_from_its_seed():
    runner = Runner(nn.Sequential(nn.Linear(3, 20), nn.Dropout(), nn.Linear(20, 2)))
    data = pair()
    losses = [float(runner.train(data, seed=seed).loss) for seed in (1, 2, 1)]
    assert losses[0] == losses[2] != losses[1]


def wmla_step(model, data, eva, train_loader, fn_args):
    """The shape of the custom step in IBM's samples."""
    inputs, labels = data
    model.get_optimizer().zero_grad()
    outputs = model(inputs)
    loss = model.get_loss_function()(outputs, labels)
    loss.backward()
    acc = eva(outputs, labels)
    return acc, loss


def test_a_custom_step_gives_what_the_default_step_gives():
    torch.manual_seed(0)
    model = nn.Linear(3, 2)
    data = pair()
    default, custom = Runner(model, metrics=[mean_label]), Runner(model, fn_step_train=wmla_step, metrics=[mean_label])
    ours, theirs = default.train(data), custom.train(data)
    assert float(ours.loss) == float(theirs.loss)
    assert float(ours.correct) == theirs.correct
    assert ours.metrics == theirs.metrics == (0.5,)
    for a, b in zip(default.vector.sections, custom.vector.sections, strict=True):
        assert torch.equal(a, b)


def mean_label(outputs, labels):
    assert outputs.shape == (4, 2)
    return labels.float().mean()


def test_the_model_of_a_custom_step_is_the_model_in_every_other_respect():
    model = nn.Linear(3, 2)
    seen = {}

    def step(facade, data, eva, train_loader, fn_args):
        seen.update(weight=facade.weight, training=facade.training, parameters=list(facade.parameters()))
        facade.note = "kept"
        loss = facade.get_loss_function()(facade(data[0]), data[1])
        loss.backward()
        return eva("no", "classes"), loss.item()

    outcome = Runner(model, fn_step_train=step).train(pair())
    assert seen["weight"] is model.weight
    assert seen["training"] is True
    assert len(seen["parameters"]) == 2
    assert model.note == "kept"
    assert math.isnan(outcome.correct)


def stepping(model, data, eva, train_loader, fn_args):
    result = wmla_step(model, data, eva, train_loader, fn_args)
    model.get_optimizer().step()
    return result


@pytest.mark.parametrize(
    ("runner", "data", "message", "hint"),
    [
        (lambda: Runner(nn.Linear(3, 2), fn_step_train=stepping), pair(), "changed in place", "optimizer.step()"),
        (lambda: Runner(nn.Linear(3, 2), fn_step_train=lambda *a: 1.0), pair(), "must return", "return acc, loss"),
        (lambda: Runner(nn.Linear(3, 2)), torch.ones(4, 3), "must be (features, labels)", "pairs"),
        (lambda: Runner(nn.Linear(3, 2), loss=nn.CrossEntropyLoss(reduction="none")), pair(), "shape (4,)", "mean"),
        (lambda: Runner(nn.Linear(3, 2), loss=lambda o, y: 1.0), pair(), "not a float", "reduction"),
    ],
)
def test_mistakes_are_told_with_a_hint(runner, data, message, hint):
    with pytest.raises(Unprocessable) as caught:
        runner().train(data)
    assert message in caught.value.message
    assert hint in caught.value.hint


def test_sparse_gradients_are_made_dense_and_say_so_once(caplog):
    model = nn.Sequential(nn.Embedding(5, 2, sparse=True), nn.Flatten(), nn.Linear(2, 2))
    runner = Runner(model)
    data = (torch.tensor([[0], [1], [1], [4]]), torch.arange(4) % 2)
    with caplog.at_level(logging.WARNING):
        runner.train(data)
        runner.train(data)
    assert [record.message for record in caplog.records if "sparse" in record.message] == [
        "The gradient of 0.weight is sparse. It is made dense, so that it can be summed in a fixed order."
    ]
    assert (runner.vector.views[0][[2, 3]] == 0).all()
    assert (runner.vector.views[0][[0, 1, 4]] != 0).any(dim=1).all()


@pytest.mark.parametrize("weight", [1, 3])
def test_gradients_are_the_same_taken_one_by_one_or_all_at_the_end(monkeypatch, weight):
    """Those of a large model leave one by one; a backward pass that is no shard's is left alone."""
    monkeypatch.setattr("edt_sdk.training.update.gradients._SMALL", 4)
    vectors = []
    for cached in (0, 1 << 20):
        monkeypatch.setattr("edt_sdk.training.update.gradients._CACHED", cached)
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(3, 5), nn.Linear(5, 2))
        runner = Runner(model)
        for shard in range(3):
            model(torch.ones(2, 3)).sum().backward()
            assert all(parameter.grad is not None for parameter in model.parameters())
            contribution = Contribution(runner.vector, weight, add=shard > 0)
            runner.runner.train(shard, Batch(pair(), np.arange(4)), seed=1, contribution=contribution)
            taken = [parameter.grad is None for parameter in model.parameters()]
            # The first shard only looks whether each gradient is finished once.
            assert taken == ([True, True, True, False] if shard and not cached else [False] * 4)
        vectors.append(runner.vector.sections[0].clone())
    assert torch.equal(*vectors)


class Counting(nn.Module):
    """Counts its calls, the second counter only those with a positive first number."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 2)
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self.register_buffer("positive", torch.zeros(3))

    def forward(self, x):
        self.calls += 1
        if x[0, 0] > 0:
            self.positive += 1
        return self.layer(x)


def test_every_shard_starts_from_the_same_buffers_whatever_metrics_and_other_shards_did_to_them():
    model = Counting()
    runner = Runner(model, metrics=[lambda outputs, labels: float(model(torch.ones(1, 3)).sum())])
    changed = []
    for first in (-1.0, 1.0, -1.0):
        outcome = runner.train((torch.full((4, 3), first), torch.arange(4) % 2))
        changed.append(outcome.changed.tolist())
        assert torch.equal(runner.vector.views[2], torch.full((3,), 4.0 * (first > 0)))  # of this shard alone
        assert int(outcome.others[0]) == 1
        assert int(model.calls) == 2  # with the metric's, which counts for nothing
    # Which the update changes, as far as is known after each of the shards.
    assert changed == [[False, True], [True, True], [True, True]]


def test_a_vector_used_again_holds_nothing_of_before():
    class Switch(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(3, 2), nn.Linear(3, 2)
            self.use = "a"

        def forward(self, x):
            return getattr(self, self.use)(x)

    model = Switch()
    runner = Runner(model)
    assert runner.train(pair()).present == (True, True, False, False)
    model.use = "b"
    assert runner.train(pair()).present == (False, False, True, True)
    assert not runner.vector.views[0].any()
    assert runner.vector.views[2].any()


def test_a_loss_that_is_not_a_number_is_passed_on():
    outcome = Runner(nn.Linear(3, 2)).train((torch.full((4, 3), float("nan")), torch.zeros(4, dtype=torch.int64)))
    assert math.isnan(outcome.loss)


def test_names_of_metrics():
    class Score:
        def __call__(self, outputs, labels):
            return 0

    assert metric_names([mean_label, Score(), Score(), mean_label, mean_label]) == (
        "mean_label", "Score", "Score_2", "mean_label_2", "mean_label_3",
    )  # fmt: skip


def test_structures_move_to_the_device():
    class Movable:
        def to(self, device):
            return ("moved", device)

    value = {"a": [torch.ones(1), (torch.ones(2), "text")], "b": Movable(), "n": np.ones(1)}
    moved = to_device(value, torch.device("meta"))
    assert moved["a"][0].is_meta
    assert moved["a"][1][0].is_meta
    assert moved["a"][1][1] == "text"
    assert moved["b"] == ("moved", torch.device("meta"))
    assert moved["n"] is value["n"]
