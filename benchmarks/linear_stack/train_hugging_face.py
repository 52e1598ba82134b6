"""The same training by Hugging Face's Trainer."""

import argparse

from network import Rows, add_options, loss, network, optimizer
from torch import nn
from torch.optim.lr_scheduler import ConstantLR
from transformers import TrainingArguments

from edt_sdk.transformers import ElasticTrainer

options = add_options(argparse.ArgumentParser()).parse_args()


class Stack(nn.Module):
    """What the Trainer wants of a model."""

    def __init__(self):
        super().__init__()
        self.net = network(options.width, options.layers)

    def forward(self, rows, labels):
        output = self.net(rows)
        return {"loss": loss(output, labels), "logits": output}


class Named(Rows):
    """The samples as dictionaries."""

    def __getitem__(self, index):
        rows, labels = super().__getitem__(index)
        return {"rows": rows, "labels": labels}


batch = options.shards * options.samples
model = Stack()
steps = optimizer(model)
ElasticTrainer(
    model=model,
    args=TrainingArguments(
        "out", num_train_epochs=1, max_grad_norm=0, save_strategy="no", report_to="none", logging_steps=options.updates
    ),
    train_dataset=Named(options.updates * batch, options.rows, options.width),
    optimizers=(steps, ConstantLR(steps, factor=1.0)),
    global_batch_size=batch,
    shards=options.shards,
).train()
