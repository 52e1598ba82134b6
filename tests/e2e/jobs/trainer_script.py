"""A Trainer of Hugging Face under torchrun, which accumulates as many micro-batches as its process is given.

Arguments: a folder. It waits for a file `open-<epoch>` there before each epoch, and writes its losses into `log.jsonl`.
"""

import json
import os
import sys
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn
from transformers import Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

EPOCHS, SAMPLES, MICRO_BATCH = 4, 480, 4
folder = Path(sys.argv[1])


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 3))

    def forward(self, points, labels):
        scores = self.layers(points)
        return {"loss": F.cross_entropy(scores, labels), "logits": scores}


class Told(TrainerCallback):
    def on_epoch_begin(self, args, state, control, **_):
        while not (folder / f"open-{int(state.epoch)}").exists():
            time.sleep(0.05)

    def on_log(self, args, state, control, logs=None, **_):
        if state.is_world_process_zero and "loss" in logs:
            line = {"step": state.global_step, "loss": logs["loss"], "world": int(os.environ["WORLD_SIZE"])}
            with (folder / "log.jsonl").open("a") as file:
                file.write(json.dumps(line) + "\n")


torch.manual_seed(0)
points = torch.randn(SAMPLES, 10)
labels = (points[:, 0] > 0).long() + (points[:, 1] > 0).long()
net = Net()
out = str(folder / "out")
trainer = Trainer(
    net,
    TrainingArguments(
        out,
        num_train_epochs=EPOCHS,
        per_device_train_batch_size=MICRO_BATCH,
        gradient_accumulation_steps=int(os.environ["EDT_UNITS_HERE"]),
        learning_rate=0.01,
        logging_steps=1,
        save_steps=5,
        save_total_limit=2,
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
    ),
    train_dataset=[{"points": each, "labels": label} for each, label in zip(points, labels, strict=True)],
    callbacks=[Told()],
)
trainer.train(resume_from_checkpoint=get_last_checkpoint(out) if Path(out).exists() else None)
