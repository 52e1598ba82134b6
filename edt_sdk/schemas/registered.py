"""What of the catalogue a job uses, and which training it validates, as it was when the job was submitted.

Written by the server alone; what a client sends here is thrown away. A data set or model of the same name that comes
later is another one, and changes nothing of the job.
"""

from __future__ import annotations

from typing import Any

import msgspec

from edt_sdk.schemas.validation import Validates


class Registered(msgspec.Struct, frozen=True, kw_only=True):
    """Ids and settings.

    Attributes:
        model: id of the model it is a training of, "" for a job of its own; `model_name` what people call it.
        dataset: id of the data set, "" for none.
        copied: the data set's files are the catalogue's copy, which the job needs until it has ended.
        train, test, val: parts of the data set, relative to its folder, "" for all of it.
        hyperparameters: what `pth_parameter_mgr` finds; None for a job without.
        console: the script takes `--train_dir` and `--weights`, as models of WMLA's console do.
        weights: it begins with weights that were put into its folder: the model's own, or those that it validates.
        validates: what it validates, None for a training.
    """

    model: str = ""
    model_name: str = ""
    dataset: str = ""
    copied: bool = False
    train: str = ""
    test: str = ""
    val: str = ""
    hyperparameters: dict[str, Any] | None = None
    console: bool = False
    weights: bool = False
    validates: Validates | None = None
