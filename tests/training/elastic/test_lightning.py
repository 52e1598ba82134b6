"""The strategy for Lightning's Trainer outside a job: checkpoints, and what is refused with the line that mends it."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint, StochasticWeightAveraging
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, SequentialSampler, TensorDataset

from edt_sdk.lightning import ElasticStrategy
from edt_sdk.schemas.errors import EdtError
from tests.training.elastic.lightning_programs import Classifier, Gan, numbers, whole

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
