"""End a process that has loaded torch, without the end of the interpreter.

At its end Python frees all objects, one by one. With torch this takes half a second of a core, most of which a forked
process spends on copies of the pages that it shares. Others wait for that end: the next job, or the next round. What a
program may rely on at its end is done all the same.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import io
import sys
import threading
import weakref
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import NoReturn

from edt_sdk.training.member.link import end_process
from edt_sdk.training.user.own_modules import own_modules

_STAY = (ModuleType, type, FunctionType, BuiltinFunctionType, str, bytes, int, float)


def prepare_to_fork() -> None:
    """Let no program that is forked from here clean up, or look through, what this process has imported."""
    dynamo = sys.modules.get("torch._dynamo.utils")
    if dynamo is not None and hasattr(dynamo, "dump_compile_times"):
        atexit.unregister(dynamo.dump_compile_times)  # writes a line of the debug log
    # Such as the many libraries of torch's operators.
    for finalizer in list(getattr(weakref.finalize, "_registry", ())):
        finalizer.atexit = False
    # A collection would write to, and so copy, all pages.
    gc.freeze()


def leave(code: int) -> NoReturn:
    """End at once, after the exit handlers. Threads are not awaited: they may wait for a member that is gone."""
    atexit._run_exitfuncs()
    end_process(code)


def leave_script(code: object) -> NoReturn:
    """End as a user's script does that has called `sys.exit(code)`: after its threads, exit handlers and finalizers.

    What it has left open is closed, or at least flushed.
    """
    if code is None or isinstance(code, int):
        status = (code or 0) & 0xFF
    else:
        print(code, file=sys.stderr)
        status = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    with contextlib.suppress(Exception):  # it may have done anything to its modules, and has ended as it has
        _let_go()
    _flush()
    ctypes.CDLL(None).fflush(None)  # the output of C libraries
    end_process(status)


def _let_go() -> None:
    """Let go of what the script has made, so that its finalizers run."""
    own = [sys.modules["__main__"], *own_modules()]
    # By their names and not all at once by a collection: that would finalize a file's lowest layer first, and lose what
    # the layers above have not written. Finalizers use functions, classes and modules, so these stay.
    for module in own:
        names = vars(module)
        for name in list(names):
            if not name.startswith("__") and not isinstance(names[name], _STAY):
                del names[name]
    _flush()
    for module in own:
        sys.modules.pop(module.__name__, None)
    del module, own, names
    gc.collect()


def _flush() -> None:
    """Write out the files that are open."""
    # What was imported before the fork is frozen, so this looks at the script's objects alone.
    for each in gc.get_objects():
        if issubclass(type(each), io.IOBase):
            with contextlib.suppress(Exception):  # closed, unread, or a class of the user's that raises what it likes
                each.flush()
