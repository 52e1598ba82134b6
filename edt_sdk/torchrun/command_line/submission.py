"""Determine how a submission's script is started, for `Client.submit`. Only torchrun has options of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from edt_sdk.schemas.errors import InvalidRequest
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
    framework: str, torchrun: Sequence[str] | str, *, main: str | None, args: Sequence[str], **sizes: int
) -> Start:
    """Return how the script is started.

    Args:
        framework: of the job.
        torchrun: a command line, see `edt_sdk.torchrun.command_line.options`. Its script may be left out.
        main: the script that the submission names separately.
        args: the script's, appended to those of the command line.
        **sizes: `max_workers`, `min_workers` and `slots_per_unit`, where the command line does not set them.

    Raises:
        InvalidRequest: a command line for another framework, or two scripts.
        Unprocessable: an unknown option, or an invalid value.
    """
    words = tuple(map(str, args))
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
