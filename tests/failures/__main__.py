"""Makes every situation of the table, keeps what is said in it, and writes the document: `python -m tests.failures`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.failures import matrix

if __name__ == "__main__":
    os.environ["EDT_WRITE_FAILURES"] = "1"
    failed = pytest.main([str(Path(__file__).parent), "-q", "-o", "addopts=--import-mode=importlib", *sys.argv[1:]])
    kept = {cell: text for cell, text in matrix.load().items() if cell in matrix.covered()}
    matrix.save(kept)
    matrix.PAGE.write_text(matrix.page(kept))
    sys.exit(failed)
