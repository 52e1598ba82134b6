"""Describe what a version takes and returns, with examples: the file `signature.json` next to its weights.

A training writes it at its end, from the first samples of its data. Where it is missing, only the code of a version
knows what the version takes.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path

import msgspec

from edt_sdk.schemas.serving.replica_channel import Signature

SIGNATURE_FILE = "signature.json"
# The datatypes of the Open Inference Protocol, with numpy's names. The protocol has BYTES too, for texts.
DATATYPES = {
    "BOOL": "bool",
    **{f"{prefix}INT{bits}": f"{prefix.lower()}int{bits}" for prefix in ("U", "") for bits in (8, 16, 32, 64)},
    **{f"FP{bits}": f"float{bits}" for bits in (16, 32, 64)},
}
DATATYPE_OF = {numpy: datatype for datatype, numpy in DATATYPES.items()}


class FeatureLayout(StrEnum):
    """The ways in which the features of a batch come to a model, as its data set and collate function made them.

    Attributes:
        TENSOR: one tensor.
        TUPLE, LIST: a sequence of tensors, as one argument.
        DICT: a dictionary of tensors, as one argument.
    """

    TENSOR = "tensor"
    TUPLE = "tuple"
    LIST = "list"
    DICT = "dict"


class Example(msgspec.Struct, frozen=True):
    """One row, alone in its batch, and the answer to it. Each array is a file of numpy's format `.npy`, by name."""

    inputs: dict[str, bytes]
    outputs: dict[str, bytes]


class Examples(msgspec.Struct, frozen=True, kw_only=True):
    """What a version takes and returns. JSON holds the arrays in base64."""

    signature: Signature
    layout: FeatureLayout = FeatureLayout.TENSOR
    examples: tuple[Example, ...] = ()

    @classmethod
    def read(cls, path: Path) -> Examples:
        """Return what a file describes. Raises OSError, and msgspec.DecodeError where its content is something else."""
        return msgspec.json.decode(path.read_bytes(), type=cls)
