"""Read multipart/form-data part by part while it arrives. Parsing is python-multipart's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from edt_sdk.schemas.errors import InvalidRequest


class MultipartReader:
    """One body that is being received.

    Args:
        content_type: of the request.
        hint: advice for the errors.
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
