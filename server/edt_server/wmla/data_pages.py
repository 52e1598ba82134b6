"""Show a page of a data set as the console does: rows of a CSV file, or pictures with their labels. Blocks."""

from __future__ import annotations

import csv
import json
import math
from io import TextIOWrapper
from itertools import chain, islice
from pathlib import Path
from typing import Any

from edt_sdk.schemas.catalogue import Dataset
from edt_sdk.schemas.errors import InvalidRequest, NotFound
from edt_sdk.schemas.wire.regular import open_regular

_PICTURES = frozenset({".bmp", ".gif", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp"})
_LABELS = (".txt", ".xml", ".json")
MOST = 1000


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
        reader = csv.reader(content)
        first = next(reader, [])
        # A first line of numbers is data, not a header.
        headed = not all(isinstance(_cell(cell), float) for cell in first)
        head = first if headed else [str(number) for number in range(len(first))]
        lines = reader if headed else (line for line in chain([first], reader) if line)
        data = [[_cell(cell) for cell in line] for line in islice(lines, start, start + length)]
    index = [str(number) for number in range(start, start + len(data))]
    return {
        "columns": head,
        "index": index,
        "data": data,
        "JSONString": json.dumps({"columns": head, "index": index, "data": data}),
    }


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
    # Sorted, because a client asks page by page and the order of a folder's entries may differ from request to request.
    return iter(sorted(file for file in folder.rglob("*") if file.suffix.lower() in ends and file.is_file()))


def _cell(text: str) -> float | str:
    try:
        number = float(text)
    except ValueError:
        return text
    return number if math.isfinite(number) else text  # JSON has no others
