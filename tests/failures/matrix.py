"""Holds the table of messages: every surface and every failure, with the message, or the reason why there is none.

`sentences.json` stores the messages of the running product. `python -m tests.failures` creates every situation, writes
the messages, and writes `docs/failures-matrix.md` from them. The tests create the same situations and compare. Parts
that differ between runs (addresses, ids, times) are replaced by fixed values.
"""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

ROOT = Path(__file__).parents[2]
SENTENCES = Path(__file__).with_name("sentences.json")
PAGE = ROOT / "docs" / "failures-matrix.md"

SURFACES = {
    "sdk": "Python: `Client`, `Job`",
    "shell": "`edt` at a shell",
    "magic": "magics in a cell",
    "repr": "card stored in a notebook",
    "wait": "training from a cell, live",
    "monitor": "monitor",
    "card": "live card in Lab",
    "panel": "side panel",
    "status": "status bar",
    "tab": "tab of a job",
    "form": "train form",
    "cluster": "slots and queues",
    "catalogue": "catalogue",
    "compare": "comparison",
}
FAILURES = {
    "gone": "The server is gone",
    "back": "It is there again",
    "token": "Token or login is not valid any more",
    "denied": "The server's Authorizer says no",
    "deleted": "The job was deleted elsewhere",
    "many": "10 000 jobs",
    "line": "A line of 1 MB",
    "nan": "Losses that are no numbers",
    "disk": "The server's disk is full",
    "version": "A server or a card of another version",
    "far": "Client mode: the far server is gone",
}

_NO_JOB = "It is not about a job."
_ONE = "It shows a single job, or a few selected ones."
_NO_TEXT = "It shows no text of a job."
_NO_LOSS = "It shows no losses."
_READS = "It only reads."
_SAME = "The page comes from the same server. An upgraded server sends a new page at the next reload."
_LIVE = "It shows jobs that hold or request slots, and ended jobs do neither."
_AS_GONE = "As when the server is gone, with the same error."

# Cells that cannot be, with the reason.
NONE: dict[tuple[str, str], str] = {
    ("wait", "deleted"): "A job can be deleted only after its end, which ends the waiting.",
    ("status", "deleted"): "It counts live jobs, which cannot be deleted.",
    ("panel", "deleted"): "Its row goes away by itself.",
    ("form", "deleted"): "Its job does not exist yet.",
    ("cluster", "deleted"): _LIVE,
    ("catalogue", "deleted"): _NO_JOB,
    ("repr", "many"): _ONE,
    ("wait", "many"): _ONE,
    ("card", "many"): _ONE,
    ("tab", "many"): _ONE,
    ("form", "many"): _NO_JOB,
    ("cluster", "many"): _LIVE,
    ("catalogue", "many"): _NO_JOB,
    ("status", "many"): _LIVE,
    ("status", "line"): _NO_TEXT,
    ("form", "line"): _NO_TEXT,
    ("cluster", "line"): _NO_TEXT,
    ("catalogue", "line"): _NO_TEXT,
    ("compare", "line"): _NO_TEXT,
    ("status", "nan"): _NO_LOSS,
    ("form", "nan"): _NO_LOSS,
    ("cluster", "nan"): _NO_LOSS,
    ("catalogue", "nan"): _NO_LOSS,
    ("repr", "disk"): _READS,
    ("monitor", "disk"): _READS,
    ("card", "disk"): _READS,
    ("panel", "disk"): _READS,
    ("status", "disk"): _READS,
    ("tab", "disk"): _READS,
    ("cluster", "disk"): "It changes a row of the store, which reports the error itself.",
    ("compare", "disk"): _READS,
    ("wait", "disk"): "It submits as `Client.submit` does.",
    ("repr", "version"): "It is HTML and sends no request.",
    ("wait", "version"): "As Python: the same client.",
    ("monitor", "version"): "As Python: the same client.",
    ("panel", "version"): _SAME,
    ("status", "version"): _SAME,
    ("tab", "version"): _SAME,
    ("form", "version"): _SAME,
    ("cluster", "version"): _SAME,
    ("catalogue", "version"): _SAME,
    ("compare", "version"): _SAME,
    ("repr", "far"): _AS_GONE,
    ("wait", "far"): _AS_GONE,
    ("monitor", "far"): _AS_GONE,
}

Cell = tuple[str, str]
Told = Callable[..., None]
Test = TypeVar("Test", bound=Callable[..., Any])


def covers(failure: str, *surfaces: str) -> Callable[[Test], Test]:
    """Marks a test as the one that makes these cells; `told` holds it to that."""

    def mark(test: Test) -> Test:
        test.covered = {*getattr(test, "covered", ()), *((surface, failure) for surface in surfaces)}  # type: ignore[attr-defined]
        return test

    return mark


_SAME_EACH_TIME = (
    (re.compile(r"https?://127\.0\.0\.1:\d+/[\w%@/]*"), "http://127.0.0.1:8888/"),
    (re.compile(r"past-\d+-[0-9a-f]{6}"), "past-01000-0003e8"),
    (re.compile(r"\d+ hold slots, \d+ wait"), "2 hold slots, 0 wait"),
    (re.compile(r"\b(?:digits|numbers|other|talker)-[0-9a-z]{6}\b"), "digits-5e2a1c"),
    (re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC"), "2026-11-21 10:42:07 UTC"),
    (re.compile(r"(?<![-\d])\d{1,2}(?: [A-Z][a-z]{2}(?: \d{4})?,?)? \d\d:\d\d(?::\d\d)?"), "10:42:07"),
    (re.compile(r"\b\d\d:\d\d:\d\d\b"), "10:42:07"),
    (re.compile(r"/[\w./-]*/(?=[\w-]+\.py\b)"), ""),
    (re.compile(r"\b\d+ (?:s|min)\b"), "12 s"),
    (re.compile(r"\s+"), " "),
)


def plain(text: str) -> str:
    """The text as it is written in the table."""
    for pattern, instead in _SAME_EACH_TIME:
        text = pattern.sub(instead, text)
    return text.strip()


def load() -> dict[Cell, str]:
    """The sentences there are."""
    kept = json.loads(SENTENCES.read_text()) if SENTENCES.exists() else {}
    return {(surface, failure): text for failure, told in kept.items() for surface, text in told.items()}


def save(sentences: dict[Cell, str]) -> None:
    """Keep these sentences, in the table's order."""
    kept = {
        failure: {surface: sentences[surface, failure] for surface in SURFACES if (surface, failure) in sentences}
        for failure in FAILURES
    }
    SENTENCES.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n")


def page(sentences: dict[Cell, str]) -> str:
    """The document."""
    lines = [
        "# Messages for every failure, on every surface",
        "",
        "`python -m tests.failures` creates this page. Each sentence is the message of the running product in that",
        "situation, read from the kernel, the shell or the browser. The tests create the same situations and compare.",
        "The reason for a dash is below the table. [When something dies](guide/failures.md) explains the remedies.",
        "",
        "| | " + " | ".join(f"[{title}](#{_anchor(title)})" for title in FAILURES.values()) + " |",
        "|---" * (len(FAILURES) + 1) + "|",
    ]
    for surface, name in SURFACES.items():
        marks = ["✓" if (surface, failure) in sentences else "–" for failure in FAILURES]
        lines.append(f"| {name} | " + " | ".join(marks) + " |")
    for failure, title in FAILURES.items():
        lines += ["", f"## {title}", "", "| Where | Message |", "|---|---|"]
        lines += [
            f"| {name} | {_cell(sentences[surface, failure])} |"
            for surface, name in SURFACES.items()
            if (surface, failure) in sentences
        ]
        reasons: dict[str, list[str]] = {}
        for surface, name in SURFACES.items():
            if (surface, failure) in NONE:
                reasons.setdefault(NONE[surface, failure], []).append(name)
        lines += [""] if reasons else []
        lines += [f"- {', '.join(names)}: {_lower(reason)}" for reason, names in reasons.items()]
    return "\n".join(lines) + "\n"


def covered() -> set[Cell]:
    """The cells that some test makes, each by one."""
    found: list[Cell] = []
    for path in Path(__file__).parent.glob("test_*.py"):
        module = importlib.import_module(f"tests.failures.{path.stem}")
        for name, value in vars(module).items():
            if name.startswith("test_"):
                found += getattr(value, "covered", ())
    assert len(found) == len(set(found)), "two tests make the same cell"
    return set(found)


def missing(made: Iterable[Cell]) -> set[Cell]:
    """Cells that are neither covered nor cannot be."""
    every = {(surface, failure) for surface in SURFACES for failure in FAILURES}
    return every - set(made) - set(NONE)


def _anchor(title: str) -> str:
    return re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")


def _lower(text: str) -> str:
    return text[0].lower() + text[1:]


def _cell(text: str) -> str:
    for sign in "\\|<>*_`":
        text = text.replace(sign, f"\\{sign}")
    return text
