"""The same training as a LightningModule."""

import argparse

import lightning as L
from network import Rows, add_options, loss, network, optimizer
from torch.utils.data import DataLoader

from edt_sdk.lightning import ElasticStrategy

options = add_options(argparse.ArgumentParser()).parse_args()


class Stack(L.LightningModule):
    """Knows nothing of workers."""

    def __init__(self):
        super().__init__()
        self.net = network(options.width, options.layers)

    def training_step(self, batch, number):
        rows, labels = batch
        return loss(self.net(rows), labels)

    def configure_optimizers(self):
        return optimizer(self)


batch = options.shards * options.samples
data = DataLoader(Rows(options.updates * batch, options.rows, options.width), batch_size=batch, shuffle=True)
trainer = L.Trainer(
    max_epochs=1,
    accelerator="cpu",
    strategy=ElasticStrategy(shards=options.shards),
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
)
trainer.fit(Stack(), data)
