"""The options of `edt submit` that say what runs: a framework, a command in place of the script, and the data."""

from __future__ import annotations

import argparse
from typing import Any

from edt_sdk.schemas.frameworks import Framework


def add(submit: argparse.ArgumentParser) -> None:
    """Add them to the parser of the verb."""
    submit.add_argument(
        "--framework",
        default=Framework.EDT.value,
        metavar="F",
        help="edtPyTorch (default): the elastic engine; PyTorch: the script as it is; distPyTorch: the script once for "
        "each slot, with RANK and WORLD_SIZE; torchrun: a PyTorch Elastic script, with torchrun's options behind --",
    )
    submit.add_argument("--command", metavar="CMD", help="run this in a shell, in the folder, in place of the script")
    submit.add_argument(
        "--data-path", default="", metavar="DIR", help="DATA_DIR of the job, relative to the server's data folder"
    )
    submit.add_argument("--dataset", default="", metavar="NAME", help="a registered data set, see `edt dataset list`")


def chosen(arguments: argparse.Namespace) -> dict[str, Any]:
    """What they say, as keyword arguments of `Client.submit`."""
    return {
        "framework": arguments.framework,
        "command": arguments.command or (),
        "data_path": arguments.data_path,
        "dataset": arguments.dataset,
    }
