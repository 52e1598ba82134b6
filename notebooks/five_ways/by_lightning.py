"""A LightningModule, with a strategy."""

import lightning as L
import torch.nn.functional as F
from problem import BATCH, EPOCHS, SHARDS, datasets, network, optimizer_of
from torch.utils.data import DataLoader

from edt_sdk.lightning import ElasticStrategy


class Reader(L.LightningModule):
    """Knows nothing of workers."""

    def __init__(self):
        super().__init__()
        self.net = network()

    def training_step(self, batch, number):
        images, labels = batch
        return F.cross_entropy(self.net(images), labels)

    def configure_optimizers(self):
        return optimizer_of(self)


train, _ = datasets()
trainer = L.Trainer(
    max_epochs=EPOCHS,
    accelerator="cpu",
    strategy=ElasticStrategy(shards=SHARDS),
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
)
trainer.fit(Reader(), DataLoader(train, batch_size=BATCH, shuffle=True))
