"""Decide what a script's `train()` calls do in the driver of a validation: one call tests, the calls before it pass.

The script runs as it did in the training. The call that produced the validated weights goes over the test data. The
calls before it load their final weights, if those still exist, and train nothing.
"""

from __future__ import annotations

from dataclasses import replace

import msgspec
import torch
from torch import nn

from edt_sdk.display.validation import as_text
from edt_sdk.schemas.validation import Validated
from edt_sdk.schemas.wire.paths import JobPaths
from edt_sdk.training.calls.session import Session
from edt_sdk.training.user.payload import Training


def passes(own: Session, model: nn.Module) -> bool:
    """Return whether this `train()` call of a validation is skipped. A skipped call loads its weights."""
    validates = own.job.validates
    if validates is None:
        return False
    own.calls += 1
    if own.calls == validates.calls:
        return False
    # The training may have been deleted. The call then passes without its weights.
    theirs = JobPaths(own.job.paths.data_dir, own.job.owner, validates.training).final(own.calls - 1)
    if theirs.exists():
        model.load_state_dict(torch.load(theirs, map_location="cpu", weights_only=True))
    print(
        f"edt: train() call {own.calls} of the script is passed over; call {validates.calls} is validated.", flush=True
    )
    return True


def meant(own: Session, training: Training) -> Training:
    """Return the training the workers run. In a validation this is one pass over the test data."""
    if own.job.validates is None:
        return training
    options = replace(training.options, epochs=1, validation_freq=1, checkpoint_freq=0)
    return replace(training, options=options, callbacks=(), lr_scheduler=None, save_to_onnx=False)


def tell(own: Session) -> None:
    """Print the result of a validation. In a training, print nothing."""
    if own.job.validates is None:
        return
    result = msgspec.json.decode(own.job.paths.validation.read_bytes(), type=Validated)
    print(as_text(result), flush=True)
