"""The machine now: a row a host, a cell a slot in the colour of its job, slots that are not in use hatched.

Every state has a word in the legend, and every cell one in its tooltip. On a machine of many hundreds of slots a row
shows the number of slots in each state.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from edt_sdk.pictures.parts.colours import Colours, colours, weave_defs
from edt_sdk.pictures.parts.lettering import shortened, width_of
from edt_sdk.pictures.parts.look import Ink, Look, on_colour
from edt_sdk.pictures.parts.paper import SMALL, document, legend, notice, tag, told, words

# The states of a slot and their words. A held slot has its job's name instead.
STATES = {
    "held": "held",
    "leaving": "being given back",
    "idle": "free",
    "fenced": "used by another job store",
    "lost": "lost with its host",
}
_MOST_HOSTS = 48
_MOST_CELLS = 400
_MOST_NAMES = 12
_ROW, _GAP = 24.0, 6.0
_NARROW, _BROAD = 20.0, 96.0


@dataclass(frozen=True, slots=True)
class SlotCell:
    """One slot: its number (None if the slot is gone), its state, one of `STATES`, and the job in it, "" for none."""

    slot: int | None
    device: str
    state: str
    job: str = ""
    name: str = ""

    def says(self) -> str:
        """Return the cell as text."""
        number = "a slot" if self.slot is None else f"slot {self.slot}"
        whose = f" by {self.name}" if self.job else ""
        return f"{number} ({self.device}): {STATES[self.state]}{whose}"


@dataclass(frozen=True, slots=True)
class SlotsMap:
    """The data of the picture.

    Attributes:
        hosts: pairs of a name and its slots, in order.
        mine: the job that is emphasised, "" for none.
        arrived: the jobs in order of arrival, so that of two with one colour the later one has the pattern.
    """

    hosts: tuple[tuple[str, tuple[SlotCell, ...]], ...]
    mine: str = ""
    arrived: tuple[str, ...] = ()

    def says(self) -> str:
        """Return the picture as one sentence."""
        cells = [cell for _, row in self.hosts for cell in row]
        if not cells:
            return "This server offers no slots: no host is there, or no resource group names one."
        counts = Counter(cell.state for cell in cells)
        used = counts["held"] + counts["leaving"]
        jobs = Counter(cell.name for cell in cells if cell.job)
        listed = ", ".join(f"{name} {count}" for name, count in jobs.most_common(5))
        whose = f" ({listed})" if listed else ""
        parts = [f"{used} of {len(cells)} slot{'' if len(cells) == 1 else 's'} held{whose}"]
        parts += [
            f"{counts[state]} {STATES[state]}" for state in ("leaving", "idle", "fenced", "lost") if counts[state]
        ]
        return f"{', '.join(parts)}."


@dataclass(frozen=True, slots=True)
class _Style:
    """The theme's colours, the emphasised job, and the jobs' colours."""

    ink: Ink
    mine: str
    dyes: Colours

    def pale(self, cell: SlotCell) -> bool:
        return bool(self.mine) and cell.job != self.mine


def draw_slots(slots: SlotsMap, look: Look | None = None) -> str:
    """Draw the picture as an SVG document."""
    look = look or Look()
    if not any(row for _, row in slots.hosts):
        return notice(look, slots.says())
    shown = slots.hosts[:_MOST_HOSTS]
    dyes = colours((*slots.arrived, *(cell.job for _, row in shown for cell in row)))
    style = _Style(look.ink, slots.mine, dyes)
    left = min(0.3 * look.width, 12 + max(width_of(host, SMALL) for host, _ in shown))
    room = look.width - left - 8
    rows, high = legend(look, 6, 4, list(_legend(slots, style, look.width)))
    parts, top = rows, high + 10
    packed = sum(len(cells) for _, cells in shown) > _MOST_CELLS
    for host, cells in shown:
        if not cells:
            continue
        parts.append(words(6, top + _ROW / 2 + 4, shortened(host, left - 12, SMALL), look.ink.text))
        # More than four rows for one host would push the other hosts out of sight.
        if packed or len(cells) * _NARROW > 4 * room:
            parts += _packed(cells, left, top, room, style)
            top += _ROW + _GAP
            continue
        across = max(1, min(len(cells), int(room // max(_NARROW, min(_BROAD, room / max(1, len(cells)))))))
        wide = min(_BROAD, room / across)
        for at, cell in enumerate(cells):
            place = (left + wide * (at % across), top + (_ROW + 2) * (at // across))
            parts.append(told(_cell(cell, *place, wide - 3, style), f"{host}, {cell.says()}"))
        top += (_ROW + 2) * -(-len(cells) // across) + _GAP
    if len(slots.hosts) > len(shown):
        more = f"… and {len(slots.hosts) - len(shown)} more hosts; edt cluster lists all."
        parts.append(words(6, top + 10, shortened(more, look.width - 12, SMALL), look.ink.soft))
        top += 18
    return document(look, top + 2, slots.says(), parts, defs=_hatches(look.ink) + weave_defs(style.dyes.over.values()))


def _hatches(ink: Ink) -> str:
    """Return a hatching for each state except held, each with its own direction and colour."""
    strokes = {"idle": (ink.line, 45, "0.35"), "fenced": (ink.warn, -45, "0.9"), "lost": (ink.bad, 0, "0.9")}
    strokes["leaving"] = ("#ffffff", 45, "0.7")
    return "".join(
        f'<pattern id="slot-{state}" width="6" height="6" patternUnits="userSpaceOnUse" '
        f'patternTransform="rotate({turn})"><path d="M0 0V6" stroke="{colour}" stroke-width="2.5" '
        f'opacity="{opacity}"/></pattern>'
        for state, (colour, turn, opacity) in strokes.items()
    )


def _cell(cell: SlotCell, x: float, y: float, wide: float, style: _Style) -> str:
    box = _box(cell, x, y, wide, style)
    if not cell.job:
        text = STATES[cell.state]
        fitting = text if width_of(text, SMALL) <= wide - 8 and cell.state == "idle" else ""
        return box + words(x + wide / 2, y + _ROW / 2 + 4, fitting, style.ink.soft, anchor="middle")
    text = shortened(cell.name, wide - 6, SMALL * 1.1)
    # A number helps more than a name that is cut to fewer than five letters.
    if len(text) < min(len(cell.name), 5):
        text = f"{cell.slot}" if cell.slot is not None and width_of(f"{cell.slot}", SMALL) <= wide + 1 else ""
    fill = style.ink.text if style.pale(cell) else on_colour(style.dyes.of(cell.job))
    return box + words(x + wide / 2, y + _ROW / 2 + 4, text, fill, anchor="middle", bold=not style.pale(cell))


def _box(cell: SlotCell, x: float, y: float, wide: float, style: _Style) -> str:
    place: dict[str, str | float | None] = {"x": x, "y": y, "width": max(0.5, wide), "height": _ROW, "rx": 3}
    if not cell.job:
        stroke = {"idle": style.ink.line, "fenced": style.ink.warn, "lost": style.ink.bad}[cell.state]
        return tag("rect", **place, fill=f"url(#slot-{cell.state})", stroke=stroke)
    colour = style.dyes.of(cell.job)
    opacity = "0.22" if style.pale(cell) else None
    box = tag("rect", **place, fill=colour, fill_opacity=opacity, stroke=colour)
    if cell.job in style.dyes.over:
        box += tag("rect", **place, fill=style.dyes.over[cell.job])
    if cell.state == "leaving":
        box += tag("rect", **place, fill="url(#slot-leaving)", fill_opacity="0.4" if opacity else None)
    return box


def _packed(cells: Sequence[SlotCell], left: float, top: float, room: float, style: _Style) -> Iterator[str]:
    """Draw a host with very many slots in one row: a piece for each state, as wide as its share."""
    alike = Counter((cell.job, cell.name, cell.state) for cell in cells)
    at = 0
    for (job, name, state), count in alike.items():
        some = SlotCell(None, "", state, job, name)
        text = f"{count} slots: {STATES[state]}{f' by {name}' if job else ''}"
        yield told(_box(some, left + at * room / len(cells), top, count * room / len(cells), style), text)
        at += count


def _legend(slots: SlotsMap, style: _Style, width: int) -> Iterator[tuple[str, str]]:
    cells = [cell for _, row in slots.hosts for cell in row]
    held = Counter(cell.job for cell in cells if cell.job)
    names = {cell.job: cell.name for cell in cells if cell.job}
    room = min(200.0, width - 90.0)
    for job, count in held.most_common(_MOST_NAMES):
        some = SlotCell(None, "", "held", job, names[job])
        name = shortened(names[job], room, SMALL) or job
        yield _swatch(some, style), f"{name}: {count}"
    if len(held) > _MOST_NAMES:
        rest = sum(held.values()) - sum(count for _, count in held.most_common(_MOST_NAMES))
        yield tag("circle", r=2, fill=style.ink.soft), f"{len(held) - _MOST_NAMES} other jobs: {rest}"
    counts = Counter(cell.state for cell in cells)
    for state in ("leaving", "idle", "fenced", "lost"):
        if counts[state]:
            job = "-" if state == "leaving" else ""
            yield _swatch(SlotCell(None, "", state, job), replace(style, mine="")), f"{STATES[state]}: {counts[state]}"


def _swatch(cell: SlotCell, style: _Style) -> str:
    small = _box(cell, -7, -6, 14, style)
    # The legend uses the drawing of a cell, so that both always look the same.
    return small.replace(f'height="{_ROW:g}"', 'height="12"')
