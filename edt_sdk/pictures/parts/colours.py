"""Choose the colours of a picture's jobs: each job's own colour, with a pattern where an earlier job has it too.

A job's own colour comes from its id alone (`look.job_colour`), so that it is the same in every picture and never
changes. A picture must not choose it anew: the choice would depend on which other jobs are shown, and a job would
change its colour when another one ends. The server keeps two jobs from sharing a colour when it makes the id of the
later one (`colour_for_new`). With more jobs than colours some share one, and all but the first of these get a pattern.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from edt_sdk.pictures.parts.look import JOB_COLOURS, OTHERS_COLOUR, job_colour

_SHAPES = (
    '<path d="M0 2H8M0 6H8" stroke="#fff" stroke-width="1.2"/>',
    '<circle cx="2" cy="2" r="1.3" fill="#fff"/><circle cx="6" cy="6" r="1.3" fill="#fff"/>',
    '<path d="M2 0V8M6 0V8" stroke="#fff" stroke-width="1.2"/>',
    '<path d="M0 4H8M4 0V8" stroke="#fff" stroke-width="1.2"/>',
)


@dataclass(frozen=True, slots=True)
class Colours:
    """Colours by job id.

    Attributes:
        over: the pattern to draw over the colour of each job that shares it with an earlier one.
    """

    of_jobs: Mapping[str, str] = field(default_factory=dict)
    over: Mapping[str, str] = field(default_factory=dict)

    def of(self, job: str) -> str:
        """Return the job's colour, grey for "" (the sum of other jobs)."""
        return self.of_jobs.get(job) or (job_colour(job) if job else OTHERS_COLOUR)


def colours(jobs: Iterable[str]) -> Colours:
    """Give each job its own colour, and a pattern to each that shares it with an earlier job of the picture."""
    chosen: dict[str, str] = {}
    seen: Counter[str] = Counter()
    over: dict[str, str] = {}
    for job in filter(None, dict.fromkeys(jobs)):
        colour = chosen[job] = job_colour(job)
        if seen[colour]:
            over[job] = f"url(#weave-{(seen[colour] - 1) % len(_SHAPES)})"
        seen[colour] += 1
    return Colours(chosen, over)


def colour_for_new(living: Iterable[str], recent: Iterable[str]) -> str:
    """Return the colour for a new job: the one that the fewest living jobs have, then the one given the longest ago.

    `recent` are the last jobs that were submitted, newest first. Eight jobs in succession have eight colours.
    """
    held = Counter(map(job_colour, living))
    last: dict[str, int] = {}
    for age, job in enumerate(recent):
        last.setdefault(job_colour(job), age)
    return min(JOB_COLOURS, key=lambda colour: (held[colour], -last.get(colour, len(JOB_COLOURS))))


def compared_colours(jobs: Iterable[str]) -> list[str]:
    """Return a colour for each job of a comparison, where lines cannot have a pattern.

    A job whose own colour an earlier one has takes the next colour that no job of the comparison has.
    """
    own = [job_colour(job) for job in jobs]
    taken = set(own)
    for at, colour in enumerate(own):
        if colour in own[:at]:
            first = JOB_COLOURS.index(colour)
            around = (*JOB_COLOURS[first:], *JOB_COLOURS[:first])
            own[at] = next((each for each in around if each not in taken), colour)
            taken.add(own[at])
    return own


def weave_defs(used: Iterable[str]) -> str:
    """Return the definitions of these patterns."""
    wanted = set(used)
    return "".join(
        f'<pattern id="weave-{at}" width="8" height="8" patternUnits="userSpaceOnUse">'
        f'<g opacity="0.55">{shape}</g></pattern>'
        for at, shape in enumerate(_SHAPES)
        if f"url(#weave-{at})" in wanted
    )
