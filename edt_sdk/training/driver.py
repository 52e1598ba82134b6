"""Run the driver: the user's main script, as `python main.py` in the code folder would run it.

The supervisor starts it as `python -u -m edt_sdk.training.driver`. The script is this process's `__main__`, so its
classes and functions travel to the workers by value. The driver holds no slot and trains nothing itself.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import ModuleType, TracebackType

import edt_sdk.training.member.previous_zygote  # noqa: F401  # before all others
from edt_sdk.schemas.errors import EdtError, InvalidRequest, Unprocessable
from edt_sdk.schemas.wire.context import JobContext, job_context
from edt_sdk.schemas.wire.link import DriverHello, Failed
from edt_sdk.training.calls import session
from edt_sdk.training.member.leaving import leave_script
from edt_sdk.training.member.link import Link
from edt_sdk.training.user import explanation

NEVER_TRAINED = (
    "{main} ended without calling FabricModel(...).train(...). "
    "Build a FabricModel in the main script and call its train() method, which is what the workers run. "
    "Or keep your own loop with edt_sdk.elastic. "
    'To run the script as it is, submit it with framework="PyTorch" (in a shell: --framework PyTorch).'
)


def main() -> int:
    """Run the script and return its exit code."""
    job = job_context()
    if job is None:
        print("edt: this program is started by a job's supervisor (EDT_JOB is not set).", file=sys.stderr)
        return 2
    link = Link.connect(job.link)
    link.send(DriverHello(pid=os.getpid()))
    own = session.Session(job, link, path=tuple(sys.path))
    session.begin(own)
    try:
        run_script(job)
    except SystemExit as ended:
        # A script that ends with exit(0) is still checked for a call of train().
        if ended.code not in (None, 0):
            raise
    except Exception as error:
        report(link, error, job.main)
        return 1
    if own.trainings == 0:
        message = NEVER_TRAINED.format(main=job.main)
        print(f"edt: {message}", file=sys.stderr, flush=True)
        link.send(Failed(worker=None, message=message, traceback="", final=True))
        return 1
    return 0


def run_script(job: JobContext) -> None:
    """Execute the main script as `__main__`. Its exceptions pass through."""
    code_dir = job.paths.code_dir(job.code_dir)
    script = code_dir / job.main
    os.chdir(code_dir)
    sys.argv = [job.main, *job.args]
    # A script in a sub-folder finds its neighbours there and the other modules in the code folder.
    sys.path[:1] = list(dict.fromkeys([str(script.parent), str(code_dir)]))
    module = ModuleType("__main__")
    module.__dict__.update(__file__=str(script), __builtins__=__builtins__)
    sys.modules["__main__"] = module
    # Without dont_inherit the `from __future__` of this file would apply to the user's script.
    code = compile(script.read_bytes(), str(script), "exec", dont_inherit=True)
    exec(code, module.__dict__)


def report(link: Link, error: Exception, main: str) -> None:
    """Write the user's traceback to stderr, without our own frames, and send the failure to the supervisor."""
    own_frames: TracebackType | None = error.__traceback__
    while own_frames is not None and Path(own_frames.tb_frame.f_code.co_filename) == Path(__file__):
        own_frames = own_frames.tb_next
    error.__traceback__ = own_frames
    text = explanation.traceback_text(error)
    print(text, file=sys.stderr, end="", flush=True)
    message = str(error) if isinstance(error, EdtError) else f"{main} raised {type(error).__name__}: {error}"
    message = explanation.sentence(message, explanation.missing_module(error))
    # A request that is refused now would be refused again when the same script makes it later.
    final = isinstance(error, InvalidRequest | Unprocessable)
    link.send(Failed(worker=None, message=message, traceback=text, final=final))


def _exit_code() -> object:
    try:
        return main()
    except SystemExit as ended:
        return ended.code


if __name__ == "__main__":
    leave_script(_exit_code())
