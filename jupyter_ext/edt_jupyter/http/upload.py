"""An upload on its way to the disk: multipart/form-data, parsed while it arrives, never held in memory.

Two parts are required, `spec` (JSON) and `package` (an archive). Both are bounded: the spec by a mebibyte, the package
by the server's cap. The creator of an `Upload` closes it, and its file is then removed in every case.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import IO

from edt_jupyter.http.multipart import MultipartReader
from edt_sdk.schemas.errors import InvalidRequest, TooLarge

MAX_SPEC = 1 << 20
# The boundaries and part headers around spec and package.
OVERHEAD = MAX_SPEC + (1 << 16)
_PARTS = ("spec", "package")
_HINT = "Send multipart/form-data with a part 'spec' (JSON) and a part 'package' (tar.gz)."


def check_length(length: str | None, cap: int) -> None:
    """Raise TooLarge when the announced length of a body (a Content-Length header) cannot be within the cap."""
    if length is not None and length.isdecimal() and int(length) > cap + OVERHEAD:
        raise too_large(cap)


def too_large(cap: int) -> TooLarge:
    """Return the error for a package over the cap (bytes)."""
    return TooLarge(
        f"The package is larger than this server accepts ({cap} bytes).",
        hint="Leave data out of it with an .edtignore file, or ask for a larger c.EdtApp.max_upload_bytes.",
        limit=cap,
    )


class Upload:
    """One body that is being received.

    Args:
        folder: where the package is kept.
        content_type: of the request.
        cap: most bytes of the package.

    Raises:
        InvalidRequest: the content type is not multipart/form-data with a boundary.
    """

    def __init__(self, folder: Path, content_type: str, cap: int) -> None:
        self._body = MultipartReader(content_type, _HINT, self._begin, self._take)
        self._folder = folder
        self._cap = cap
        self._package: IO[bytes] | None = None
        self._spec = bytearray()
        self._seen: list[str] = []
        self._part = ""
        self.filename = ""  # the sender's name for the package, never used as a path

    def write(self, data: bytes) -> None:
        """Take the next bytes of the body. Blocks.

        Raises:
            InvalidRequest: they are not what was announced.
            TooLarge: the package is over the cap.
        """
        self._body.write(data)

    def finish(self) -> tuple[bytes, Path]:
        """Return the spec and the file of the package. InvalidRequest when something is missing."""
        missing = [part for part in _PARTS if part not in self._seen]
        if missing or not self._body.complete or self._package is None:
            what = f"has no part {missing[0]!r}" if missing else "ends before its end"
            raise InvalidRequest(f"The body {what}.", hint=_HINT, field=missing[0] if missing else "package")
        self._package.flush()
        return bytes(self._spec), Path(self._package.name)

    def close(self) -> None:
        """Remove the file. May be called twice."""
        if self._package is not None:
            self._package.close()
            Path(self._package.name).unlink(missing_ok=True)

    def _begin(self, name: str, filename: str | None) -> None:
        self._part = name
        if self._part not in _PARTS or self._part in self._seen:
            what = "comes twice" if self._part in self._seen else "is not wanted"
            raise InvalidRequest(f"The part {self._part!r} {what}.", hint=_HINT, field=self._part)
        self._seen.append(self._part)
        if self._part == "package":
            self.filename = filename or ""
            self._package = tempfile.NamedTemporaryFile(prefix="upload-", dir=self._folder, delete=False)  # noqa: SIM115

    def _take(self, data: memoryview) -> None:
        if self._part == "spec":
            self._spec += data
            if len(self._spec) > MAX_SPEC:
                raise InvalidRequest(f"The part 'spec' is larger than {MAX_SPEC} bytes.", field="spec")
        elif self._package is not None:
            self._package.write(data)
            if self._package.tell() > self._cap:
                raise too_large(self._cap)
