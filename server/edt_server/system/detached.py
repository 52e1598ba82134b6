"""Start a process that outlives its starter: supervisors, spares and agents. A template forks the first two instead.

It has its own session and no terminal, holds none of the starter's descriptors except those it is given, appends its
output to a file of its own, and gets only the part of the environment that it may see. That part is an allow list,
because no list of secrets is ever complete.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

# Read when an interpreter or a library is loaded, so a later value has no effect.
AT_START = (
    "PYTHON", "LD_", "GLIBC_", "MALLOC_", "LANG", "LC_", "OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_", "GOTO_", "BLIS_",
    "VECLIB_", "DNNL_", "ONEDNN_", "NPY_", "NUMPY_", "TORCH", "PYTORCH_", "ATEN_", "C10_", "KINETO_", "GLOO_", "NCCL_",
    "CUDA_", "CUDNN_", "CUBLAS_", "NVIDIA_",
)  # fmt: skip
_NAMES = frozenset({
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "TZ", "TMPDIR", "VIRTUAL_ENV", "CONDA_PREFIX", "MPLBACKEND",
    "MPLCONFIGDIR", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "XDG_CACHE_HOME",
    "XDG_CONFIG_HOME", "XDG_DATA_HOME", "HF_HOME", "HF_HUB_CACHE", "HF_HUB_OFFLINE", "HF_DATASETS_CACHE",
    "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy", "no_proxy",
})  # fmt: skip


def start_detached(
    module: str,
    arguments: Sequence[str],
    *,
    folder: Path,
    log: Path,
    environ: Mapping[str, str],
    stdin: int = subprocess.DEVNULL,
) -> subprocess.Popen[bytes]:
    """Start `python -m module arguments…` with this interpreter in `folder`. The caller reaps it.

    `log` is the file that stdout and stderr are appended to, 0600 where it is new. `environ` is all it sees.
    """
    said = open_log(log)
    try:
        return subprocess.Popen(
            [*command_of(module), *arguments],
            stdin=stdin,
            stdout=said,
            stderr=said,
            cwd=folder,
            env=dict(environ),
            close_fds=True,
            start_new_session=True,
        )
    finally:
        os.close(said)


def command_of(module: str) -> tuple[str, ...]:
    """Return the command that runs a module with this interpreter. Its arguments come last."""
    # -P: modules in the working directory must not be imported.
    return (sys.executable, "-P", "-m", module)


def open_log(log: Path) -> int:
    """Return a descriptor that appends to a log, which is 0600 where it is new."""
    return os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)


def inherited(environ: Mapping[str, str], more: Sequence[str] = ()) -> dict[str, str]:
    """Return the variables of the server that its jobs see: those that programs need, and `more` of them.

    A name in `more` may have wildcards (`WANDB_*`). EDT_* are never passed on: they mark the processes of one job.
    """
    return {
        name: value
        for name, value in environ.items()
        if (name in _NAMES or name.startswith(AT_START) or any(fnmatchcase(name, each) for each in more))
        and not name.startswith("EDT_")
    }
