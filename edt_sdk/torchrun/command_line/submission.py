"""Determine how a submission's script is started: from a command line, and for `Client.submit`.

Only torchrun has options of its own.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from edt_sdk.schemas.errors import InvalidRequest
from edt_sdk.schemas.fields import words_of
from edt_sdk.schemas.frameworks import Framework


@dataclass(frozen=True, slots=True)
class Start:
    """Describes how the job's script is started.

    Attributes:
        main: the script in the package, None for its only script.
        named: a module or a program that runs instead of a script, "" for none.
        args: its arguments.
        fields: further fields of `JobSpec`.
    """

    main: str | None
    named: str
    args: tuple[str, ...]
    fields: dict[str, Any]


def start_of(
    framework: str, torchrun: Sequence[str] | str, *, main: str | None, args: Sequence[str] | str, **sizes: int
) -> Start:
    """Return how the script is started.

    Args:
        framework: of the job.
        torchrun: a command line, see `edt_sdk.torchrun.command_line.options`. Its script may be left out.
        main: the script that the submission names separately.
        args: the script's, as words or as one text, appended to those of the command line.
        **sizes: `max_workers`, `min_workers` and `slots_per_unit`, where the command line does not set them.

    Raises:
        InvalidRequest: a command line for another framework, or two scripts.
        Unprocessable: an unknown option, or an invalid value.
    """
    words = words_of(args)
    if framework != Framework.TORCHRUN:
        if torchrun:
            raise InvalidRequest(
                f"torchrun's options mean nothing to framework {str(framework)!r}.",
                hint="Pass framework='torchrun' too.",
                field="torchrun",
            )
        return Start(main, "", words, dict(sizes))
    from edt_sdk.torchrun.command_line.options import parse

    command = parse(torchrun)
    if main and command.script and main != command.script:
        raise InvalidRequest(
            f"The script is {main!r}, and {command.script!r} in torchrun's options.",
            hint="Name it once.",
            field="main",
        )
    script = command.script or main
    elsewhere = command.options.module or command.options.no_python
    named = script if elsewhere and script else ""
    return Start(None if named else script, named, (*command.args, *words), command.fields(**sizes))


def asked(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the arguments of `Client.submit` for the command line of any framework.

    For torchrun, everything after `--` is its command line: `edt submit --framework torchrun -- OPTIONS [SCRIPT] …`.
    SOURCE may be left out. The default is the script, or the current folder for a module or a program.

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
