"""The loop stays; four of its lines are others."""

import torch.nn.functional as F
from problem import BATCH, EPOCHS, SHARDS, datasets, network, optimizer_of

import edt_sdk.elastic as edt

net = network()
train, _ = datasets()
run = edt.elastic(model=net, optimizer=optimizer_of(net))
for _ in run.epochs(EPOCHS):
    for update in run.updates(train, batch=BATCH, shards=SHARDS):
        for images, labels in update:
            update.backward(F.cross_entropy(net(images), labels))
        update.step()
