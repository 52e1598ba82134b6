"""Show a page of a data set as the console does: rows of a CSV file, or pictures with their labels. Blocks."""

from __future__ import annotations

import csv
import math
import os
from collections.abc import Iterator
from io import TextIOWrapper
from itertools import chain, islice
from pathlib import Path
from typing import Any

import msgspec

from edt_sdk.schemas.catalogue import Dataset
from edt_sdk.schemas.errors import InvalidRequest, NotFound, TooLarge, Unprocessable
from edt_sdk.schemas.wire.regular import open_regular

_PICTURES = frozenset({".bmp", ".gif", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp"})
_LABELS = (".txt", ".xml", ".json")
MOST = 1000
FARTHEST = 10**9
# Characters of a page, which takes many times as much memory where a cell is a digit.
_MOST_TEXT = 1 << 20


def part_of(dataset: Dataset, name: str) -> Path:
    """Return the folder of a part. InvalidRequest for an unknown name."""
    parts = {"train": dataset.train, "test": dataset.test, "val": dataset.val}
    if name.lower() not in parts:
        raise InvalidRequest(f"type is Train, Test or Val, not {name!r}.", field="type")
    return Path(dataset.place, parts[name.lower()])


def rows(folder: Path, start: int, length: int) -> dict[str, Any]:
    """Return rows of the first CSV file from `start` on. Numbers are numbers, other cells are texts."""
    file = next(_files(folder, {".csv"}), None)
    if file is None:
        raise NotFound(f"There is no .csv file in {folder}.", hint="The data set holds something else.")
    with TextIOWrapper(open_regular(file), encoding="utf-8", errors="replace", newline="") as content:
        lines = _Lines(content)
        try:
            reader = csv.reader(lines)
            first = next(reader, [])
            # A first line of numbers is data, not a header.
            headed = not all(isinstance(_cell(cell), float) for cell in first)
            head = first if headed else [str(number) for number in range(len(first))]
            found = reader if headed else (line for line in chain([first], reader) if line)
            for _ in islice(found, start):
                lines.left = _MOST_TEXT  # a row that is passed over is forgotten
            data = [[_cell(cell) for cell in line] for line in islice(found, length)]
        except csv.Error as wrong:
            raise Unprocessable(f"{file.name} cannot be read as CSV: {wrong}.") from None
    index = [str(number) for number in range(start, start + len(data))]
    page = {"columns": head, "index": index, "data": data}
    return {**page, "JSONString": msgspec.json.encode(page).decode()}


class _Lines:
    """The lines of a file, of which `left` more characters may be read. TooLarge after that."""

    def __init__(self, content: TextIOWrapper) -> None:
        self._content = content
        self.left = _MOST_TEXT

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        # A file without any line break is one line, and need not fit into memory.
        line = self._content.readline(self.left + 1)
        self.left -= len(line)
        if self.left < 0:
            raise TooLarge(f"The page has more than {_MOST_TEXT} characters.", hint="Ask for fewer rows by length=.")
        if not line:
            raise StopIteration
        return line


def pictures(folder: Path, start: int, length: int) -> list[dict[str, str]]:
    """Return pictures by name from `start` on, each with the file of its labels, else the name of its folder."""
    found = []
    for file in islice(_files(folder, _PICTURES), start, start + length):
        labels = next((str(beside) for end in _LABELS if (beside := file.with_suffix(end)).is_file()), file.parent.name)
        found.append({"name": file.name, "path": str(file), "labels": labels})
    return found


def _files(folder: Path, ends: frozenset[str] | set[str]) -> Any:
    if folder.is_file():
        return iter([folder])
    return _below(folder, ends)


def _below(folder: Path, ends: frozenset[str] | set[str]) -> Iterator[Path]:
    # Sorted, because a client asks page by page and the order of a folder's entries may differ from request to request.
    # Folder by folder, because all names of a data set may be more than fits into memory.
    for place, folders, files in os.walk(folder):
        folders.sort()
        for name in sorted(files):
            path = Path(place, name)
            if path.suffix.lower() in ends and path.is_file():
                yield path


def _cell(text: str) -> float | str:
    try:
        number = float(text)
    except ValueError:
        return text
    return number if math.isfinite(number) else text  # JSON has no others
