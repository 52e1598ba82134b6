"""What is there is left out of collections, once; what comes later is still collected. In a process of its own."""

from __future__ import annotations

import subprocess
import sys

_PROGRAM = """
import gc, weakref
from edt_server.service.pauses import spare_what_is_here

class Cycle:
    def __init__(self):
        self.me = self

garbage = weakref.ref(Cycle())
spare_what_is_here()
frozen = gc.get_freeze_count()
assert frozen > 1000, frozen
assert garbage() is None, "what was garbage already does not stay"
later = weakref.ref(Cycle())
spare_what_is_here()
assert gc.get_freeze_count() <= frozen, "only once"
gc.collect()
assert later() is None
"""


def test_only_what_is_there_is_spared():
    done = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
