"""Decide what a script's `train()` calls do in a replica: one call serves its model, and the calls before it pass.

The script runs as it did in the training, up to the call that made the weights of the version. That call does not
return: its model loads these weights and answers requests.
"""

from __future__ import annotations

from torch import nn

from edt_sdk.training.calls.session import Session


def passes(own: Session, model: nn.Module) -> bool:
    """Return whether this `train()` call of a replica is skipped. It does not return where the model is served."""
    serves = own.job.serves
    if serves is None or own.takes_over is None:
        return False
    own.calls += 1
    if own.calls == serves.calls:
        own.takes_over(model)
    print(f"edt: train() call {own.calls} of the script is passed over; call {serves.calls} is served.", flush=True)
    return True
