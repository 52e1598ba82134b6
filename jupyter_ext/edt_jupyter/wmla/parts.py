"""The upload of a WMLA client on its way to the disk: any number of files and form fields, as multipart/form-data.

A part is a form field when it has no file name and its name is one of `FIELDS`. Every other part is a file, also
without a file name, or with an unknown name. Files go to a folder of their own while they arrive. Fields are held in
memory and bounded. Without any file, clients send a plain form, or nothing at all. Parsing is python-multipart's. The
creator closes it, which removes the folder.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any
from urllib.parse import parse_qs

from python_multipart.multipart import parse_options_header

from edt_jupyter.http.upload import MultipartReader, too_large
from edt_sdk.schemas.errors import InvalidRequest
from edt_server.wmla.archive import Part

FIELDS = ("data", "args", "sigName")
_FORM = b"application/x-www-form-urlencoded"
_MAX_FIELDS = 1 << 20
_MAX_FILES = 1000
_HINT = "Send multipart/form-data with the model's tar, or its script, in a part 'file'."


class Parts:
    """A body that is being received, with at most `cap` bytes of files.

    The files lie in a new folder below `uploads`. Anything else that is put in `folder` is removed with them.
    """

    def __init__(self, uploads: Path, content_type: str, cap: int) -> None:
        kind, _ = parse_options_header(content_type)
        self._plain, self._untyped = bytearray(), not kind
        plain = not kind or kind == _FORM
        self._body = None if plain else MultipartReader(content_type, _HINT, self._begin, self._take, self._end_part)
        self._cap, self._size = cap, 0
        self._files: list[Part] = []
        self._fields: dict[str, bytearray] = {}
        self._field: bytearray | None = None
        self._file: IO[bytes] | None = None
        self.folder = Path(tempfile.mkdtemp(prefix="upload-", dir=uploads))

    def write(self, data: bytes) -> None:
        """Take the next bytes of the body. Blocks."""
        if self._body is None:
            self._plain += data
            if len(self._plain) > _MAX_FIELDS:
                raise InvalidRequest(f"A form without files is at most {_MAX_FIELDS} bytes.", hint=_HINT)
            return
        self._body.write(data)

    def finish(self) -> tuple[list[Part], dict[str, str]]:
        """Return the files in their order, and the fields. InvalidRequest when the body was cut off."""
        if self._body is None:
            return [], self._plain_form(bytes(self._plain))
        if not self._body.complete:
            raise InvalidRequest("The body ends before its end.", hint=_HINT)
        try:
            return list(self._files), {name: value.decode() for name, value in self._fields.items()}
        except UnicodeDecodeError:
            raise InvalidRequest("A form field is not UTF-8.", hint=_HINT) from None

    def _plain_form(self, body: bytes) -> dict[str, str]:
        if self._untyped and body:
            raise InvalidRequest("The body is of no type.", hint=_HINT)
        return {name: values[-1] for name, values in parse_qs(body.decode("utf-8", "replace")).items()}

    def close(self) -> None:
        """Remove the files. May be called twice."""
        self._end_part()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _begin(self, name: str, filename: str | None) -> None:
        # The SDK sends some files without a file name, so the name of the part decides.
        if filename is None and name in FIELDS:
            self._field = self._fields.setdefault(name, bytearray())
            self._field.clear()
            return
        if len(self._files) == _MAX_FILES:
            raise InvalidRequest(f"The body has more than {_MAX_FILES} files.", hint="Send a folder as one tar.")
        # Under a name of ours: the sender's name is not trusted as a path.
        path = self.folder / f"part-{len(self._files)}"
        self._files.append(Part(filename or "", path))
        self._file = path.open("wb")

    def _take(self, data: memoryview) -> None:
        if self._field is not None:
            self._field += data
            # Fields are kept in memory, so all of them together are bounded, not each alone.
            if sum(map(len, self._fields.values())) > _MAX_FIELDS:
                raise InvalidRequest(f"The form fields are larger than {_MAX_FIELDS} bytes.", field="data")
        elif self._file is not None:
            self._file.write(data)
            self._size += len(data)
            if self._size > self._cap:
                raise too_large(self._cap)

    def _end_part(self) -> None:
        self._field = None
        if self._file is not None:
            self._file.close()
            self._file = None


def form_data(fields: Mapping[str, str]) -> dict[str, Any]:
    """Return the JSON of the form field `data`, {} without one. InvalidRequest when it is no JSON object."""
    text = fields.get("data", "").strip()
    if not text:
        return {}
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as wrong:
        raise InvalidRequest(f"The form field data is not JSON: {wrong}.", field="data") from None
    if not isinstance(value, dict):
        raise InvalidRequest("The form field data is a JSON object.", field="data")
    return value
