"""Keep what a job uses of the catalogue, and the training it validates, as of its submission.

Only the server writes it. What a client sends here is discarded. A data set or model that gets the same name later is
a different one and does not affect the job.
"""

from __future__ import annotations

from typing import Any

import msgspec

from edt_sdk.schemas.validation import Validates


class Registered(msgspec.Struct, frozen=True, kw_only=True):
    """Ids and settings of catalogue entries.

    Attributes:
        model: id of the model it trains, "" for none. `model_name` is the model's name.
        dataset: id of the data set, "" for none.
        copied: the data set's files are the catalogue's copy, which the job needs until it has ended.
        train, test, val: parts of the data set, relative to its folder, "" for the whole set.
        hyperparameters: what `pth_parameter_mgr` finds. None for a job without.
        console: the script takes `--train_dir` and `--weights`, as models of WMLA's console do.
        weights: it starts with weights in its folder: the model's own, or those to validate.
        validates: the training it validates, None for a training.
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
