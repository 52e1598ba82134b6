"""Add the verb that needs no server: simulate.

The simulator runs the scheduler's own core, which the SDK never imports. So it is another program, `python -m
edt_server.simulator`, with this one's arguments, output and exit code. One distribution installs both, and a program is
the smallest interface two packages can have: no plug-in to register, and no other verb loads the simulator.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from importlib.util import find_spec

from edt_sdk.cli.session import Verbs
from edt_sdk.schemas.errors import InvalidRequest

_PROGRAM = "edt_server.simulator"


def add(verbs: Verbs, common: argparse.ArgumentParser) -> None:
    """Add the verb. This parser knows no prefix of options: whatever follows the verb is the simulator's to read."""
    says = "Play a workload against the scheduler; needs no server."
    parser = verbs.add_parser("simulate", help=says, description=says, add_help=False, prefix_chars="\0")
    parser.add_argument("words", nargs="*")
    parser.set_defaults(run=_run_simulate)


def _run_simulate(arguments: argparse.Namespace) -> int:
    # A kernel may have the SDK without the server's package.
    if find_spec(_PROGRAM.partition(".")[0]) is None:
        raise InvalidRequest(
            "The simulator is not installed beside this command.",
            hint="It is part of jupyter-edt: pip install jupyter-edt",
        )
    return subprocess.run([sys.executable, "-m", _PROGRAM, *arguments.words], check=False).returncode
