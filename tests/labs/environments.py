"""Throw-away environments with the wheel of this checkout and everything else from the package index but torch.

Torch is the largest part and the same everywhere: each environment has links to that of `.venv`, so all are of its
Python. uv puts an environment together in seconds; pip would take minutes for the six.
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from collections.abc import Iterable
from importlib.metadata import distribution
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
# What torch itself imports, and what its entry in the index would have brought.
TORCH_NEEDS = ("typing_extensions", "sympy", "networkx", "filelock", "fsspec", "jinja2", "setuptools")
# For uv: whoever asks for torch gets it from elsewhere.
WITHOUT_TORCH = "torch ; sys_platform == 'never'"


def build_wheel(folder: Path) -> Path:
    """The wheel of this checkout, with its front end."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.whl"):
        old.unlink()
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=REPOSITORY, check=True, stdout=subprocess.DEVNULL)
    (wheel,) = folder.glob("*.whl")
    return wheel


def make(folder: Path, wheel: Path, requirements: Iterable[str]) -> Path:
    """An environment in that folder, made anew; its Python.

    Raises:
        subprocess.CalledProcessError: something could not be installed; uv has said what.
    """
    python = folder / "bin" / "python"
    _uv("venv", "--quiet", "--clear", "--python", sys.executable, str(folder))
    packages = folder / Path(sysconfig.get_path("purelib")).relative_to(sys.prefix)
    for source in _torch():
        (packages / source.name).symlink_to(source)
    excluded = folder / "without-torch.txt"
    excluded.write_text(WITHOUT_TORCH + "\n")
    wanted = [str(wheel), *requirements, *TORCH_NEEDS]
    _uv("pip", "install", "--quiet", "--python", str(python), "--overrides", str(excluded), *wanted)
    return python


def versions(python: Path, *packages: str) -> list[str]:
    """What of these is installed there."""
    code = "import sys, importlib.metadata as m; print(*map(m.version, sys.argv[1:]))"
    return subprocess.run(
        [str(python), "-c", code, *packages], check=True, capture_output=True, text=True
    ).stdout.split()


def _torch() -> list[Path]:
    found = distribution("torch")
    tops = {Path(str(path)).parts[0] for path in found.files or ()}
    site = Path(str(found.locate_file("")))
    return [site / top for top in sorted(tops) if top not in {"..", "__pycache__"} and (site / top).exists()]


def _uv(*arguments: str) -> None:
    subprocess.run([str(Path(sys.executable).parent / "uv"), *arguments], check=True)
