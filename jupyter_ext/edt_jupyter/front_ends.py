"""Find programs in this environment that are too old to show the front end, for the server's log.

JupyterLab 3 does not load the extension at all, and reports that only in the browser's console. `too_old` is pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version

# The oldest that `make labs` opens.
OLDEST = {"jupyterlab": (4, 2), "notebook": (7, 2)}


def installed() -> dict[str, str]:
    """Return the versions of the programs that are installed in this environment."""
    found: dict[str, str] = {}
    for name in OLDEST:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def too_old(versions: Mapping[str, str]) -> list[str]:
    """Return a sentence for each program that is too old. An unknown version is not judged."""
    sentences = []
    for name, (major, minor) in OLDEST.items():
        parts = re.match(r"(\d+)\.(\d+)", versions.get(name, ""))
        if parts and (int(parts[1]), int(parts[2])) < (major, minor):
            sentences.append(
                f"{name} {versions[name]} is too old for the panel, the cards and the pages: "
                f"pip install -U '{name}>={major}.{minor}'. Jobs, the SDK and the magics work without them."
            )
    return sentences
