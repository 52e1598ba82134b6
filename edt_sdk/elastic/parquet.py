"""Read single rows of parquet files, whose columns lie in groups of many rows: the groups read last are kept.

pyarrow is needed by those who have such files alone, so it is imported where it is used.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from itertools import accumulate
from pathlib import Path
from typing import Any

from edt_sdk.schemas.errors import Unprocessable

# Samples that are near each other are mixed, so at most two groups are needed at once.
_KEPT = 2


class RowGroups:
    """Reads rows. What it keeps stays behind when it is pickled, for loader processes."""

    def __init__(self) -> None:
        self._ends: dict[Path, list[int]] = {}
        self._groups: OrderedDict[tuple[Path, int], Any] = OrderedDict()

    def count(self, path: Path) -> int:
        """Return the number of rows of a file."""
        return self._ends_of(path)[-1]

    def row(self, path: Path, number: int) -> dict[str, Any]:
        """Return a row by its columns, as numbers, texts, lists and dictionaries."""
        ends = self._ends_of(path)
        group = bisect_right(ends, number)
        key = path, group
        if key not in self._groups:
            self._groups[key] = _opened(path).read_row_group(group)
            if len(self._groups) > _KEPT:
                self._groups.popitem(last=False)
        self._groups.move_to_end(key)
        found: dict[str, Any] = self._groups[key].slice(number - (ends[group - 1] if group else 0), 1).to_pylist()[0]
        return found

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_groups": OrderedDict()}

    def _ends_of(self, path: Path) -> list[int]:
        if path not in self._ends:
            known = _opened(path).metadata
            self._ends[path] = list(accumulate(known.row_group(n).num_rows for n in range(known.num_row_groups))) or [0]
        return self._ends[path]


def _opened(path: Path) -> Any:
    try:
        from pyarrow import ArrowException, parquet
    except ImportError:
        raise Unprocessable(
            f"{path.name} is a parquet file, and pyarrow is not installed.", hint="pip install pyarrow", field="files"
        ) from None
    try:
        return parquet.ParquetFile(path)
    except ArrowException as error:
        raise OSError(str(error)) from error
