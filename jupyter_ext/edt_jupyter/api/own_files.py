"""Map a path of Jupyter's contents API to a place on this server's disk, never outside its top folder.

Files that Jupyter does not show (hidden ones, unless the administrator allows them) are not found here either. A link
is followed as long as it stays inside.
"""

from __future__ import annotations

import os
from itertools import islice
from pathlib import Path
from typing import Any

from jupyter_core.paths import is_hidden

from edt_sdk.schemas.errors import NotFound, PackageError
from edt_sdk.schemas.fields import near

_MOST_NAMES = 1000  # of a folder that are compared with a name


class OwnFiles:
    """The files of a Jupyter server. PackageError when its contents manager keeps them not on a disk."""

    def __init__(self, contents: Any) -> None:
        root = getattr(contents, "root_dir", "")
        if not root:
            raise PackageError(
                "This server's files are not on a disk, so that it cannot pack them.",
                hint="Submit from a notebook: %edt_submit, or Client().submit(…).",
                field="source",
            )
        # Resolved like the places below it. Otherwise everything below a root that is a link would count as outside.
        self._root = Path(root).resolve()
        self.hidden = bool(getattr(contents, "allow_hidden", False))

    def find(self, path: str) -> Path:
        """Return the file or folder of this path, "" for the top folder. NotFound for a hidden one. Blocks."""
        # The system calls below would raise ValueError for it, and not OSError.
        if "\0" in path:
            raise self._not_there(path.replace("\0", "?"))
        wanted = path.strip("/")
        place = self._root / wanted
        if ".." in Path(wanted).parts or (not self.hidden and is_hidden(place, self._root)):
            raise self._not_there(path)
        try:
            real = place.resolve(strict=True)
        except (OSError, RuntimeError):
            raise self._not_there(path, self._suggested(wanted)) from None
        # The contents API follows such a link, but a package must not carry files from outside.
        if not real.is_relative_to(self._root):
            raise PackageError(
                f"{path} is a link that leads out of this server's files.",
                hint="Copy what it leads to into them, or submit from a notebook.",
                field="source",
            )
        return real

    def _suggested(self, wanted: str) -> str:
        """Return "Did you mean …?" for the first name in the path that its folder does not have. Blocks."""
        folder = self._root
        try:
            for name in Path(wanted).parts:
                if not (folder / name).exists():
                    with os.scandir(folder) as entries:
                        known = [entry.name for entry in islice(entries, _MOST_NAMES)]
                    shown = (each for each in known if self.hidden or not each.startswith("."))
                    found = near(name, shown)
                    return (
                        ""
                        if found is None
                        else f"Did you mean {(folder / found).relative_to(self._root).as_posix()!r}?"
                    )
                folder = (folder / name).resolve()
                # A link must not make names outside visible.
                if not folder.is_relative_to(self._root):
                    return ""
        except (OSError, RuntimeError):
            pass
        return ""

    @staticmethod
    def _not_there(path: str, suggested: str = "") -> NotFound:
        return NotFound(
            f"This server has no file or folder {path!r}.",
            hint=suggested or "Give its path as the file browser shows it, from the top folder on.",
            field="source",
        )
