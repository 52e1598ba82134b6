"""The shares of instance groups: what each is entitled to, holds, borrows and lends.

A bar shows the slots that a group holds. Its hatched end is borrowed from other groups, and the frame is the
entitlement. A line below the bar has the same figures as text.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from edt_sdk.pictures.parts import scales
from edt_sdk.pictures.parts.lettering import shortened, width_of
from edt_sdk.pictures.parts.look import Look
from edt_sdk.pictures.parts.paper import SMALL, document, hatch, legend, line, notice, tag, told, words
from edt_sdk.pictures.parts.scales import Frame

_MOST_GROUPS = 40
_ROW, _BAR = 38.0, 14.0
_BOLD = 1.12  # bold letters are broader


@dataclass(frozen=True, slots=True)
class GroupShare:
    """An instance group and its slots. All counts but those of jobs are slots.

    Attributes:
        depth: the number of groups around it.
        slots: slots of its resource group.
        entitled: its entitlement in the present plan.
        borrowed: slots of its entitlement that other groups own. Slots without an owner are not borrowed.
        lent: slots it owns that other groups use.
        jobs: its jobs.
        waiting: jobs that wait for their first slot.
        wanting: jobs that hold slots and want more.
    """

    name: str
    depth: int
    slots: int
    entitled: int
    held: int
    borrowed: int
    lent: int
    jobs: int
    waiting: int
    wanting: int

    def says(self) -> str:
        """Return the group as text."""
        return ", ".join(self.parts())

    def parts(self) -> list[str]:
        """Return the figures as phrases, the most important first."""
        parts = [f"holds {self.held}, entitled to {self.entitled}"]
        parts += [f"{self.borrowed} borrowed"] if self.borrowed else []
        parts += [f"{self.lent} lent"] if self.lent else []
        parts.append(f"{self.jobs} job{'' if self.jobs == 1 else 's'}" if self.jobs else "no jobs")
        parts += [f"{self.waiting} waiting"] if self.waiting else []
        parts += [f"{self.wanting} want{'s' if self.wanting == 1 else ''} more"] if self.wanting else []
        return parts


@dataclass(frozen=True, slots=True)
class Shares:
    """The data of the picture: the groups, each after its parent."""

    groups: tuple[GroupShare, ...]

    def says(self) -> str:
        """Return the picture as one sentence."""
        if not self.groups:
            return "There is no instance group yet: an administrator adds one with edt group."
        return "; ".join(f"{group.name} {group.says()}" for group in self.groups[:8]) + "."


def draw_shares(shares: Shares, look: Look | None = None) -> str:
    """Draw the picture as an SVG document."""
    look = look or Look()
    if not shares.groups:
        return notice(look, shares.says())
    shown = shares.groups[:_MOST_GROUPS]
    left = min(0.3 * look.width, 14 + max(width_of(group.name, SMALL * _BOLD) + 10 * group.depth for group in shown))
    most = max([1, *(max(group.slots, group.held, group.entitled) for group in shown)])
    rows, high = legend(look, 6, 4, list(_legend(look)))
    top = high + 8
    bottom = top + _ROW * len(shown)
    frame = Frame(left, top, look.width - 12, bottom, 0, most, 0, 1)
    parts = [*rows]
    for number, group in enumerate(shown):
        parts += _row(group, frame, top + _ROW * number, look)
    more = len(shares.groups) - len(shown)
    about = max(2, min(most, int((frame.right - left) // 60)))
    parts += scales.x_axis(frame, look, scales.whole_ticks(most, about), "slots")
    if more > 0:
        parts.append(words(6, bottom + 34, f"… and {more} more groups", look.ink.soft))
    return document(look, bottom + (42 if more > 0 else 24), shares.says(), parts, defs=hatch("borrowed"))


def _legend(look: Look) -> Iterator[tuple[str, str]]:
    ink = look.ink
    box: dict[str, str | float | None] = {"x": -7, "y": -5, "width": 14, "height": 10}
    yield tag("rect", **box, fill=ink.train), "held"
    yield tag("rect", **box, fill=ink.train) + tag("rect", **box, fill="url(#borrowed)"), "held and borrowed"
    yield tag("rect", **box, fill="none", stroke=ink.text, stroke_dasharray="3 2"), "entitled to"


def _row(group: GroupShare, frame: Frame, top: float, look: Look) -> Iterator[str]:
    ink = look.ink
    indent = 6 + 10 * group.depth
    yield words(indent, top + 13, shortened(group.name, frame.left - indent - 8, SMALL * _BOLD), ink.text, bold=True)
    parts = group.parts()
    while len(parts) > 1 and width_of(", ".join(parts), SMALL) > frame.right - frame.left:
        # The last part is the least important one.
        parts.pop()
    text = shortened(", ".join(parts), frame.right - frame.left, SMALL)
    yield words(frame.left, top + _BAR + 16, text, ink.soft)
    zero, held = frame.x(0), frame.x(group.held)
    # A group uses its own slots first. Only what it holds beyond them is borrowed.
    beyond = frame.x(max(0, group.held - max(0, group.entitled - group.borrowed)))
    bar = tag("rect", x=zero, y=top + 2, width=held - zero, height=_BAR, fill=ink.train)
    if group.borrowed and beyond > zero:
        wide = beyond - zero
        bar += tag("rect", x=held - wide, y=top + 2, width=wide, height=_BAR, fill="url(#borrowed)")
    place: dict[str, str | float | None] = {"x": zero, "y": top + 2, "width": frame.x(group.entitled) - zero}
    bar += tag("rect", **place, height=_BAR, fill="none", stroke=ink.text, stroke_dasharray="4 3")
    yield told(bar, f"{group.name} {group.says()}")
    yield line(zero, top, zero, top + _BAR + 4, ink.line)
