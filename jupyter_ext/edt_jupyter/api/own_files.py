"""Map a path of Jupyter's contents API to a place on this server's disk, never outside its top folder.

Files that Jupyter does not show (hidden ones, unless the administrator allows them) are not found here either. A link
is followed as long as it stays inside.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jupyter_core.paths import is_hidden

from edt_sdk.schemas.errors import NotFound, PackageError


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
            raise self._not_there(path) from None
        # The contents API follows such a link, but a package must not carry files from outside.
        if not real.is_relative_to(self._root):
            raise PackageError(
                f"{path} is a link that leads out of this server's files.",
                hint="Copy what it leads to into them, or submit from a notebook.",
                field="source",
            )
        return real

    @staticmethod
    def _not_there(path: str) -> NotFound:
        return NotFound(
            f"This server has no file or folder {path!r}.",
            hint="Give its path as the file browser shows it, from the top folder on.",
            field="source",
        )
