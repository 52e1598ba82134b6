"""The strategy for Lightning's Trainer outside a job: checkpoints, and what is refused with the line that mends it."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint, StochasticWeightAveraging
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, SequentialSampler, TensorDataset

from edt_sdk.elastic.sides import Alone, Among
from edt_sdk.lightning import ElasticStrategy
from edt_sdk.schemas.errors import EdtError
from edt_sdk.training.state.state import State
from tests.training.elastic.lightning_programs import Classifier, Gan, fitted, numbers, whole

pytestmark = pytest.mark.filterwarnings("ignore")  # Lightning's own advice

DATA = TensorDataset(numbers(40, 6), whole(40, below=3))
QUIET: dict[str, Any] = {
    "accelerator": "cpu",
    "enable_progress_bar": False,
    "enable_model_summary": False,
    "logger": False,
    "enable_checkpointing": False,
}


def trainer(**options: Any) -> L.Trainer:
    return L.Trainer(**{**QUIET, "strategy": ElasticStrategy(shards=4), "max_epochs": 1, **options})


def weights(module: nn.Module) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in module.parameters()])


class Small(Classifier):
    def configure_optimizers(self) -> Any:
        return torch.optim.AdamW(self.parameters(), lr=self.hparams.rate)


@pytest.mark.parametrize(("samples", "shards", "updates"), [(13, 4, 3), (13, 1, 3), (9, 4, 2), (12, 2, 3)])
def test_each_sample_is_trained_once_an_epoch_also_one_that_is_left_over(
    samples: int, shards: int, updates: int
) -> None:
    seen: list[int] = []

    class Counting(Small):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            seen.extend(batch[2].tolist())
            return super().training_step(batch[:2], batch_idx)

    data = TensorDataset(numbers(samples, 6), whole(samples, below=3), torch.arange(samples))
    training = trainer(strategy=ElasticStrategy(shards=shards, seed=1), max_epochs=1)
    training.fit(Counting(0.05), DataLoader(data, 4, shuffle=True))
    # A single sample joins the update before it, but for parts of one sample.
    assert training.global_step == (updates + 1 if (samples % 4, shards) == (1, 4) else updates)
    assert set(seen) == set(range(samples))
    largest = -(-4 // shards) + 1
    assert len(seen) <= samples + largest, "the self-check computes a part again"


def test_a_checkpoint_goes_on_here_and_in_stock_lightning(tmp_path: Path) -> None:
    def saved(**options: Any) -> L.Trainer:
        callback = ModelCheckpoint(tmp_path, filename="{epoch}-{step}", save_top_k=-1, every_n_train_steps=3)
        return trainer(max_epochs=2, enable_checkpointing=True, callbacks=[callback], **options)

    torch.manual_seed(1)
    module, loader = Small(0.05), DataLoader(DATA, 12, shuffle=True)
    saved().fit(module, loader)
    path = tmp_path / "epoch=1-step=6.ckpt"  # in the middle of the second epoch
    loaded = Small.load_from_checkpoint(path)
    assert loaded.hparams.rate == 0.05
    assert not torch.equal(weights(loaded), weights(module))
    again = Small(0.05)
    saved().fit(again, loader, ckpt_path=path)
    assert torch.equal(weights(again), weights(module))
    stock = saved(strategy="auto")
    stock.fit(Small(0.05), loader, ckpt_path=path)
    assert stock.global_step == 8


def test_a_validation_and_a_test_see_all_data() -> None:
    module = Small()
    ours = trainer()
    ours.fit(module, DataLoader(DATA, 12), DataLoader(DATA, 7))
    module.test_step = module.validation_step
    found = ours.test(module, DataLoader(DATA, 7), verbose=False)[0]
    assert found["val_loss"] == pytest.approx(float(ours.callback_metrics["val_loss"]))
    with torch.no_grad():
        loss = nn.functional.cross_entropy(module.net(DATA.tensors[0]), DATA.tensors[1])
    assert found["val_loss"] == pytest.approx(float(loss), rel=1e-5)


class Misses(Alone):
    """Misses the end of update 3, the last of an epoch, when others are at update 5. Their state is that of a run."""

    there: State | None = None
    missed = False

    def ready(self) -> Among:
        if self.current.updates == 5 and Misses.there is None:
            there = self.current.capture()
            own = {name: tensor.clone() for name, tensor in there.own.items()}
            Misses.there = replace(there, own=own, tensors=[tensor.clone() for tensor in there.tensors])
        return super().ready()

    def attempt(self) -> AbstractContextManager[None]:
        self.broke = self.current.updates == 3 and Misses.there is not None and not self.missed
        return super().attempt()

    def recover(self) -> Among:
        assert Misses.there is not None
        self.missed = True
        self.current.restore(Misses.there)
        return self._among


@pytest.mark.parametrize("name", ["classifier", "gan"])
def test_a_worker_that_missed_the_end_of_an_update_goes_on_where_the_others_are(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two members of a real group cannot be made to differ on purpose: the one that is behind is alone here."""
    monkeypatch.setattr("edt_sdk.elastic.begin.Alone", Misses)
    monkeypatch.setattr(Misses, "there", None)
    first, found = fitted(name, tmp_path / "first")
    second, again = fitted(name, tmp_path / "second")
    assert second.strategy.run._side.missed
    assert torch.equal(weights(found), weights(again))
    assert first.callback_metrics == second.callback_metrics
    assert (first.global_step, first.current_epoch) == (second.global_step, second.current_epoch)


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Any:
        return iter(DATA)


class OwnBatches(BatchSampler):
    pass


class Looks(L.Callback):
    def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        print(batch[0])


class WithoutLoss(Small):
    def training_step(self, batch: Any, batch_idx: int) -> None:
        return None


class WithLbfgs(Small):
    def configure_optimizers(self) -> Any:
        return torch.optim.LBFGS(self.parameters())


class Accumulates(Gan):
    def training_step(self, batch: Any) -> None:
        self.manual_backward(self.generator(batch[1]).mean())


class ClipsParts(Gan):
    def training_step(self, batch: Any) -> None:
        self.manual_backward(self.generator(batch[1]).mean())
        nn.utils.clip_grad_norm_(self.generator.parameters(), 0.001)
        self.optimizers()[0].step()


class DataDecides(Gan):
    def training_step(self, batch: Any) -> None:
        loss = self.generator(batch[1]).mean()
        self.manual_backward(loss)
        self.optimizers()[int(loss > 0)].step()


GAN_DATA = TensorDataset(numbers(40, 6), numbers(40, 4, seed=7))


@pytest.mark.parametrize(
    ("options", "make", "loader", "message"),
    [
        ({"devices": 2}, Small, None, "devices=1"),
        ({"accumulate_grad_batches": 3}, Small, None, "3 times the batch size"),
        ({"reload_dataloaders_every_n_epochs": 1}, Small, None, "reload_dataloaders_every_n_epochs"),
        ({"overfit_batches": 2}, Small, None, "Subset"),
        ({"max_time": "00:01:00:00"}, Small, None, "max_steps"),
        ({"precision": "64-true"}, Small, None, "bf16-mixed"),
        ({"callbacks": [StochasticWeightAveraging(0.1)]}, Small, None, "WeightAveraging"),
        ({"callbacks": [Looks()]}, Small, None, "no batch"),
        # The compiler alone takes ten seconds to import.
        pytest.param({}, lambda: torch.compile(Small()), None, "Compile the networks", marks=pytest.mark.long),
        ({}, WithoutLoss, None, "no loss"),
        ({}, WithLbfgs, None, "LBFGS"),
        ({}, Small, DataLoader(Stream(), 12), "Stream"),
        ({}, Small, [DataLoader(DATA, 12)] * 2, "one torch.utils.data.DataLoader"),
        ({}, Small, DataLoader(DATA, batch_sampler=OwnBatches(SequentialSampler(DATA), 4, False)), "batch_sampler"),
        ({}, Small, DataLoader(DATA, 12, worker_init_fn=print), "worker_init_fn"),
        ({}, Accumulates, DataLoader(GAN_DATA, 12), "multiple of the batch size"),
        ({}, ClipsParts, DataLoader(GAN_DATA, 12), "self.clip_gradients"),
        ({}, DataDecides, DataLoader(GAN_DATA, 12), "same steps"),
    ],
)
def test_what_cannot_be_computed_in_parts_is_refused(
    options: dict[str, Any], make: Callable[[], Any], loader: Any, message: str
) -> None:
    with pytest.raises(EdtError) as refused:
        trainer(**options).fit(make(), DataLoader(DATA, 12) if loader is None else loader)
    assert message in f"{refused.value} {refused.value.hint}"


def test_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lightning", None)
    monkeypatch.delitem(sys.modules, "edt_sdk.lightning")
    with pytest.raises(ImportError, match=r"pip install jupyter-edt\[lightning\]"):
        importlib.import_module("edt_sdk.lightning")
