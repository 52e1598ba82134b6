"""Our job states in the words of each of WMLA's clients. Pure.

A client polls until it reads a word it knows, or while it reads words it knows, and each client knows other words. A
notebook stops polling an exec at an unexpected word, and dlicmd waits forever at a word that is not among its last
three. So a suspended or launching job is pending for all of them, and a failed one is in ERROR.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from edt_sdk.schemas.job import JobState

PENDING_POD = "PENDING_CRD_SCHEDULER"
PENDING_SLOT = "PENDING_JOB_SCHEDULER"

# GET /execs: notebooks poll while the state is one of SUBMITTED, PENDING_CRD_SCHEDULER and RUNNING.
EXEC: Mapping[JobState, str] = {
    JobState.SUBMITTED: "SUBMITTED",
    JobState.PENDING: PENDING_POD,
    JobState.LAUNCHING: PENDING_POD,
    JobState.RUNNING: "RUNNING",
    JobState.RECOVERING: "RUNNING",
    JobState.SUSPENDED: PENDING_POD,
    JobState.FINISHED: "FINISHED",
    JobState.KILLED: "KILLED",
    JobState.FAILED: "ERROR",
    JobState.ERROR: "ERROR",
}
# GET /scheduler/…: dlicmd has a list of active states, and waits until it sees FINISHED, KILLED or ERROR.
SCHEDULER: Mapping[JobState, str] = {
    **EXEC,
    JobState.PENDING: PENDING_SLOT,
    JobState.LAUNCHING: "LAUNCHING",
    JobState.RECOVERING: "RECOVERING",
    JobState.SUSPENDED: PENDING_SLOT,
}
# Conductor, 1.2.x: a job waits in WAITING.
CONDUCTOR: Mapping[JobState, str] = {
    **EXEC,
    JobState.PENDING: "WAITING",
    JobState.LAUNCHING: "WAITING",
    JobState.SUSPENDED: "WAITING",
}


def named(words: Iterable[str], names: Mapping[JobState, str]) -> list[JobState]:
    """Return the states for these words, WMLA's or ours. An unknown word gives none."""
    wanted = {word.strip().upper() for word in words if word.strip()}
    return [state for state in JobState if names[state] in wanted or state.value in wanted & _OURS_ALONE]


# Words of ours that no table uses, such as FAILED, mean our state.
_OURS_ALONE = {state.value for state in JobState} - {*EXEC.values(), *SCHEDULER.values(), *CONDUCTOR.values()}
