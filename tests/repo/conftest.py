"""The repository as its own tests see it."""

import subprocess
import sys
from pathlib import Path

import pytest

import hatch_build

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def root():
    return ROOT


@pytest.fixture(scope="session")
def tracked():
    """Every file that is part of the repository: those git tracks, or will once they are added."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return [path for path in (ROOT / name for name in listed.stdout.split("\0") if name) if path.is_file()]


@pytest.fixture(scope="session")
def wheel(tmp_path_factory):
    """The wheel, built from the checkout by the build backend itself, without a build environment.

    Its front end is built only when it is older than its sources; where it cannot be built there is no wheel to test.
    """
    try:
        hatch_build.build()
    except hatch_build.CannotBuild as missing:
        pytest.skip(str(missing))
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)], cwd=ROOT, check=True)
    (built,) = folder.glob("*.whl")
    return built
