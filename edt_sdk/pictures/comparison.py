"""The losses of up to five jobs over one axis, each in its job's colour and with its own dash pattern."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from edt_sdk.pictures.curves import LEFT, Loss, dots, drawable, lines, loss_axis, loss_frame, loss_grid, smoothed
from edt_sdk.pictures.parts.colours import compared_colours
from edt_sdk.pictures.parts.lettering import shortened
from edt_sdk.pictures.parts.look import Look
from edt_sdk.pictures.parts.paper import SMALL, document, legend, line, notice, tag, told, words
from edt_sdk.pictures.parts.scales import Frame

MOST_JOBS = 5
_POINTS = 160
_DASHES = (None, "8 3", "2 3", "10 3 2 3", "5 2 1 2 1 2")


@dataclass(frozen=True, slots=True)
class Compared:
    """One job: its id, its name, and its losses. Validations are drawn as dots."""

    job: str
    name: str
    train: tuple[Loss, ...]
    test: tuple[Loss, ...] = ()

    def says(self) -> str:
        """Return the job's name and last loss."""
        known = [point.loss for point in self.train if point.known]
        if known:
            return f"{self.name} {known[-1]:.4g}"
        return f"{self.name} not a number" if self.train else f"{self.name} none yet"


@dataclass(frozen=True, slots=True)
class Comparison:
    """The data of the picture.

    Attributes:
        jobs: at most `MOST_JOBS` of them are drawn.
        axis: the x axis, one of `curves.AXES`. Time is in seconds since each job started.
    """

    jobs: tuple[Compared, ...]
    axis: str = "samples"

    def says(self) -> str:
        """Return the picture as one sentence."""
        return f"Training loss at the end: {', '.join(job.says() for job in self.jobs)}."


def draw_comparison(comparison: Comparison, look: Look | None = None, *, smooth: float = 0.0, log: bool = False) -> str:
    """Draw the picture as an SVG document. `smooth` and `log` are those of `draw_losses`."""
    look = look or Look()
    jobs = comparison.jobs[:MOST_JOBS]
    curves = [(job, drawable(job.train, _POINTS), drawable(job.test, _POINTS)) for job in jobs]
    points = [point for _, train, test in curves for point in (*train, *test)]
    if len(points) < 2:
        return notice(look, f"{comparison.says()} The curves begin with the second update.")
    # Losses that are all NaN have no scale, and an empty frame would look like a defect.
    if not any(point.known for point in points):
        return notice(look, f"{comparison.says()} There is nothing to draw: try a smaller learning rate.")
    ink, dyes = look.ink, compared_colours(job.job for job in jobs)
    rows, high = legend(look, LEFT, 4, list(_legend(jobs, dyes, bool(smooth), look)))
    top = high + 18
    frame = loss_frame(points, top, top + look.height(0.36, 140, 400), look.width - 10, log=log)
    parts = [*rows, *loss_grid(frame, look), words(6, top - 7, "loss", ink.soft)]
    for (job, train, test), dash, colour in zip(curves, _DASHES, dyes, strict=False):
        parts += _curve(job, train, test, smooth, dash, colour, frame)
    parts.append(line(frame.left, frame.bottom, frame.right, frame.bottom, ink.line))
    parts += loss_axis(comparison.axis, frame, look, clock=False)
    return document(look, frame.bottom + 24, comparison.says(), parts)


def _curve(
    job: Compared,
    train: Sequence[Loss],
    test: Sequence[Loss],
    smooth: float,
    dash: str | None,
    colour: str,
    frame: Frame,
) -> Iterator[str]:
    smooth_line = smoothed(train, smooth)
    shapes = [*lines(train, frame, colour, 1, opacity="0.3")] if smooth_line else []
    shapes += lines(smooth_line or train, frame, colour, 2, dash=dash)
    # A line needs two points. A single one would be invisible.
    if len([point for point in train if point.known]) == 1:
        shapes.append(dots(train, frame, colour, 6))
    shapes.append(dots(test, frame, colour, 6))
    yield told("".join(shapes), job.says())


def _legend(jobs: Sequence[Compared], dyes: Sequence[str], smooth: bool, look: Look) -> Iterator[tuple[str, str]]:
    room = min(240.0, look.width - LEFT - 40)
    for job, dash, colour in zip(jobs, _DASHES, dyes, strict=False):
        name = shortened(job.name, room, SMALL) or job.job
        yield tag("path", d="M-9 0H8", stroke=colour, stroke_width=2.2, stroke_dasharray=dash), name
    if any(job.test for job in jobs):
        yield tag("circle", r=3, fill=look.ink.soft), "test loss"
    if smooth:
        yield tag("path", d="M-7 0H7", stroke=look.ink.soft, opacity="0.4"), "before smoothing"
