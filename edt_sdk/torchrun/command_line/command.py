"""Parse `edt submit --framework torchrun -- OPTIONS [SCRIPT] ARG …`: everything after `--` is for `torchrun`.

SOURCE may be left out. The default is the script, or the current folder for a module or a program.
"""

from __future__ import annotations

import argparse
from typing import Any

from edt_sdk.schemas.errors import InvalidRequest
from edt_sdk.schemas.frameworks import Framework


def asked(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the arguments of `Client.submit` for a command line, for every framework.

    Raises:
        InvalidRequest: no source is named.
        Unprocessable: an option that torchrun does not have, or an invalid value.
    """
    source, main, words = arguments.source, arguments.main, list(arguments.args)
    if arguments.framework != Framework.TORCHRUN:
        if source is None:
            raise InvalidRequest("Nothing to submit is named.", hint="Name a folder, a .py or an .ipynb file.")
        return {"source": source, "main": main, "args": words}
    from edt_sdk.torchrun.command_line.options import parse

    command = parse(words)
    # The script and its arguments are the last words, so everything before them is torchrun's.
    options = words[: len(words) - len(command.args) - 1] if command.script else words
    started = {"args": command.args, "torchrun": options}
    if command.options.module or command.options.no_python:
        return {"source": source or ".", "main": command.script or main, **started}
    if source is None and not command.script:
        raise InvalidRequest(
            "Nothing to submit is named.", hint="Name a folder or a script, such as: edt submit train.py …"
        )
    return {"source": source or command.script, "main": (command.script if source else None) or main, **started}
