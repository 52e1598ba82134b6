"""A Trainer of Hugging Face, with another class and the size of the batch."""

import torch.nn.functional as F
from problem import BATCH, EPOCHS, SHARDS, datasets, network, optimizer_of
from torch import nn
from torch.optim.lr_scheduler import ConstantLR
from transformers import TrainingArguments

from edt_sdk.transformers import ElasticTrainer


class Reader(nn.Module):
    """What the Trainer wants of a model: a dictionary with the loss."""

    def __init__(self):
        super().__init__()
        self.net = network()

    def forward(self, images, labels):
        scores = self.net(images)
        return {"loss": F.cross_entropy(scores, labels), "logits": scores}


reader = Reader()
optimizer = optimizer_of(reader)
train, _ = datasets()
trainer = ElasticTrainer(
    model=reader,
    args=TrainingArguments(
        "digits", num_train_epochs=EPOCHS, max_grad_norm=0, seed=0, save_strategy="no", report_to="none"
    ),
    train_dataset=[{"images": image, "labels": label} for image, label in train],
    optimizers=(optimizer, ConstantLR(optimizer, factor=1.0)),
    global_batch_size=BATCH,
    shards=SHARDS,
)
trainer.train()
