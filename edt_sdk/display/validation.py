"""`Validation`: what a validation came to, as a value that reads well in a cell, in a terminal and in a log."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from typing import Any

import msgspec

from edt_sdk.formatting.html_table import GREY, left_out, note, table
from edt_sdk.formatting.text_table import table as text_table
from edt_sdk.schemas.validation import ClassScores, Validated

_MOST = 30


@dataclass(frozen=True, slots=True)
class Validation:
    """The results of one validation.

    Attributes:
        job: id of the validation's job.
        training, training_name: id and name of the job that trained what was validated.
        samples: of the test data.
        metrics: those that were asked for and are one number, by name, in that order; loss is the script's, the others
            are fractions. None for one that is not a number.
        own: means of the metrics that the script gave `FabricModel`, by name.
        classes: how many there are, None where only the loss was asked for.
        threshold: what binary outputs were compared with, None where the highest score counted.
        confusion: counts; rows are labels, columns what the model said. None where it was not asked for.
        per_class: each class with its `label`, `samples`, `precision`, `recall`, `f1`; where one of them was asked for.
        time: of its end, seconds since the epoch.
    """

    job: str
    training: str
    training_name: str
    samples: int
    metrics: dict[str, float | None]
    own: dict[str, float | None]
    classes: int | None
    threshold: float | None
    confusion: tuple[tuple[int, ...], ...] | None
    per_class: tuple[ClassScores, ...]
    time: float

    @classmethod
    def of(cls, job: str, answer: Any) -> Validation:
        """From what the server answers."""
        result = msgspec.convert(answer, Validated)
        return cls(job=job, **{name: getattr(result, name) for name in Validated.__struct_fields__})

    def __getitem__(self, metric: str) -> float | None:
        """A metric by its name."""
        return self.metrics[metric]

    def __repr__(self) -> str:
        return as_text(self)

    def _repr_html_(self) -> str:
        return as_html(self)


def as_text(result: Validated | Validation) -> str:
    """A small table of the metrics, then of the classes and the confusion matrix where they were asked for."""
    parts = [_head(result), text_table(("METRIC", "VALUE"), list(_rows(result)))]
    shown = min(_MOST, result.classes or 0)
    if result.per_class:
        head = ("CLASS", "LABELS", "PRECISION", "RECALL", "F1")
        parts.append(text_table(head, [_class_row(each) for each in result.per_class[:shown]]))
    if result.confusion is not None:
        cells = [[label, *row[:shown]] for label, row in enumerate(result.confusion[:shown])]
        parts.append("Rows are labels, columns what the model said:\n" + text_table(("", *range(shown)), cells))
    if (result.per_class or result.confusion is not None) and (rest := left_out(result.classes or 0, shown)):
        parts.append(f"({rest} validation.json has all of them.)")
    return "\n\n".join(parts)


def as_html(result: Validated | Validation) -> str:
    """The same for a notebook; the confusion matrix is shaded, each row by its own share."""
    parts = [f"<p>{escape(_head(result))}</p>", table(("Metric", "Value"), list(_rows(result)), empty="")]
    shown = min(_MOST, result.classes or 0)
    if result.per_class:
        head = ("Class", "Labels", "Precision", "Recall", "F1")
        parts.append(table(head, [_class_row(each) for each in result.per_class[:shown]], empty=""))
    if result.confusion is not None:
        parts.append(_confusion_html(result.confusion, shown))
    if result.per_class or result.confusion is not None:
        parts.append(note(left_out(result.classes or 0, shown)))
    return parts[0] + "<br/>".join(filter(None, parts[1:]))


def _head(result: Validated | Validation) -> str:
    by = f"; class 1 from a score of {result.threshold:g} on" if result.threshold is not None else ""
    of = f", {result.classes} classes" if result.classes else ""
    return f"Validation of {result.training_name} ({result.training}): {result.samples:,} samples{of}{by}"


def _rows(result: Validated | Validation) -> Iterator[tuple[str, str]]:
    for name, value in (*result.metrics.items(), *result.own.items()):
        yield name, "not a number" if value is None else f"{value:.6g}"


def _class_row(each: ClassScores) -> tuple[object, ...]:
    return each.label, each.samples, f"{each.precision:.4f}", f"{each.recall:.4f}", f"{each.f1:.4f}"


def _confusion_html(confusion: tuple[tuple[int, ...], ...], shown: int) -> str:
    """A table with a caption; cells are shaded by the share of their row, and numbers stay readable on any ground."""
    cell = "text-align: right; padding: 1px 8px"
    head = "".join(f'<th scope="col" style="{cell}; color: {GREY}">{label}</th>' for label in range(shown))
    rows = []
    for label, row in enumerate(confusion[:shown]):
        total = sum(row) or 1
        cells = "".join(
            f'<td style="{cell}; background: rgba(31, 119, 180, {0.55 * count / total:.2f})">{count or "·"}</td>'
            for count in row[:shown]
        )
        rows.append(f'<tr><th scope="row" style="{cell}; color: {GREY}">{label}</th>{cells}</tr>')
    caption = '<caption style="text-align: left">Rows are labels, columns what the model said.</caption>'
    return f"<table>{caption}<tr><th></th>{head}</tr>{''.join(rows)}</table>"
