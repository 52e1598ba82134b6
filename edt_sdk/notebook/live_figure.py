"""Draw the figure of a training: loss above, steps per second and workers below, as WMLA's notebooks showed it.

Pure: from `Curves` to the bytes of a picture. With matplotlib a PNG, drawn by its object interface alone, so that the
user's pyplot, style and backend neither change it nor are changed. Without matplotlib the figure is SVG. Mid-tones on a
transparent ground, legible on white and on black. Only our own words are drawn: a job's name may need any font.
"""

from __future__ import annotations

from base64 import b64encode
from io import BytesIO
from typing import TYPE_CHECKING, Any

from edt_sdk.notebook.curves import Curves
from edt_sdk.pictures.parts.look import ACCENT, GREEN, ORANGE, TEXT
from edt_sdk.pictures.parts.panel import PanelLine, panels
from edt_sdk.pictures.parts.paper import image

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH, HEIGHT = 1200, 800
_DPI = 100


def bundle(curves: Curves) -> tuple[dict[str, Any], dict[str, Any]]:
    """The figure as a MIME bundle, and that bundle's metadata."""
    says = f"{loss_title(curves)}. {rate_title(curves)}."
    picture = png(curves)
    if picture is None:
        return {"text/html": image(svg(curves), says), "text/plain": says}, {}
    # The size reserves the place while a front end decodes the next picture: nothing jumps.
    return {"image/png": b64encode(picture).decode(), "text/plain": says}, {
        "image/png": {"width": WIDTH, "height": HEIGHT}
    }


def loss_title(curves: Curves) -> str:
    """The current losses, such as "Train loss 0.1234, test loss 0.1456"."""
    return f"Train loss {_number(curves.loss)}, test loss {_number(curves.test_loss)}"


def rate_title(curves: Curves) -> str:
    """The current speed, such as "41.2 steps per second with 4 workers, average 35.0"."""
    workers = f"{curves.workers} worker{'' if curves.workers == 1 else 's'}"
    stretches, average = curves.stretches(), curves.average()
    if not stretches or average is None:
        return f"Steps per second with {workers}"
    return f"{_rate(stretches[-1].rate)} steps per second with {workers}, average {_rate(average)}"


def png(curves: Curves) -> bytes | None:
    """Return the figure, 1200 × 800 pixels, or None where there is no matplotlib."""
    try:
        from matplotlib import style
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        return None
    own: dict[str, Any] = {"text.color": TEXT, "axes.labelcolor": TEXT, "axes.edgecolor": TEXT, "xtick.color": TEXT}
    own |= {"ytick.color": TEXT, "grid.color": TEXT, "grid.alpha": 0.25, "font.size": 15.0, "axes.titlesize": 19.0}
    # The notebook's own rcParams must not change this figure, and drawing must not change them.
    with style.context(["default", own]):
        figure = Figure(figsize=(WIDTH / _DPI, HEIGHT / _DPI), dpi=_DPI)
        # Fixed margins: a layout that measures every label takes half the time of a drawing, and makes axes jump.
        figure.subplots_adjust(left=0.085, right=0.925, top=0.945, bottom=0.08, hspace=0.3)
        figure.patch.set_alpha(0.0)
        canvas: Any = FigureCanvasAgg(figure)  # its methods are untyped
        above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
        _draw_losses(above, curves)
        _draw_rates(below, curves)
        for axes in (above, below):
            axes.patch.set_alpha(0.0)
            axes.grid(visible=True)
            axes.spines["top"].set_visible(False)
        above.spines["right"].set_visible(False)
        file = BytesIO()
        canvas.print_png(file)
    return file.getvalue()


def svg(curves: Curves) -> str:
    """Return the figure as SVG text, of the same size."""
    fast = [(x, y) for s in curves.stretches() for x, y in ((s.first, s.rate), (s.last, s.rate))]
    workers = [(x, float(s.workers)) for s in curves.stretches() for x, y in ((s.first, 0), (s.last, 0))]
    smooth = curves.smooth()
    train = PanelLine("train loss", smooth or curves.losses(), ACCENT)
    raw = [PanelLine("", curves.losses(), ACCENT, faint=True)] if smooth else []
    above = [*raw, train, PanelLine("test loss", curves.test, ORANGE, dots=True)]
    below = [PanelLine("workers", workers, GREEN), PanelLine("steps per second", fast, ACCENT)]
    return panels([(loss_title(curves), above), (rate_title(curves), below)], "Steps", width=WIDTH, height=HEIGHT)


def _draw_losses(axes: Axes, curves: Curves) -> None:
    points, smooth = curves.losses(), curves.smooth()
    if smooth:
        axes.plot(*_columns(points), color=ACCENT, alpha=0.4, linewidth=1)
    axes.plot(*_columns(smooth or points), color=ACCENT, linewidth=2.5, label="train loss")
    if curves.test:
        axes.plot(
            *_columns(curves.test),
            color=ORANGE,
            linewidth=2.5,
            marker="o",
            markersize=8,
            label="test loss",
            clip_on=False,
        )
    axes.set_title(loss_title(curves))
    axes.set_ylabel("Loss")
    # From 0 to the present step, so that both panels and all later figures start at the same place.
    axes.set_xlim(0, max(1, curves.steps))
    axes.tick_params(labelbottom=True)
    axes.legend(loc="best", frameon=False, labelcolor=TEXT)


def _draw_rates(axes: Axes, curves: Curves) -> None:
    from matplotlib.ticker import MaxNLocator

    stretches = curves.stretches()
    beside = axes.twinx()
    beside.patch.set_alpha(0.0)
    beside.spines["top"].set_visible(False)
    beside.set_ylabel("Workers", color=GREEN)
    beside.tick_params(axis="y", colors=GREEN)
    beside.yaxis.set_major_locator(MaxNLocator(nbins=4, integer=True, min_n_ticks=1))
    if stretches:
        edges = [stretches[0].first, *(stretch.last for stretch in stretches)]
        beside.stairs([s.workers for s in stretches], edges, color=GREEN, alpha=0.22, fill=True)
        beside.stairs([s.workers for s in stretches], edges, color=GREEN, linewidth=1.5, baseline=None)
        axes.stairs([s.rate for s in stretches], edges, color=ACCENT, linewidth=2.5, baseline=None)
    beside.set_ylim(0, 1.15 * max([1, *(s.workers for s in stretches)]))
    # Updates that are reported late make a piece look far too fast. It must not press the others flat.
    usual = sorted(s.rate for s in stretches)[int(0.98 * len(stretches)) - 1 :][:1] if stretches else [1.0]
    axes.set_ylim(0, 1.25 * usual[0])
    axes.set_title(rate_title(curves))
    axes.set_xlabel("Steps")
    axes.set_ylabel("Steps per second", color=ACCENT)
    # The line of the rate lies above the area of the workers, and must be seen through nothing.
    axes.set_zorder(beside.get_zorder() + 1)


def _columns(points: list[tuple[int, float]]) -> tuple[list[int], list[float]]:
    return [x for x, _ in points], [y for _, y in points]


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}"


def _rate(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"
