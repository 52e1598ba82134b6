"""Run one process of a torchrun job: the user's script as under `python script.py`, except for its start and end.

The process was forked from one that has imported torch (`nursery.py`). The command is in a variable, which is removed
before the script can see it, like all other variables between the supervisor and its agents.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import CodeType, ModuleType
from typing import NoReturn

import msgspec

from edt_sdk.schemas.torchrun import AGENT_VARIABLE
from edt_sdk.schemas.wire.context import JOB_VARIABLE, WORKER_VARIABLE
from edt_sdk.torchrun import notes
from edt_sdk.training.member.leaving import leave_script

COMMAND_VARIABLE = "EDT_COMMAND"
_NOT_FOUND = 127


def main() -> NoReturn:
    """Run the command, then end the process."""
    code: object
    try:
        code = run()
    except SystemExit as ended:
        code = ended.code
    leave_script(code)


def run() -> int:
    """Run the command. Return its exit code, unless the command replaces this process."""
    command = msgspec.json.decode(os.environ.pop(COMMAND_VARIABLE), type=list[str])
    for name in (JOB_VARIABLE, WORKER_VARIABLE, AGENT_VARIABLE):
        # A script that starts programs of its own must not pass our variables on.
        os.environ.pop(name, None)
    if command[:2] != [sys.executable, "-u"]:
        return execute(command)
    notes.watch()
    try:
        if command[2] == "-m":
            _run_module(command[3], command[4:])
        else:
            _run_script(command[2], command[3:])
    except Exception as error:
        _tell(error)
        notes.fail()
        return 1
    return 0


def _run_script(script: str, args: Sequence[str]) -> None:
    path = Path(script).absolute()
    sys.argv[:] = [script, *args]
    # Replaces the working directory, which is only right for modules.
    sys.path[:1] = [str(path.parent)]
    code = compile(path.read_bytes(), str(path), "exec", dont_inherit=True)
    _be_main(code, str(path), None)


def _run_module(name: str, args: Sequence[str]) -> None:
    spec = importlib.util.find_spec(name)
    if spec is not None and spec.submodule_search_locations is not None:
        name = f"{name}.__main__"
        spec = importlib.util.find_spec(name)
    if spec is None or spec.loader is None or spec.origin is None:
        raise ModuleNotFoundError(f"No module named {name!r}.", name=name)
    code: CodeType = spec.loader.get_code(name)  # type: ignore[attr-defined]
    sys.argv[:] = [spec.origin, *args]
    _be_main(code, spec.origin, spec)


def _be_main(code: CodeType, file: str, spec: ModuleSpec | None) -> None:
    module = ModuleType("__main__")
    module.__dict__.update(__file__=file, __builtins__=__builtins__, __spec__=spec)
    if spec is not None:
        module.__dict__.update(__package__=spec.parent, __loader__=spec.loader, __cached__=spec.cached)
    sys.modules["__main__"] = module
    exec(code, module.__dict__)


def execute(command: Sequence[str]) -> int:
    """Replace this process by a program. Returns an exit code where that is not possible."""
    try:
        os.execvp(command[0], list(command))
    except OSError as wrong:
        print(f"edt: {command[0]} cannot be run: {wrong.strerror}.", file=sys.stderr, flush=True)
    return _NOT_FOUND


def _tell(error: Exception) -> None:
    """Print an uncaught exception as Python does, without our own frames."""
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename == __file__:
        frames = frames.tb_next
    sys.excepthook(type(error), error.with_traceback(frames), frames)


if __name__ == "__main__":
    main()
