"""Judge a revision that answers a part of the callers against the one that answers the others. Pure."""

from __future__ import annotations

from edt_sdk.schemas.serving.edge_file import Counters

# Answers of the new revision before anything is said of it.
ENOUGH = 50
_MORE_ERRORS = 0.02
_SLOWER = 2.0
# Of both, so that a few microseconds are no difference.
_LEAST_SECONDS = 0.005


def verdict(old: Counters, new: Counters) -> str:
    """Return why the new revision must not go on, "" while nothing speaks against it."""
    answers = sum(new.requests.values())
    if answers < ENOUGH:
        return ""
    errors, before = _errors(new), _errors(old)
    if errors > before + _MORE_ERRORS:
        return f"{errors:.0%} of its {answers} answers were errors, {before:.0%} of those of the revision before it."
    slow, usual = quantile(new, 0.95), quantile(old, 0.95)
    if usual and slow > _SLOWER * max(usual, _LEAST_SECONDS):
        return f"19 of 20 answers took up to {slow * 1000:.0f} ms, {usual * 1000:.0f} ms of the revision before it."
    return ""


def difference(since: Counters, now: Counters) -> Counters:
    """Return the answers that were counted in between. All of them where the edge began anew."""
    if sum(now.requests.values()) < sum(since.requests.values()):
        return now
    return Counters(
        requests={status: count - since.requests.get(status, 0) for status, count in now.requests.items()},
        latency={bound: count - since.latency.get(bound, 0) for bound, count in now.latency.items()},
    )


def quantile(counters: Counters, part: float) -> float:
    """Return the seconds within which this part of the answers came: the upper bound of a bucket, 0.0 without any."""
    total = max(counters.latency.values(), default=0)
    return next((bound for bound, count in sorted(counters.latency.items()) if total and count >= part * total), 0.0)


def _errors(counters: Counters) -> float:
    """Return the part of the answers that were errors of the model or of the time, not of the caller."""
    total = sum(counters.requests.values())
    return sum(count for status, count in counters.requests.items() if status >= 500) / total if total else 0.0
