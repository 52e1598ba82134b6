"""Set torch up for a mode, and log each operator that cannot be deterministic once.

Mode `exact` requests deterministic kernels everywhere. On a GPU it also fixes the cuBLAS workspace, and turns off
cuDNN's choice of algorithms by timing and TF32 (unverified: our tests have no GPU). An operator without a deterministic
kernel still runs: no sample is lost, only the last bits may differ between runs. Mode `fast` keeps torch's defaults.
"""

from __future__ import annotations

import logging
import os
import re
import warnings
from typing import Any

import torch

log = logging.getLogger(__name__)

# Torch's warnings, for its own kernels and for those of CUDA's libraries.
_WARNING = re.compile(r"^(?P<operator>.+?) does not have a deterministic implementation|^Deterministic behavior was")


def configure(mode: str) -> None:
    """Set this process up for a mode. Call it before CUDA is touched."""
    if mode != "exact":
        return
    # CUDA documents this as the condition for deterministic cuBLAS. It must be set before cuBLAS starts.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    # Warn and do not fail: an operator without a deterministic kernel must still train.
    torch.use_deterministic_algorithms(True, warn_only=True)
    # Filling every new tensor with NaN finds bugs, but costs a pass over memory each time.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    torch.backends.cudnn.benchmark = False
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cuda.matmul.allow_tf32 = False
    _say_once()


def _say_once() -> None:
    """Turn torch's warnings into one log line per operator, and pass all other warnings on."""
    said: set[str] = set()
    show = warnings.showwarning

    def showwarning(message: Warning | str, *place: Any, **more: Any) -> None:
        found = _WARNING.match(str(message))
        if found is None:
            show(message, *place, **more)
            return
        operator = found["operator"] or "A matrix product of cuBLAS"
        if operator not in said:
            said.add(operator)
            log.warning(
                "%s has no deterministic implementation: the weights may differ in the last bits between runs; "
                "no sample is lost.",
                operator,
            )

    warnings.showwarning = showwarning
