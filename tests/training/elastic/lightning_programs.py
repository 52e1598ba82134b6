"""Real programs of Lightning: each a module as Lightning's users write it, with its data and callbacks.

Run by tests as the main script of a job, and alone: `lightning_programs.py FOLDER NAME`. What differs from stock
Lightning is one import and `strategy=ElasticStrategy(…)`.
"""

from __future__ import annotations

import hashlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import lightning as L
import torch
import torch.nn.functional as F
from lightning.pytorch.callbacks import EarlyStopping, EMAWeightAveraging, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, Sampler, TensorDataset
from torchmetrics import MeanMetric
from torchmetrics.classification import MulticlassAccuracy, MulticlassF1Score

from edt_sdk.lightning import ElasticStrategy
from edt_sdk.training.sampling.order import Order

SEED, BATCH, SHARDS, EPOCHS = 3, 12, 4, 3


def numbers(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def whole(*shape: int, below: int, seed: int = 2) -> Tensor:
    return torch.randint(0, below, shape, generator=torch.Generator().manual_seed(seed))


class EngineOrder(Sampler[int]):
    """The engine's order, for stock Lightning."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[int]:
        order = Order(self.length, (BATCH,), BATCH, SEED, EPOCHS)
        for update in range(order.updates_per_epoch):
            yield from order.shards(self.epoch, update)[0].tolist()


# --- programs ---------------------------------------------------------------------------------------------------------


class Classifier(L.LightningModule):
    """A schedule, metrics, logs, early stopping, and a hyperparameter."""

    def __init__(self, rate: float = 0.02) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.net = nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.Tanh(), nn.Linear(8, 3))
        self.train_f1 = MulticlassF1Score(3)
        self.val_accuracy = MulticlassAccuracy(3)

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        x, y = batch
        outputs = self.net(x)
        loss = F.cross_entropy(outputs, y)
        self.train_f1(outputs, y)
        self.log("train_f1", self.train_f1, on_step=True, on_epoch=True)
        self.log("train_loss", loss, on_step=True, on_epoch=True, prog_bar=True)
        self.log("largest", outputs.detach().max(), reduce_fx="max", on_step=False, on_epoch=True)
        return loss

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        x, y = batch
        outputs = self.net(x)
        self.val_accuracy(outputs, y)
        self.log_dict({"val_loss": F.cross_entropy(outputs, y), "val_accuracy": self.val_accuracy})

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.hparams.rate)
        schedule = torch.optim.lr_scheduler.OneCycleLR(
            optimizer, 0.05, total_steps=self.trainer.estimated_stepping_batches
        )
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


class Gan(L.LightningModule):
    """As in Lightning's documentation. Its noise is part of the data, so that it can be compared."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.generator = nn.Sequential(nn.Linear(4, 12), nn.Tanh(), nn.Linear(12, 6))
        self.discriminator = nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 1))

    def adversarial_loss(self, judged: Tensor, real: float) -> Tensor:
        return F.binary_cross_entropy_with_logits(judged, torch.full_like(judged, real))

    def training_step(self, batch: Any) -> None:
        real, noise = batch
        optimizer_g, optimizer_d = self.optimizers()

        self.toggle_optimizer(optimizer_g)
        self.generated = self.generator(noise)
        g_loss = self.adversarial_loss(self.discriminator(self.generated), 1.0)
        self.log("g_loss", g_loss, prog_bar=True)
        self.manual_backward(g_loss)
        optimizer_g.step()
        optimizer_g.zero_grad()
        self.untoggle_optimizer(optimizer_g)

        self.toggle_optimizer(optimizer_d)
        real_loss = self.adversarial_loss(self.discriminator(real), 1.0)
        fake_loss = self.adversarial_loss(self.discriminator(self.generated.detach()), 0.0)
        d_loss = (real_loss + fake_loss) / 2
        self.log("d_loss", d_loss, prog_bar=True)
        self.manual_backward(d_loss)
        optimizer_d.step()
        optimizer_d.zero_grad()
        self.untoggle_optimizer(optimizer_d)

    def configure_optimizers(self) -> Any:
        return (
            torch.optim.Adam(self.generator.parameters(), lr=0.01, betas=(0.5, 0.99)),
            torch.optim.Adam(self.discriminator.parameters(), lr=0.01, betas=(0.5, 0.99)),
        )


class Frequencies(L.LightningModule):
    """Two optimizers, one at each third batch, with clipping, a schedule stepped by hand, one loss for two steps."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.body = nn.Sequential(nn.Linear(6, 8), nn.Tanh())
        self.head, self.other = nn.Linear(8, 3), nn.Linear(8, 2)
        self.mean_loss = MeanMetric()
        self.steps = 0

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        x, y, target = batch
        often, seldom = self.optimizers()
        often.zero_grad()
        seldom.zero_grad()
        hidden = self.body(x)
        loss = F.cross_entropy(self.head(hidden), y) + 0.1 * F.mse_loss(self.other(hidden), target)
        self.manual_backward(loss)
        self.clip_gradients(often, gradient_clip_val=0.5, gradient_clip_algorithm="norm")
        often.step()
        if batch_idx % 3 == 0:
            seldom.step()
            self.lr_schedulers().step()
        self.steps += 1
        self.log("loss", self.mean_loss(loss.detach().expand(len(x))), on_epoch=True)
        self.log("steps", float(self.steps))
        return loss

    def configure_optimizers(self) -> Any:
        often = torch.optim.AdamW([*self.body.parameters(), *self.head.parameters()], lr=0.02)
        seldom = torch.optim.SGD(self.other.parameters(), lr=0.5, momentum=0.9)
        return [often, seldom], [torch.optim.lr_scheduler.StepLR(seldom, 1, 0.5)]


class Autoencoder(L.LightningModule):
    """A VAE whose KL term grows with a buffer. It draws noise."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.decoder, self.drop = nn.Linear(6, 4), nn.Linear(2, 6), nn.Dropout(0.2)
        self.register_buffer("anneal", torch.zeros(()))

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        (x,) = batch
        mean, spread = self.encoder(self.drop(x)).chunk(2, 1)
        z = mean + torch.randn_like(mean) * (0.5 * spread).exp()
        divergence = 0.5 * (mean.square() + spread.exp() - spread - 1).sum(1).mean()
        return F.mse_loss(self.decoder(z), x) + self.anneal * divergence

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        self.anneal += 0.05

    def configure_optimizers(self) -> Any:
        return torch.optim.Adam(self.parameters(), lr=0.02)


class LanguageModel(L.LightningModule):
    """Padding: the loss is a mean over tokens, whose number `training_step` returns as the weight."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Embedding(17, 12), nn.Linear(12, 12), nn.GELU(), nn.Linear(12, 17))

    def training_step(self, batch: Any, batch_idx: int) -> dict[str, Any]:
        x, y = batch
        loss = F.cross_entropy(self.net(x).flatten(0, 1), y.flatten())
        return {"loss": loss, "weight": (y != -100).sum()}

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.SGD(self.parameters(), lr=0.5, momentum=0.9)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)]


def padded() -> TensorDataset:
    tokens = whole(40, 9, below=17)
    labels = torch.where(torch.arange(8) < whole(40, below=7)[:, None] + 2, tokens[:, 1:], -100)
    return TensorDataset(tokens[:, :-1], labels)


Made = tuple[Callable[[], L.LightningModule], Dataset[Any], Dataset[Any] | None, list[L.Callback]]


def made(name: str, folder: Path) -> Made:
    """Return a program's module, its data of training and validation, and its callbacks."""
    labelled = TensorDataset(numbers(40, 6), whole(40, below=3))
    programs: dict[str, Made] = {
        "classifier": (
            Classifier, labelled, TensorDataset(numbers(30, 6, seed=3), whole(30, below=3, seed=4)),
            [EarlyStopping("val_loss", patience=5), ModelCheckpoint(folder, monitor="val_loss", save_top_k=-1)],
        ),
        "gan": (Gan, TensorDataset(numbers(40, 6), numbers(40, 4, seed=7)), None, []),
        "frequencies": (Frequencies, TensorDataset(*labelled.tensors, numbers(40, 2, seed=4)), None, []),
        "autoencoder": (Autoencoder, TensorDataset(numbers(40, 6)), None, []),
        "language_model": (LanguageModel, padded(), None, [EMAWeightAveraging(decay=0.9)]),
    }  # fmt: skip
    return programs[name]


EQUAL = ("classifier", "gan", "frequencies", "language_model")
NAMES = (*EQUAL, "autoencoder")


class Hold(L.Callback):
    """Waits after an update while the file `hold-<number>` is there, or in its last step for `hold-<number>-step`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def on_train_batch_end(self, trainer: L.Trainer, *_: Any) -> None:
        self.wait(str(trainer.fit_loop.total_batch_idx))

    def on_before_optimizer_step(self, trainer: L.Trainer, _: Any, optimizer: Any) -> None:
        if optimizer is trainer.optimizers[-1]:
            self.wait(f"{trainer.fit_loop.total_batch_idx}-step")

    def wait(self, place: str) -> None:
        (self.folder / f"at-{os.getpid()}").write_text(place)
        deadline = time.monotonic() + 180
        while (self.folder / f"hold-{place}").exists() and time.monotonic() < deadline:
            time.sleep(0.01)


def fitted(name: str, folder: Path, *, plain: bool = False) -> tuple[L.Trainer, L.LightningModule]:
    """Train a program, with stock Lightning or this package."""
    torch.set_num_threads(1)
    torch.manual_seed(11)
    make, data, validation, callbacks = made(name, folder / "checkpoints")
    module = make()
    folder.mkdir(exist_ok=True)
    trainer = L.Trainer(
        strategy="auto" if plain else ElasticStrategy(shards=SHARDS, seed=SEED),
        max_epochs=EPOCHS, accelerator="cpu", callbacks=[*callbacks, Hold(folder)], log_every_n_steps=1,
        gradient_clip_val=1.0 if module.automatic_optimization else None, logger=CSVLogger(folder, "logs"),
        enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    order: dict[str, Any] = {"sampler": EngineOrder(len(data))} if plain else {"shuffle": True}  # type: ignore[arg-type]
    trainer.fit(module, DataLoader(data, BATCH, **order), None if validation is None else DataLoader(validation, 20))
    return trainer, module


def hash_of(module: nn.Module) -> str:
    digest = hashlib.sha256()
    for tensor in module.state_dict().values():
        digest.update(tensor.cpu().numpy().tobytes())
    return digest.hexdigest()


def main(folder: Path, name: str) -> None:
    """Train a program, and write what it ends with: weights, and the values that Lightning's callbacks see."""
    trainer, module = fitted(name, folder)
    seen = {key: float(value) for key, value in sorted(trainer.callback_metrics.items())}
    stops = {each.state_key: each.state_dict() for each in trainer.callbacks if isinstance(each, EarlyStopping)}
    (folder / f"end-{os.getpid()}").write_text(f"{hash_of(module)} {trainer.global_step} {seen} {stops}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
