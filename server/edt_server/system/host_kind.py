"""Ask a Python which bits it computes on this machine, in a process of its own, and remember the answer.

Two machines whose answers are the same are of one kind (`edt_sdk.training.update.kind`). The answer holds as long as
the processor, torch, and the variables that choose between its ways of computing are the same.
"""

from __future__ import annotations

import hashlib
import logging
import os
import subprocess
from pathlib import Path

from edt_server.system.private_files import make_private_dir, write_private

log = logging.getLogger(__name__)

_PROGRAM = "edt_sdk.training.update.kind"
_PATIENCE = 120.0
# They choose instructions, and with them the order of additions.
_CHOOSING = ("ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA", "MKL_CBWR", "MKL_ENABLE_INSTRUCTIONS")


def kind_here(python: str, folder: Path) -> str:
    """Return the kind of this machine for this Python, "" where it has no torch. `folder` keeps the answer. Blocks."""
    kept = folder / f"kind-{_stamp(python)}"
    try:
        return kept.read_text(encoding="ascii")
    except OSError:
        pass
    try:
        answer = subprocess.run(
            [python, "-P", "-m", _PROGRAM], capture_output=True, text=True, timeout=_PATIENCE, check=True
        ).stdout.strip()
    except (OSError, subprocess.SubprocessError) as wrong:
        said = getattr(wrong, "stderr", "") or str(wrong)
        log.warning("the kind of this machine is not known: %s", said.strip().splitlines()[-1:] or wrong)
        return ""
    try:
        make_private_dir(folder)
        write_private(kept, answer.encode("ascii"))
    except OSError as wrong:
        log.warning("the kind of this machine cannot be kept: %s", wrong)
    return answer


def _stamp(python: str) -> str:
    """Return a hash of what the answer depends on, as far as it can be seen without torch."""
    said = hashlib.sha256(os.path.realpath(python).encode())
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    # Of the first processor: its model and its flags.
    said.update("\n".join(line for line in lines[:40] if line.startswith(("model name", "flags", "Features"))).encode())
    for site in sorted(Path(python).parent.parent.glob("lib*/python*/site-packages/torch-*.dist-info")):
        said.update(site.name.encode())
    said.update(repr([os.environ.get(name) for name in _CHOOSING]).encode())
    return said.hexdigest()[:16]
