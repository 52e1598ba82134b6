"""Choose the colours of a picture's jobs: each job's own colour where it is free, else another colour.

A job's own colour comes from its id alone (`look.job_colour`), so that it is the same everywhere. Two of a few jobs may
have the same colour. The later one then takes the next colour that no other job of the picture has. With more jobs than
colours some share one, and all but the first of these get a pattern. Pictures that are shown together pass the same
`first`, so that each job has one colour in all of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
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


def colours(jobs: Iterable[str], mine: str = "", first: Iterable[str] = ()) -> Colours:
    """Assign colours to jobs, the earliest first. `mine` always keeps its own colour.

    The jobs in `first` choose before all others, whether they are in the picture or not.
    """
    early = [job for job in dict.fromkeys([mine, *first]) if job]
    wanted = [job for job in dict.fromkeys([*early, *jobs]) if job]
    chosen: dict[str, str] = {}
    _choose(early, chosen)
    _choose(wanted, chosen)
    seen: Counter[str] = Counter()
    over: dict[str, str] = {}
    for job in wanted:
        before = seen[chosen[job]]
        if before:
            over[job] = f"url(#weave-{(before - 1) % len(_SHAPES)})"
        seen[chosen[job]] += 1
    return Colours(chosen, over)


def _choose(jobs: Sequence[str], chosen: dict[str, str]) -> None:
    """Add a colour for each job without one."""
    taken = set(chosen.values())
    for job in jobs:
        # Two passes: all jobs with a free colour of their own take it, before any other job takes a colour that is
        # left.
        if job not in chosen and job_colour(job) not in taken:
            chosen[job] = job_colour(job)
            taken.add(chosen[job])
    for job in jobs:
        if job not in chosen:
            own = JOB_COLOURS.index(job_colour(job))
            # The next free colour and not a pattern: dots and dashes in one colour were hard to distinguish (028).
            around = (*JOB_COLOURS[own:], *JOB_COLOURS[:own])
            chosen[job] = next((colour for colour in around if colour not in taken), job_colour(job))
            taken.add(chosen[job])


def weave_defs(used: Iterable[str]) -> str:
    """Return the definitions of these patterns."""
    wanted = set(used)
    return "".join(
        f'<pattern id="weave-{at}" width="8" height="8" patternUnits="userSpaceOnUse">'
        f'<g opacity="0.55">{shape}</g></pattern>'
        for at, shape in enumerate(_SHAPES)
        if f"url(#weave-{at})" in wanted
    )
