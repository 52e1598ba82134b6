"""Find torchrun's own words in the `args` of a torchrun submission, which can be written in three ways. Pure.

With `--model-main` they are mixed with the others, and only unmistakable words of torchrun are taken. Without it the
words that are not the platform's are torchrun's command line, with the script in it. With `--user-cmd` a whole command
follows `--`: `torchrun …` or `python -m torchelastic.distributed.launch …`. A command that needs a shell, or joins the
job's rendezvous by itself (`--rdzv-backend=edt`), is run unchanged.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import replace
from pathlib import PurePosixPath

from edt_sdk.schemas.errors import InvalidRequest
from edt_sdk.torchrun.command_line.options import TorchrunCommand, names_torchrun, parse, sorted_out
from edt_server.wmla.args import Arguments

# `shlex` splits such a command without an error, and the words would reach the script unexpanded.
_NEEDS_A_SHELL = re.compile(r"[;&|<>$`\n*?~(){}]")
_OWN_RENDEZVOUS = re.compile(r"--rdzv[-_]backend(?:=|\s+)edt\b")


def started(arguments: Arguments) -> tuple[Arguments, TorchrunCommand]:
    """Return the arguments without torchrun's words, and the meaning of those words.

    `main` is then the script, module or program, and `script` its own arguments.
    """
    if arguments.command:
        return _of_command(arguments)
    if arguments.main:
        return _among_others(arguments)
    return _named(arguments, parse(arguments.script))


def _among_others(arguments: Arguments) -> tuple[Arguments, TorchrunCommand]:
    # Words after `--` are the script's, even where they look like options of torchrun.
    before = arguments.script[: len(arguments.script) - arguments.behind]
    options, others = sorted_out(before)
    own = (*others, *arguments.script[len(before) :])
    return replace(arguments, script=own), parse(options)


def _of_command(arguments: Arguments) -> tuple[Arguments, TorchrunCommand]:
    command = arguments.command
    if _NEEDS_A_SHELL.search(command) or _OWN_RENDEZVOUS.search(command):
        return arguments, parse(())
    try:
        words = shlex.split(command)
    except ValueError:
        return arguments, parse(())  # the shell reports what is wrong with it
    if not names_torchrun(words):
        return arguments, parse(())
    found = parse(words)
    if arguments.main and found.script and PurePosixPath(found.script).name != arguments.main:
        raise InvalidRequest(
            f"The script is {arguments.main} in --model-main, and {found.script} in the command.",
            hint="Name it once.",
            field="--model-main",
        )
    return _named(replace(arguments, command=""), found)


def _named(arguments: Arguments, found: TorchrunCommand) -> tuple[Arguments, TorchrunCommand]:
    """Return the arguments with the script of torchrun's command line."""
    return replace(arguments, main=found.script or arguments.main, script=found.args, behind=0), found
