"""Checks that docstrings, comments and documentation stay in plain English.

`tests.repo.prose` defines what is counted. Each limit is twice the highest figure of well-known Python projects.
When a limit is exceeded, rewrite the thought, do not swap words.
"""

from pathlib import Path

import pytest

from tests.repo import prose

# name: (figure of the source at d7f2f61, figure of the docs there, limit)
MOST = {
    "nobody, somebody, anybody": (3.59, 2.65, 0.06),
    "who, whoever, whose": (4.78, 4.35, 1.2),
    "say, said": (3.22, 3.66, 0.8),
    "tell, told": (2.39, 1.74, 0.7),
    "of one, those, it": (3.36, 1.77, 1.0),
    "semicolons": (17.75, 15.22, 4.0),
    "docstring sentences with a mark, %": (34.21, None, 8.0),
}
LEAST = {prose.FIELD: (1.24, 1.51, 2.1), "comment lines, %": (1.55, None, 3.0)}


def table(figures: prose.Figures, column: int, title: str) -> str:
    """Return the figures beside those of d7f2f61 and the limits."""
    lines = [f"{title:<44} {'d7f2f61':>8} {'now':>8} {'limit':>8}"]
    for name, now in figures.rows().items():
        *before, limit = (MOST | LEAST)[name]
        lines.append(f"{name:<44} {before[column]:8.2f} {now:8.2f} {'≤' if name in MOST else '≥'}{limit:7.2f}")
    return "\n".join(lines)


def beyond(figures: prose.Figures) -> dict[str, float]:
    """Return the figures that are beyond their limit."""
    return {
        name: round(now, 2)
        for name, now in figures.rows().items()
        if (now > MOST[name][-1] if name in MOST else now < LEAST[name][-1])
    }


@pytest.mark.parametrize(("column", "names"), [(0, prose.SOURCE), (1, prose.DOCS)], ids=["source", "docs"])
def test_the_prose_is_plain(root, capsys, column, names):
    figures = prose.measure([root / name for name in names])
    with capsys.disabled():
        print("\n" + table(figures, column, f"{' '.join(names)}, {figures.words} words"))
    assert beyond(figures) == {}


def counted(tmp_path: Path, name: str, text: str) -> prose.Figures:
    (tmp_path / name).write_text(text, encoding="utf-8")
    return prose.measure([tmp_path])


def test_marks_are_counted_in_docstrings_and_comments_and_not_in_code(tmp_path):
    figures = counted(
        tmp_path,
        "sample.py",
        '"""Tell nobody. Renew the lease."""\n'
        "who = 'whose; nobody'  # a retry; of one\n"
        '# `whoever` and "somebody" said it with --who, see https://example.org/who\n'
        "x = 1  # noqa: S101; nobody\n",
    )
    assert {name: figures.counts[name] for name in figures.rows() if name in figures.counts} == {
        "nobody, somebody, anybody": 1,
        "who, whoever, whose": 0,
        "say, said": 1,
        "tell, told": 1,
        "of one, those, it": 1,
        "semicolons": 1,
        prose.FIELD: 2,
    }
    assert (figures.sentences, figures.marked_sentences, figures.comment_lines, figures.lines) == (2, 1, 2, 4)


def test_code_blocks_and_links_of_a_page_are_not_prose(tmp_path):
    figures = counted(
        tmp_path,
        "page.md",
        "# Who\n\n```python\nnobody; said\n```\n\nThe [lease](who.md) is `told`.\n\n~~~\nwho\n~~~\n",
    )
    assert (figures.words, figures.counts["who, whoever, whose"], figures.counts[prose.FIELD]) == (4, 1, 1)
    assert figures.counts["tell, told"] == figures.counts["semicolons"] == 0
    assert "comment lines, %" not in figures.rows()
