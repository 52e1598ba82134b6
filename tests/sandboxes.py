"""Whether this machine can have sandboxes; bubblewrap is installed where that may be done."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest

from edt_sdk.schemas.errors import EdtError
from edt_server.system import bubblewrap

INSTALL = (
    "apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends bubblewrap"
)


def needs_bubblewrap(*, users: bool = True) -> None:
    """Skip the test, with the reason, where there can be no sandbox, or none for several accounts (not `users`)."""
    if not users and os.geteuid() != 0:
        pytest.skip("Only root can start processes of other accounts.")
    if shutil.which(bubblewrap.PROGRAM) is None and os.geteuid() == 0 and shutil.which("apt-get"):
        subprocess.run(INSTALL, shell=True, capture_output=True, check=False)
    try:
        bubblewrap.check(users=users)
    except EdtError as why:
        pytest.skip(str(why))
