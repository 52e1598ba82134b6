"""`make labs`: jupyter-edt in every JupyterLab and Notebook that it supports, one after the other, and a table.

    python -m tests.labs 4.2 4.6           only these two
    python -m tests.labs --all-tests       every browser test instead of the tour, most of an hour each

Makes an environment in `.labs/` for each (torch is that of .venv), opens it in Chromium, takes the tour of
`tests/browser/test_tour.py` through it and keeps pictures in `.labs/<name>/shots`. Exit code 1 if anything fails.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

from tests.labs import environments
from tests.labs.combinations import COMBINATIONS, Combination

PLACE = environments.REPOSITORY / ".labs"
SHOWN = ("jupyterlab", "notebook", "jupyter-server", "ipywidgets")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [each.name for each in COMBINATIONS]
    parser.add_argument("names", nargs="*", choices=[*names, []], help=f"which (default: {' '.join(names)})")
    parser.add_argument("--all-tests", action="store_true", help="every browser test, not the tour alone")
    options = parser.parse_args()
    wheel = environments.build_wheel(PLACE / "wheel")
    results: dict[str, dict[str, str]] = {}
    for combination in COMBINATIONS:
        if combination.name in (options.names or names):
            results[combination.name] = one(combination, wheel, "." if options.all_tests else "test_tour.py")
    print(table(results))
    return 0 if all(how == "✓" for column in results.values() for how in column.values()) else 1


def one(combination: Combination, wheel: Path, tests: str) -> dict[str, str]:
    """Open it; what of the tour went how."""
    folder = PLACE / combination.name
    python = environments.make(folder, wheel, combination.requirements)
    told = ", ".join(map(" ".join, zip(SHOWN, environments.versions(python, *SHOWN), strict=True)))
    print(f"{combination.name}: {told}", flush=True)
    report = folder / "report.xml"
    command = [sys.executable, "-m", "pytest", "-q", "--tb=short", "-p", "no:cacheprovider", f"--junitxml={report}"]
    environ = os.environ | {"EDT_LAB_PYTHON": str(python), "EDT_SCREENSHOTS": str(folder / "shots")}
    if tests == ".":
        del environ["EDT_SCREENSHOTS"]  # the pictures of the guides are tests too
    subprocess.run([*command, f"tests/browser/{tests}"], cwd=environments.REPOSITORY, env=environ, check=False)
    return read(report)


def read(report: Path) -> dict[str, str]:
    """A test and how it went: ✓, ✗ or – when it was left out."""
    marks = {"failure": "✗", "error": "✗", "skipped": "–"}
    return {
        case.attrib["name"].removeprefix("test_").replace("_", " "): next(
            (marks[child.tag] for child in case if child.tag in marks), "✓"
        )
        for case in ElementTree.parse(report).iter("testcase")
    }


def table(results: dict[str, dict[str, str]]) -> str:
    """Rows are what was tried, columns where."""
    tried = list(dict.fromkeys(name for column in results.values() for name in column))
    width = max(map(len, tried), default=0)
    head = " " * width + "".join(f"{name:>8}" for name in results)
    rows = [name.ljust(width) + "".join(f"{c.get(name, ' '):>8}" for c in results.values()) for name in tried]
    return "\n".join([head, *rows])


if __name__ == "__main__":
    sys.exit(main())
