"""Real programs with loops of their own: each as its ecosystem writes it, and as it is with `edt_sdk.elastic`.

Run by tests as the main script of a job, and alone: `python -m tests.training.elastic.programs FOLDER NAME`. A program
is a generator that yields after each update, so that tests can hold it there, and its models at the end.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

from tests.training.elastic.programs import generating, pictures, playing, steps, text
from tests.training.elastic.programs.loop import SHARDS, Program

__all__ = ["DRAWING", "EQUAL", "PROGRAMS", "SHARDS", "begin", "run"]

EQUAL = (
    text.language_model, steps.two_tasks, steps.muon_and_adamw, steps.low_rank, pictures.average_of_weights,
    text.packed_lstm, text.word_vectors, generating.critic_and_generator, pictures.contrast, pictures.segmentation,
    pictures.distillation, pictures.triplets, pictures.two_phases, steps.mixture_of_experts, steps.sharpness_aware,
    steps.gradual_unfreezing, steps.physics, steps.graph_network, generating.gradient_penalty, text.tabular_stream,
)  # fmt: skip
# These draw in the forward pass, or round it, and no plain loop does the same: they are compared with themselves.
DRAWING = (
    generating.diffusion, generating.autoencoder, playing.actor_and_critic, steps.half_precision, playing.deep_q,
    text.sequence_to_sequence, pictures.resnet, pictures.timm_resnet,
)  # fmt: skip
PROGRAMS: dict[str, Callable[[bool], Program]] = {each.__name__: each for each in (*EQUAL, *DRAWING)}


def begin(name: str, *, plain: bool = False) -> Program:
    """Return a program before its first update."""
    torch.set_num_threads(1)
    torch.manual_seed(11)
    return PROGRAMS[name](plain)


def run(folder: Path, name: str) -> None:
    """Run a program, and wait after an update while the file `hold-<number>` is there."""
    for number, found in enumerate(begin(name)):
        models = found
        (folder / f"at-{os.getpid()}").write_text(str(number))
        deadline = time.monotonic() + 180
        while (folder / f"hold-{number}").exists() and time.monotonic() < deadline:
            time.sleep(0.01)
    (folder / f"end-{os.getpid()}").write_text(hash_of(models))


def hash_of(models: tuple[nn.Module, ...]) -> str:
    """Return the SHA-256 over all weights and buffers."""
    digest = hashlib.sha256()
    for model in models:
        for tensor in model.state_dict().values():
            digest.update(tensor.numpy().tobytes())
    return digest.hexdigest()
