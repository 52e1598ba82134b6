"""How a benchmark ends: a table, its checks, a JSON file in `.bench/`, an exit code."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.summary import Check

REPOSITORY = Path(__file__).resolve().parents[1]
ROOT = REPOSITORY / ".bench"


def table(rows: Sequence[Sequence[str]]) -> str:
    """Rows of words in columns; the first row is the heading."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  " + "  ".join(word.ljust(width) for word, width in zip(row, widths, strict=True)) for row in rows]
    lines.insert(1, "  " + "  ".join("-" * width for width in widths))
    return "\n".join(line.rstrip() for line in lines)


def finish(name: str, results: Mapping[str, Any], checks: Sequence[Check], folder: Path = ROOT) -> int:
    """Print the checks, write `<folder>/<name>.json`; 0 when all targets are reached, else 1."""
    print()
    for check in checks:
        print(f"  {check.text()}")
    folder.mkdir(parents=True, exist_ok=True)
    verdicts = [
        {
            "what": check.what,
            "value": check.value,
            "side": check.side,
            "target": check.target,
            "reached": check.reached,
        }
        for check in checks
    ]
    path = folder / f"{name}.json"
    path.write_text(json.dumps({**results, "checks": verdicts, "machine": machine()}, indent=1) + "\n")
    print(f"  written to {path}")
    return 0 if all(check.reached for check in checks) else 1


def machine() -> dict[str, Any]:
    """What the figures depend on."""
    return {
        "cores": len(os.sched_getaffinity(0)),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "torch": version("torch"),
        "load_1_min": round(os.getloadavg()[0], 2),
    }
