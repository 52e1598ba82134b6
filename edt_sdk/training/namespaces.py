"""Enter the namespaces of a sandbox, and give up every privilege in them.

The sandbox is bubblewrap's, which the supervisor has started (`edt_server.supervisor.processes.sandbox`). A process
that is forked for it enters instead of being started there, so that it keeps what its zygote has imported. Python has
`os.setns` only since 3.12, and nothing for capabilities.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable

from edt_sdk.schemas.wire.control import Account

_PR_SET_DUMPABLE = 4
_PR_CAPBSET_DROP = 24
_PR_SET_NO_NEW_PRIVS = 38
# linux/capability.h: version 3 has two words of each of the three sets.
_CAPABILITY_VERSION_3 = 0x20080522
_CAPABILITY_WORDS = 6
_LAST_CAPABILITY = 63


class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


def enter(namespaces: Iterable[int], account: Account | None = None) -> None:
    """Enter each of these namespaces, close its descriptor, and keep no capability, nor a way to get one by `exec`.

    The process becomes one of the account, where there is one. The user namespace that owns the others has to come
    first. A pid namespace takes effect for the next fork. The process must have one thread. OSError when a namespace
    cannot be entered, or the account not be taken.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    for namespace in namespaces:
        _check(libc.setns(namespace, 0), "setns")
        os.close(namespace)
    # Entering a user namespace gives all capabilities in it: enough to remove the mounts that hide everything.
    _check(libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "prctl(PR_SET_NO_NEW_PRIVS)")
    for capability in range(_LAST_CAPABILITY + 1):
        # Above the last one that this kernel knows it fails.
        libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)
    if account is not None:
        # After the bounding set, which takes a capability to reduce, and groups before the user for the same reason.
        os.setgroups(account.groups)
        os.setresgid(account.gid, account.gid, account.gid)
        os.setresuid(account.uid, account.uid, account.uid)
    none = (ctypes.c_uint32 * _CAPABILITY_WORDS)()
    _check(libc.capset(ctypes.byref(_Header(_CAPABILITY_VERSION_3, 0)), none), "capset")
    # The change of capabilities, or of the account, has closed /proc/self to the process itself, and to its supervisor.
    _check(libc.prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0), "prctl(PR_SET_DUMPABLE)")


def _check(result: int, call: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{call}: {os.strerror(number)}")
