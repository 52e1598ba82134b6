"""Whether this machine can have sandboxes; bubblewrap is installed where that may be done."""

from __future__ import annotations

import os

import pytest

from edt_sdk.schemas.errors import EdtError
from edt_server.system import bubblewrap
from tests import debian


def needs_bubblewrap(*, users: bool = True) -> None:
    """Skip the test, with the reason, where there can be no sandbox, or none for several accounts (not `users`)."""
    if not users and os.geteuid() != 0:
        pytest.skip("Only root can start processes of other accounts.")
    debian.found(debian.program(bubblewrap.PROGRAM), "bubblewrap")
    try:
        bubblewrap.check(users=users)
    except EdtError as why:
        pytest.skip(str(why))
