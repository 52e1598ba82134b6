"""The same training as a loop of one's own."""

import argparse

from network import Rows, add_options, loss, network, optimizer

import edt_sdk.elastic as edt

options = add_options(argparse.ArgumentParser()).parse_args()
batch = options.shards * options.samples
model = network(options.width, options.layers)
run = edt.elastic(model=model, optimizer=optimizer(model))
for update in run.updates(
    Rows(options.updates * batch, options.rows, options.width), batch=batch, shards=options.shards
):
    for rows, labels in update:
        update.backward(loss(model(rows), labels))
    update.step()
