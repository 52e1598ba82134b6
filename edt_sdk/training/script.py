"""Run a process of a plain job: the user's main script, or a command in its place.

The supervisor starts it as `python -u -m edt_sdk.training.script`. A script runs as `__main__` with its own arguments
in the code folder, as `python script.py` would run it there. A command replaces this process, so the exit code is
the command's.
"""

from __future__ import annotations

import os
import signal
import sys

from edt_sdk.schemas.wire.context import JobContext, job_context
from edt_sdk.training import driver
from edt_sdk.training.user import explanation

# A shell's exit codes for these cases.
_NOT_RUNNABLE, _NOT_FOUND = 126, 127


def main() -> int:
    """Run the script or the command, and return the exit code."""
    job = job_context()
    if job is None:
        print("edt: this program is started by a job's supervisor (EDT_JOB is not set).", file=sys.stderr)
        return 2
    if job.command:
        return run_command(job)
    try:
        driver.run_script(job)
    except Exception as error:
        # Python would show the traceback from the script's first frame on.
        frames = error.__traceback__
        while frames is not None and frames.tb_frame.f_code.co_filename in (__file__, driver.__file__):
            frames = frames.tb_next
        text = explanation.traceback_text(error.with_traceback(frames or error.__traceback__))
        print(text, file=sys.stderr, end="", flush=True)
        if hint := explanation.missing_module(error):
            print(f"edt: {hint}", file=sys.stderr, flush=True)
        return 1
    return 0


def run_command(job: JobContext) -> int:
    """Replace this process with the command. Return an exit code only when that is impossible."""
    # Python ignores SIGPIPE, and exec would pass that on to the command.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        os.chdir(job.paths.code_dir(job.code_dir))
        os.execvp(job.command[0], job.command)
    except FileNotFoundError:
        print(f"edt: there is no program {job.command[0]!r} on this machine.", file=sys.stderr, flush=True)
        return _NOT_FOUND
    except OSError as wrong:
        print(f"edt: {job.command[0]} cannot be run: {wrong.strerror}.", file=sys.stderr, flush=True)
        return _NOT_RUNNABLE


if __name__ == "__main__":
    sys.exit(main())
