"""Define `Validation`: the result of a validation, readable in a cell, in a terminal and in a log."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import Any

import msgspec

from edt_sdk.formatting.tables import GREY, html_table, left_out, note, text_table
from edt_sdk.schemas.validation import ClassScores, Validated

_MOST = 30
_CLASS_HEAD = ("CLASS", "LABELS", "PRECISION", "RECALL", "F1")


class Validation(Validated, frozen=True, kw_only=True):
    """Holds the results of a validation with a repr of tables. The fields but `job` are those of `Validated`.

    The loss is the script's, the other metrics are fractions.

    Attributes:
        job: id of the validation's job.
    """

    job: str

    @classmethod
    def of(cls, job: str, answer: dict[str, Any]) -> Validation:
        """Create it from the server's answer."""
        return msgspec.convert({**answer, "job": job}, cls)

    def __getitem__(self, metric: str) -> float | None:
        """Return a metric by its name."""
        return self.metrics[metric]

    def __repr__(self) -> str:
        return as_text(self)

    def _repr_html_(self) -> str:
        return as_html(self)


def as_text(result: Validated) -> str:
    """Return a table of the metrics, then the classes and the confusion matrix where they were requested."""
    parts = [_head(result), text_table(("METRIC", "VALUE"), list(_rows(result)))]
    shown = min(_MOST, result.classes or 0)
    if result.per_class:
        parts.append(text_table(_CLASS_HEAD, [_class_row(each) for each in result.per_class[:shown]]))
    if result.confusion is not None:
        cells = [[label, *row[:shown]] for label, row in enumerate(result.confusion[:shown])]
        parts.append("Rows are labels, columns what the model said:\n" + text_table(("", *range(shown)), cells))
    if (result.per_class or result.confusion is not None) and (rest := left_out(result.classes or 0, shown)):
        parts.append(f"({rest} validation.json has all of them.)")
    return "\n\n".join(parts)


def as_html(result: Validated) -> str:
    """Return the same for a notebook. Each row of the confusion matrix is shaded by its shares."""
    parts = [f"<p>{escape(_head(result))}</p>", html_table(("METRIC", "VALUE"), list(_rows(result)))]
    shown = min(_MOST, result.classes or 0)
    if result.per_class:
        parts.append(html_table(_CLASS_HEAD, [_class_row(each) for each in result.per_class[:shown]]))
    if result.confusion is not None:
        parts.append(_confusion_html(result.confusion, shown))
    if result.per_class or result.confusion is not None:
        parts.append(note(left_out(result.classes or 0, shown)))
    return parts[0] + "<br/>".join(filter(None, parts[1:]))


def _head(result: Validated) -> str:
    by = f"; class 1 from a score of {result.threshold:g} on" if result.threshold is not None else ""
    of = f", {result.classes} classes" if result.classes else ""
    return f"Validation of {result.training_name} ({result.training}): {result.samples:,} samples{of}{by}"


def _rows(result: Validated) -> Iterator[tuple[str, str]]:
    for name, value in (*result.metrics.items(), *result.own.items()):
        yield name, "not a number" if value is None else f"{value:.6g}"


def _class_row(each: ClassScores) -> tuple[object, ...]:
    return each.label, each.samples, f"{each.precision:.4f}", f"{each.recall:.4f}", f"{each.f1:.4f}"


def _confusion_html(confusion: tuple[tuple[int, ...], ...], shown: int) -> str:
    """Return a table with a caption. Cells are shaded by the share of their row, with readable numbers."""
    cell = "text-align: right; padding: 1px 8px"
    head = "".join(f'<th scope="col" style="{cell}; color: {GREY}">{label}</th>' for label in range(shown))
    rows = []
    for label, row in enumerate(confusion[:shown]):
        # A class without labels has a row of zeros.
        total = sum(row) or 1
        cells = "".join(
            f'<td style="{cell}; background: rgba(31, 119, 180, {0.55 * count / total:.2f})">{count or "·"}</td>'
            for count in row[:shown]
        )
        rows.append(f'<tr><th scope="row" style="{cell}; color: {GREY}">{label}</th>{cells}</tr>')
    caption = '<caption style="text-align: left">Rows are labels, columns what the model said.</caption>'
    return f"<table>{caption}<tr><th></th>{head}</tr>{''.join(rows)}</table>"
