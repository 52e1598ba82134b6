"""Counts habits of speech that make prose hard to read, in docstrings, comments and Markdown.

`python -m tests.repo.prose [paths]` prints the figures for the given files and folders, by default for the source and
for the docs. `--show` also prints every sentence and comment with a mark.

A mark is one of the patterns in `MARKS`, counted per 1000 words. Code spans, code blocks, doctests, text in double
quotes, link targets, URLs, flags such as `--who` and comments for a tool (`# noqa`, `# type:`) do not count.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import io
import re
import tokenize
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ("edt_sdk", "server", "jupyter_ext")
DOCS = ("docs", "README.md")
SKIPPED = {"node_modules", ".venv", "labextension", "__pycache__"}

MARKS = {
    "nobody, somebody, anybody": r"(?:no|some|any|every)body",
    "who, whoever, whose": r"(?:who|whoever|whom|whose)",
    "say, said": r"(?:say|says|said|saying)",
    "tell, told": r"(?:tell|tells|told|telling)",
    "of one, those, it": r"of\s+(?:one|those|it)",
    "semicolons": r";",
}
FIELD = "words of the field"
# The words that an engineer searches for, with the endings of their verbs and nouns.
FIELD_WORDS = r"""(?:
    locks?|locked|locking|deadlocks?|caches?|cached|caching|retr(?:y|ies|ied|ying)|timeouts?|leases?|heartbeats?
    |callbacks?|atomic|atomically|deadlines?|idempotent|preempt(?:s|ed|ion)?|fencing|back-?off|races?|grace[ ]period
)"""
_PATTERNS = {
    name: re.compile(pattern if name == "semicolons" else rf"(?<![\w-]){pattern}(?![\w-])", re.I | re.X)
    for name, pattern in (MARKS | {FIELD: FIELD_WORDS}).items()
}
_MARK = re.compile("|".join(f"(?:{_PATTERNS[name].pattern})" for name in MARKS), re.I | re.X)

_FENCE = re.compile(r"^[ ]*(```|~~~).*?^[ ]*\1[ ]*$", re.M | re.S)
_NOT_PROSE = re.compile(
    r"""<!--.*?-->|``.+?``|`[^`]+`|"[^"\n]{1,200}"|“[^”]{1,200}”|\]\([^)]*\)|https?://\S+|</?[a-z][^>\n]*>|&\w+;
    |(?<!\w)--?[a-z][\w-]*""",
    re.X | re.S,
)
_EXAMPLE = re.compile(r"^[ ]*(?:>>>|\.\.\.[ ]).*$", re.M)
_TO_A_TOOL = re.compile(r"#\s*(?:noqa|type:|pragma|fmt:|ruff:|mypy:|!|-\*-|pyright)")
_WORD = re.compile(r"[A-Za-z][A-Za-z'’-]*")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[^a-z])|\n\s*\n")


@dataclass
class Figures:
    """The counts of some files: words, marks, docstring sentences, and lines of Python."""

    words: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    sentences: int = 0
    marked_sentences: int = 0
    lines: int = 0
    comment_lines: int = 0
    shown: list[str] = field(default_factory=list)

    def per_1000(self, name: str) -> float:
        """Return how often a mark, or a word of the field, stands in 1000 words."""
        return 1000 * self.counts[name] / max(self.words, 1)

    @property
    def marked_share(self) -> float:
        """Return the percentage of docstring sentences that carry a mark."""
        return 100 * self.marked_sentences / max(self.sentences, 1)

    @property
    def comment_share(self) -> float:
        """Return the percentage of lines of Python that have a comment."""
        return 100 * self.comment_lines / max(self.lines, 1)

    def rows(self) -> dict[str, float]:
        """Return every figure by its name, in the order of the table."""
        rows = {name: self.per_1000(name) for name in _PATTERNS}
        if self.lines:
            rows |= {"docstring sentences with a mark, %": self.marked_share, "comment lines, %": self.comment_share}
        return rows

    def add(self, text: str, where: str) -> None:
        """Count the words and marks of `text`, from which code and quotations are already gone."""
        self.words += len(_WORD.findall(text))
        for name, pattern in _PATTERNS.items():
            self.counts[name] += len(pattern.findall(text))
        if _MARK.search(text):
            self.shown.append(f"{where}: {' '.join(text.split())}")


def prose_of(text: str) -> str:
    """Return `text` without code, quotations, link targets and URLs."""
    return _NOT_PROSE.sub(" ` ", _EXAMPLE.sub("", _FENCE.sub("", text)))


def sentences_of(text: str) -> list[str]:
    """Return the sentences of a text, those without any word left out."""
    return [part for part in _SENTENCE_END.split(text) if _WORD.search(part)]


def _count_python(path: Path, figures: Figures) -> None:
    source = path.read_text(encoding="utf-8")
    figures.lines += len(source.splitlines())
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        if docstring := ast.get_docstring(node):
            where = f"{path}:{node.body[0].lineno}"
            for sentence in sentences_of(prose_of(inspect.cleandoc(docstring))):
                figures.sentences += 1
                figures.marked_sentences += bool(_MARK.search(sentence))
                figures.add(sentence, where)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and not _TO_A_TOOL.match(token.string):
            figures.comment_lines += 1
            figures.add(prose_of(token.string.lstrip("#: ")), f"{path}:{token.start[0]}")


def _count_markdown(path: Path, figures: Figures) -> None:
    for paragraph in re.split(r"\n\s*\n", prose_of(path.read_text(encoding="utf-8"))):
        for sentence in sentences_of(paragraph):
            figures.add(sentence, str(path))


def files_under(paths: Iterable[Path]) -> Iterator[Path]:
    """Yield the Python and Markdown files among the given files and folders, in a fixed order."""
    for path in paths:
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file.suffix in (".py", ".md") and not SKIPPED.intersection(file.parts):
                yield file


def measure(paths: Iterable[Path]) -> Figures:
    """Return the figures of all Python and Markdown files under `paths`."""
    figures = Figures()
    for path in files_under(paths):
        (_count_python if path.suffix == ".py" else _count_markdown)(path, figures)
    return figures


def main() -> None:
    """Print the figures of the paths on the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.repo.prose", description="Measure the prose of some files.")
    parser.add_argument("paths", nargs="*", type=Path, help="files and folders (default: the source, then the docs)")
    parser.add_argument("--show", action="store_true", help="print every sentence and comment with a mark")
    asked = parser.parse_args()
    groups = [asked.paths] if asked.paths else [[ROOT / name for name in names] for names in (SOURCE, DOCS)]
    for paths in groups:
        figures = measure(paths)
        print(*figures.shown if asked.show else (), f"{figures.words} words", sep="\n")
        for name, value in figures.rows().items():
            print(f"{value:8.2f}  {name}")


if __name__ == "__main__":
    main()
