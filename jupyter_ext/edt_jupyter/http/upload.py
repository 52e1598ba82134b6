"""An upload on its way to the disk: multipart/form-data, parsed while it arrives, never held in memory.

Parsing is python-multipart's. An `Upload` has two required parts, `spec` (JSON) and `package` (an archive). Both are
bounded: the spec by a mebibyte, the package by the server's cap. The creator of an `Upload` closes it, and its file is
then removed in every case.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

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


class MultipartReader:
    """One body that is being received. `hint` is advice for the errors.

    Args:
        begin: called for each part with its name and its file name, None without one.
        take: called with the next bytes of that part, valid during the call only.
        end: called after each part.

    Attributes:
        complete: the body has been read to its end.

    Raises:
        InvalidRequest: the content type is not multipart/form-data with a boundary.
    """

    def __init__(
        self,
        content_type: str,
        hint: str,
        begin: Callable[[str, str | None], None],
        take: Callable[[memoryview], None],
        end: Callable[[], None] = lambda: None,
    ) -> None:
        kind, options = parse_options_header(content_type)
        boundary = options.get(b"boundary")
        if kind != b"multipart/form-data" or not boundary:
            raise InvalidRequest(f"The body is {content_type or 'of no type'}.", hint=hint)
        self._hint, self._begin = hint, begin
        self._header: list[bytearray] = [bytearray(), bytearray()]
        self._disposition = b""
        self.complete = False
        callbacks: Any = {
            "on_header_field": lambda data, start, end: self._header[0].extend(data[start:end]),
            "on_header_value": lambda data, start, end: self._header[1].extend(data[start:end]),
            "on_header_end": self._end_header,
            "on_headers_finished": self._begin_part,
            "on_part_data": lambda data, start, end: take(memoryview(data)[start:end]),
            "on_part_end": end,
            "on_end": self._end,
        }
        try:
            self._parser = MultipartParser(boundary, callbacks)
        except FormParserError as error:
            raise InvalidRequest(f"The body cannot be read: {error}.", hint=hint) from None

    def write(self, data: bytes) -> None:
        """Take the next bytes of the body. InvalidRequest when they are not multipart/form-data."""
        try:
            self._parser.write(data)
        except FormParserError as error:
            raise InvalidRequest(f"The body is not multipart/form-data: {error}.", hint=self._hint) from None

    def _end_header(self) -> None:
        name, value = (bytes(part) for part in self._header)
        self._header = [bytearray(), bytearray()]
        if name.lower() == b"content-disposition":
            self._disposition = value

    def _begin_part(self) -> None:
        _, options = parse_options_header(self._disposition)
        self._disposition = b""
        name, filename = options.get(b"name", b""), options.get(b"filename")
        self._begin(name.decode("utf-8", "replace"), None if filename is None else filename.decode("utf-8", "replace"))

    def _end(self) -> None:
        self.complete = True


class Upload:
    """One body that is being received. The package is kept in `folder`, and has at most `cap` bytes."""

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
        """Take the next bytes of the body. Blocks."""
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
