"""Jobs that happen to have the same colour, told apart within one picture: all but the first get a pattern on it.

A job's colour comes from its id alone, so that it is the same everywhere; two of a dozen jobs may well share one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from edt_sdk.pictures.look import job_colour

_SHAPES = (
    '<path d="M0 2H8M0 6H8" stroke="#fff" stroke-width="1.2"/>',
    '<circle cx="2" cy="2" r="1.3" fill="#fff"/><circle cx="6" cy="6" r="1.3" fill="#fff"/>',
    '<path d="M2 0V8M6 0V8" stroke="#fff" stroke-width="1.2"/>',
    '<path d="M0 4H8M4 0V8" stroke="#fff" stroke-width="1.2"/>',
)


def weaves(jobs: Iterable[str]) -> dict[str, str]:
    """The fill to lay over the colour of each job that needs one, by id; the first of a colour needs none."""
    seen: Counter[str] = Counter()
    found: dict[str, str] = {}
    for job in dict.fromkeys(jobs):
        colour = job_colour(job)
        if job and seen[colour]:
            found[job] = f"url(#weave-{(seen[colour] - 1) % len(_SHAPES)})"
        seen[colour] += bool(job)
    return found


def weave_defs(used: Iterable[str]) -> str:
    """The patterns behind these fills."""
    wanted = set(used)
    return "".join(
        f'<pattern id="weave-{at}" width="8" height="8" patternUnits="userSpaceOnUse">'
        f'<g opacity="0.55">{shape}</g></pattern>'
        for at, shape in enumerate(_SHAPES)
        if f"url(#weave-{at})" in wanted
    )
