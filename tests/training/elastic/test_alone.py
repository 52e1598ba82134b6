"""A loop of one's own outside a job: the same as a plain loop of torch's, and clear about what it cannot take."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from itertools import islice
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, TensorDataset, WeightedRandomSampler

import edt_sdk.elastic as edt
from edt_sdk.elastic import variables
from edt_sdk.elastic.place import ENDED, Place
from edt_sdk.schemas.errors import Conflict, InvalidRequest, Unprocessable
from edt_sdk.training.sampling.order import Order

SAMPLES = 40
FUNCTION = "test_variables_that_do_not_travel_are_compared"


@pytest.fixture
def data() -> TensorDataset:
    numbers = torch.Generator().manual_seed(1)
    return TensorDataset(torch.randn(SAMPLES, 6, generator=numbers), torch.randint(0, 3, (SAMPLES,), generator=numbers))


@pytest.fixture
def net() -> nn.Module:
    torch.manual_seed(2)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))


@torch.no_grad()
def difference(one: nn.Module, other: nn.Module, before: nn.Module) -> float:
    """How far two results lie apart, as a share of the way from the beginning."""
    ones, others, befores = (torch.cat([p.flatten() for p in m.parameters()]) for m in (one, other, before))
    return float((ones - others).norm() / (others - befores).norm())


def in_order(data: TensorDataset, batch: int, epochs: int) -> list[list[torch.Tensor]]:
    """The batches of plain training, in the order of the engine."""
    order = Order(len(data), (batch,), batch, 0, epochs)
    return [
        [torch.stack(part) for part in zip(*(data[i] for i in order.shards(epoch, update)[0]), strict=True)]
        for epoch in range(epochs)
        for update in range(order.updates_per_epoch)
    ]


@pytest.mark.parametrize("shards", [1, 3, 8])
def test_the_same_as_a_plain_loop(data: TensorDataset, net: nn.Module, shards: int) -> None:
    plain, before = copy.deepcopy(net), copy.deepcopy(net)
    optimizer = torch.optim.AdamW(plain.parameters(), lr=0.01)
    for x, y in in_order(data, 16, 5):
        optimizer.zero_grad()
        F.cross_entropy(plain(x), y).backward()
        nn.utils.clip_grad_norm_(plain.parameters(), 0.5)
        optimizer.step()
    ours = torch.optim.AdamW(net.parameters(), lr=0.01)
    run = edt.elastic(model=net, optimizer=ours)
    for _ in run.epochs(5):
        for update in run.updates(data, batch=16, shards=shards):
            for x, y in update:
                update.backward(F.cross_entropy(net(x), y))
            update.step(clip=0.5)
    assert run.update == 15
    assert difference(net, plain, before) < 1e-5


def test_a_mean_over_something_else_than_samples(data: TensorDataset, net: nn.Module) -> None:
    """As over tokens without padding: a part with few of them has little weight."""
    plain, before = copy.deepcopy(net), copy.deepcopy(net)
    masked = TensorDataset(data.tensors[0], torch.where(torch.arange(SAMPLES) % 7 < 4, -100, data.tensors[1]))
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.1)
    for x, y in in_order(masked, 16, 2):
        optimizer.zero_grad()
        F.cross_entropy(plain(x), y).backward()
        optimizer.step()
    ours = torch.optim.SGD(net.parameters(), lr=0.1)
    run = edt.elastic(model=net, optimizer=ours)
    for _ in run.epochs(2):
        for update in run.updates(masked, batch=16, shards=4):
            for x, y in update:
                counted = int((y != -100).sum())
                loss = F.cross_entropy(net(x), y, reduction="sum") / max(1, counted)
                update.backward(loss, weight=counted)
            update.step()
    assert difference(net, plain, before) < 1e-5


def test_a_weight_may_be_given_for_some_parts_only(data: TensorDataset, net: nn.Module) -> None:
    """Parts without one weigh by their samples, in the same unit."""
    plain, before = copy.deepcopy(net), copy.deepcopy(net)
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.1)
    for x, y in in_order(data, 16, 2):
        optimizer.zero_grad()
        F.cross_entropy(plain(x), y).backward()
        optimizer.step()
    run = edt.elastic(model=net, optimizer=torch.optim.SGD(net.parameters(), lr=0.1))
    for _ in run.epochs(2):
        for update in run.updates(data, batch=16, shards=4):
            for number, (x, y) in enumerate(update):
                update.backward(F.cross_entropy(net(x), y), weight=len(x) if number % 2 else None)
            update.step()
    assert difference(net, plain, before) < 1e-5


def test_a_part_without_weight_counts_for_nothing(data: TensorDataset, net: nn.Module) -> None:
    """Its mean is over nothing, a NaN. The loss of an update is the mean by the weights."""
    labels = torch.where(torch.arange(SAMPLES) < 30, -100, data.tensors[1])
    expected = F.cross_entropy(net(data.tensors[0]), labels)
    expected.backward()
    gradients = [parameter.grad.clone() for parameter in net.parameters()]
    run = edt.elastic(model=net, optimizer=torch.optim.SGD(net.parameters(), lr=0.0))
    update = next(
        run.updates(
            TensorDataset(data.tensors[0], labels),
            batch=SAMPLES,
            shards=4,
            sampler=torch.utils.data.SequentialSampler(data),
        )
    )
    for x, y in update:
        update.backward(F.cross_entropy(net(x), y), weight=(y != -100).sum())
    assert update.loss == pytest.approx(expected.item())
    for parameter, gradient in zip(net.parameters(), gradients, strict=True):
        torch.testing.assert_close(parameter.grad, gradient)


def test_a_script_that_goes_on_from_a_checkpoint_of_its_own(data: TensorDataset, net: nn.Module) -> None:
    """It gets the samples that are left, in the order that they have without an interruption."""

    def samples(epoch: int = 0, update: int = 0) -> list[torch.Tensor]:
        run, found = edt.elastic(model=net, optimizer=torch.optim.SGD(net.parameters(), lr=0.0)), []
        for number in run.epochs(3, start=epoch):
            for each in run.updates(data, batch=16, shards=2, start=update if number == epoch else 0):
                for x, y in each:
                    each.backward(F.cross_entropy(net(each.keep("x", x)), y))
                found.append(each.kept("x"))
                each.step()
        return found

    whole, rest = samples(), samples(1, 2)
    assert (len(whole), len(rest)) == (9, 4)
    assert torch.equal(torch.cat(rest), torch.cat(whole[5:]))


def test_a_worker_that_skips_an_update_knows_whether_more_followed(data: TensorDataset, net: nn.Module) -> None:
    """The others are at the first call after it, beyond it, or at the end of the section with or without more calls."""
    run = edt.elastic(model=net, optimizer=torch.optim.SGD(net.parameters(), lr=0.1))
    update = next(run.updates(data, batch=20, shards=2))
    for x, y in update:
        update.backward(F.cross_entropy(net(x), y))
    assert not update.followed
    found = []
    for place in ((0, 0, 0), (1, 1, 1), (ENDED, 1, 1), (ENDED, 2, 1)):
        run._side.target = Place(sections={0: place}, calls=1)
        found.append(update.followed)
    assert found == [True, False, False, True]


def test_a_scaler_keeps_one_scale(data: TensorDataset, net: nn.Module) -> None:
    plain, before = copy.deepcopy(net), copy.deepcopy(net)
    optimizer, scaler = torch.optim.SGD(plain.parameters(), lr=0.1), torch.amp.GradScaler("cpu", init_scale=2.0**40)
    for x, y in in_order(data, 16, 2):
        optimizer.zero_grad()
        scaler.scale(F.cross_entropy(plain(x), y)).backward()
        scaler.step(optimizer)
        scaler.update()
    ours, our_scaler = torch.optim.SGD(net.parameters(), lr=0.1), torch.amp.GradScaler("cpu", init_scale=2.0**40)
    run = edt.elastic(model=net, optimizer=ours, scaler=our_scaler)
    for _ in run.epochs(2):
        for update in run.updates(data, batch=16, shards=2):
            for x, y in update:
                update.backward(F.cross_entropy(net(x), y), scaler=our_scaler)
            update.step(scaler=our_scaler)
    assert our_scaler.get_scale() == scaler.get_scale()
    assert difference(net, plain, before) < 1e-5


def test_steps_over_several_passes_and_early_stops(data: TensorDataset, net: nn.Module) -> None:
    run = edt.elastic(model=net, optimizer=torch.optim.SGD(net.parameters(), lr=0.1))
    samples: list[int] = []

    def train(update: edt.Update) -> None:
        for x, y in update:
            update.keep("samples", len(x))
            update.backward(F.cross_entropy(net(x), y))
        update.step()
        samples.extend(update.kept("samples"))

    for update in run.updates(data, batch=16, shards=2, steps=7):
        train(update)
    assert run.update == 7
    assert sum(samples) == 2 * SAMPLES + 16
    for update in islice(run.updates(data, batch=8, shards=2), 2):
        train(update)
    assert run.update == 9
    assert not math.isnan(update.loss)


def test_an_evaluation_is_a_mean_over_samples_without_gradients(data: TensorDataset, net: nn.Module) -> None:
    run = edt.elastic(model=net, optimizer=torch.optim.SGD(net.parameters(), lr=0.1))
    modes = []

    def measure(batch: Any) -> dict[str, Any]:
        modes.append((net.training, torch.is_grad_enabled()))
        x, y = batch
        return {"loss": F.cross_entropy(net(x), y), "right": ((net(x).argmax(1) == y).sum(), len(y))}

    found = run.evaluate(data, measure, batch=7)
    with torch.no_grad():
        outputs = net(data.tensors[0])
    assert found["loss"] == pytest.approx(float(F.cross_entropy(outputs, data.tensors[1])), rel=1e-5)
    assert found["right"] == pytest.approx(float((outputs.argmax(1) == data.tensors[1]).float().mean()))
    assert set(modes) == {(False, False)}
    assert net.training
    assert isinstance(run.evaluate(data, lambda batch: batch[0].mean()), float)


def test_the_best_weights_are_kept(net: nn.Module, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = edt.elastic(model=net, optimizer=torch.optim.SGD(net.parameters(), lr=0.1))
    assert run.save_best(0.5)
    saved = (tmp_path / "best.pth").read_bytes()
    assert not run.save_best(0.4)
    assert (tmp_path / "best.pth").read_bytes() == saved
    assert run.save_best(0.3, net, lower=True, name="loss")
    assert not run.save_best(0.31, net, lower=True, name="loss")
    net.load_state_dict(torch.load(tmp_path / "best.pth", weights_only=True))


class Annealed(nn.Linear):
    """Counts its calls in Python, as an annealing of a loss might."""

    calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return super().forward(x) / self.calls


@pytest.mark.parametrize("kept", [False, True], ids=["lost", "kept"])
def test_state_that_the_engine_does_not_know_is_found(
    data: TensorDataset, kept: bool, caplog: pytest.LogCaptureFixture
) -> None:
    net = nn.Linear(6, 3) if kept else Annealed(6, 3)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    run = edt.elastic(model=net, optimizer=optimizer)
    seen = 0
    for update in run.updates(data, batch=12, shards=3, steps=8):
        for x, y in update:
            seen += 1
            update.backward(F.cross_entropy(net(x), y))
        assert all(parameter.grad is not None for parameter in net.parameters())
        update.step()
    # In updates 2, 4 and 8 a part is computed once more, or twice where it differs, and then no more.
    assert seen == 20 + (3 if kept else 2)
    found = [record.getMessage() for record in caplog.records if "Not exact" in record.getMessage()]
    assert bool(found) is not kept
    assert kept or "model.model.calls" in found[0]


def test_a_data_loader_says_all_that_is_not_given(data: TensorDataset, net: nn.Module) -> None:
    run = edt.elastic(model=net, optimizer=torch.optim.SGD(net.parameters(), lr=0.1))

    def seen(loader: DataLoader[Any], **options: Any) -> list[list[int]]:
        found = []
        for update in run.updates(loader, **options):
            losses = []
            for x, y in update:
                update.keep("samples", (x[:, None] == data.tensors[0]).all(2).int().argmax(1))
                losses.append(F.cross_entropy(net(x), y))
                update.backward(losses[-1])
            update.step()
            found.append(update.kept("samples").tolist())
        return found

    shuffled = seen(DataLoader(data, 16, shuffle=True))
    assert [len(batch) for batch in shuffled] == [16, 16, 8]
    assert sorted(index for batch in shuffled for index in batch) == list(range(SAMPLES))
    assert not math.isnan(run.loss)
    in_order = [list(range(0, 16)), list(range(16, 32))]
    assert seen(DataLoader(data, 16, drop_last=True)) == in_order
    assert [len(batch) for batch in seen(DataLoader(data, 4), batch=20)] == [20, 20]
    batch = DataLoader(data, 7, collate_fn=lambda items: len(items))
    assert run.evaluate(batch, float) == pytest.approx((5 * 7 * 7 + 5 * 5) / SAMPLES)


def test_a_data_set_that_grows_is_seen_as_it_is(net: nn.Module) -> None:
    rows = [(torch.full((6,), float(number)), number % 3) for number in range(4)]
    run = edt.elastic(model=net, optimizer=torch.optim.SGD(net.parameters(), lr=0.1))

    def samples(**options: Any) -> list[int]:
        seen: list[int] = []
        for update in run.updates(rows, batch=4, shards=1, **options):
            for x, y in update:
                seen += x[:, 0].int().tolist()
                update.backward(F.cross_entropy(net(x), y))
            update.step()
        return list(dict.fromkeys(seen))  # the self-check computes some once more

    assert sorted(samples()) == list(range(4))
    rows += [(torch.full((6,), float(number)), 0) for number in range(4, 8)]
    first, second = samples(), samples()
    assert sorted(first) == sorted(second) == list(range(8))
    assert first != second, "each pass has its own order, also outside of epochs"
    samples(loader_workers=1)
    rows.append(rows[0])
    with pytest.raises(Unprocessable, match="length of a data set has changed"):
        samples(loader_workers=1)


def test_layers_thawed_in_the_course_of_a_training(
    data: TensorDataset, net: nn.Module, caplog: pytest.LogCaptureFixture
) -> None:
    """A layer that was frozen at the beginning has no place among the gradients."""
    layer: nn.Module = net[0]  # type: ignore[index]
    layer.requires_grad_(False)
    caplog.set_level("INFO")
    run = edt.elastic(model=net, optimizer=torch.optim.SGD(net.parameters(), lr=0.1))

    def train() -> None:
        for update in run.updates(data, batch=8, shards=2):
            layer.requires_grad_(update.number > 1)
            for x, y in update:
                update.backward(F.cross_entropy(net(x), y))
            update.step()

    with pytest.raises(Unprocessable, match=r"model\.0\.weight, model\.0\.bias needed no gradient") as refused:
        train()
    assert run.update == 3
    assert "Call elastic() before requires_grad_(False)" in refused.value.hint
    assert "2 frozen parameters, among them model.0.weight" in caplog.text


def test_variables_that_do_not_travel_are_compared() -> None:
    bad, name, text, large, other = 2, "net", "x" * 300, 1 << 300, [1]
    others = variables.of_the_script()
    assert others.items() >= {f"{FUNCTION}.bad": "2", f"{FUNCTION}.name": "'net'"}.items()
    assert not {f"{FUNCTION}.text", f"{FUNCTION}.large", f"{FUNCTION}.other"} & others.keys()
    assert variables.differing(others, others) == ""
    bad = 0
    said = variables.differing(variables.of_the_script(), others)
    assert f"not as in the others: {FUNCTION}.bad is 2, here 0. If they decide" in said
    assert [bad, name, len(text), large, other] == [0, "net", 300, 1 << 300, [1]]


class Stream(IterableDataset[int]):
    def __iter__(self) -> Any:
        return iter(range(10))


class TestWhatIsRefused:
    def test_things_without_a_state(self, net: nn.Module) -> None:
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        with pytest.raises(InvalidRequest, match=r"elastic\(stop=…\) got a list, which has no state_dict"):
            edt.elastic(model=net, optimizer=optimizer, stop=[])
        with pytest.raises(InvalidRequest, match="at least one optimizer"):
            edt.elastic(model=net)
        with pytest.raises(InvalidRequest, match="at least one model"):
            edt.elastic(optimizer=optimizer)
        with pytest.raises(InvalidRequest, match="The optimizer optimizer holds parameters of a model that"):
            edt.elastic(model=nn.Linear(1, 1), optimizer=optimizer)

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"batch": 0}, "batch must be at least 1, not 0"),
            ({"batch": 2.5}, "batch must be a whole number, not 2.5"),
            ({"batch": 4, "shards": 5}, "A batch of 4 samples cannot have 5 shards"),
            ({"sampler": [1.0]}, "sampler must be .* or 40 weights"),
            ({"steps": 0}, "steps must be at least 1"),
        ],
    )
    def test_arguments(self, data: TensorDataset, net: nn.Module, change: dict[str, Any], message: str) -> None:
        run = edt.elastic(model=net, optimizer=torch.optim.SGD(net.parameters(), lr=0.1))
        with pytest.raises((InvalidRequest, Unprocessable), match=message):
            next(run.updates(data, **{"batch": 8, **change}))

    def test_what_is_no_data_set(self, data: TensorDataset, net: nn.Module) -> None:
        run = edt.elastic(model=net, optimizer=torch.optim.SGD(net.parameters(), lr=0.1))
        with pytest.raises(InvalidRequest, match="A DataLoader with a batch_sampler"):
            next(run.updates(DataLoader(data, batch_sampler=BatchSampler(range(SAMPLES), 4, False))))
        with pytest.raises(InvalidRequest, match=r"The sampler of the DataLoader is a list"):
            next(run.updates(DataLoader(data, 4, sampler=list(range(SAMPLES)))))
        with pytest.raises(InvalidRequest, match="A Stream cannot be divided"):
            next(run.updates(DataLoader(Stream(), 4)))
        with pytest.raises(InvalidRequest, match="batch must be a whole number, not None"):
            next(run.updates(data))
        with pytest.raises(InvalidRequest, match="A Stream cannot be divided"):
            next(run.updates(Stream(), batch=4))
        with pytest.raises(InvalidRequest, match="evaluate"):
            run.evaluate(data, 3)  # type: ignore[arg-type]
        with pytest.raises(InvalidRequest, match="got 'x' from the function for 'loss'"):
            run.evaluate(data, lambda batch: {"loss": "x"})

    def test_a_loop_that_is_not_as_it_is_meant(self, data: TensorDataset, net: nn.Module) -> None:
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        run = edt.elastic(model=net, optimizer=optimizer)

        def take(body: Callable[[edt.Update], Any]) -> None:
            for update in run.updates(data, batch=8, shards=2):
                body(update)

        def compute(update: edt.Update, *, steps: bool = False) -> None:
            for x, y in update:
                update.backward(F.cross_entropy(net(x), y))
                if steps:
                    optimizer.step()

        with pytest.raises(Conflict, match="not iterated over"):
            take(lambda update: None)
        with pytest.raises(Conflict, match=r"had no update.backward\(\)"):
            take(list)
        with pytest.raises(Conflict, match=r"ended without update.step\(\)"):
            take(compute)
        with pytest.raises(Conflict, match="outside of"):
            take(lambda update: update.backward(torch.zeros(())))
        with pytest.raises(Conflict, match="comes after the loop"):
            take(lambda update: update.step())
        with pytest.raises(Unprocessable, match="changed in place"):
            take(lambda update: compute(update, steps=True))

    def test_a_sampler_that_is_wrong_about_its_length(self, data: TensorDataset, net: nn.Module) -> None:
        class Short(WeightedRandomSampler):
            def __len__(self) -> int:
                return 50

        run = edt.elastic(model=net, optimizer=torch.optim.SGD(net.parameters(), lr=0.1))
        with pytest.raises(Unprocessable, match="gave 10 samples, and its length is 50"):
            list(next(run.updates(data, batch=8, sampler=Short([1.0] * SAMPLES, 10))))
