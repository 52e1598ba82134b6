"""What cards, rows and the tab of a job say of it."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from tests.browser.front_end import evaluate

MODULE = "words.ts"
PROGRESS = {
    "update": 3, "total_updates": 9, "epoch": 0, "epochs": 0, "not_a_number": False, "loss": 0.5, "accuracy": None,
    "inexact": "", "test_accuracy": None, "test_loss": None, "samples_per_second": 1460,
}  # fmt: skip
PAUSED = {
    "code": "suspended",
    "text": "It is suspended and needs no slot. To go on: job.resume(), or at a shell: edt resume a",
}


def job(**changes: Any) -> dict[str, Any]:
    known = {"state": "RUNNING", "slots": 2, "min_workers": 1, "max_workers": 99, "shards": 4, "message": ""}
    return {**known, "reason": None, "progress": PROGRESS, "validates": "", **changes}


def test_only_a_job_that_trains_has_a_speed():
    paused, leaves = job(state="SUSPENDED", slots=0), job(reason=PAUSED)
    waits, recovers = job(slots=0, state="PENDING"), job(state="RECOVERING")
    said = evaluate(MODULE, "of.progressWords(it)", [job(), paused, leaves, waits, recovers, job(state="FAILED")])
    assert said == ["update 3 of 9 · loss 0.5 · 1460 samples/s"] + 5 * ["update 3 of 9 · loss 0.5"]


def test_slots_are_counted_up_to_those_that_it_can_use():
    jobs = [job(), job(shards=None), job(max_workers=3), job(slots=6), job(min_workers=5), job(state="FINISHED")]
    said = evaluate(MODULE, "of.slotsWords(it)", [*jobs])
    assert said == [
        *(f"2 of at most {most} slots" for most in (4, 99, 3)),
        "6 of at most 6 slots",
        "2 of at most 5 slots",
        "",
    ]


def test_a_suspended_card_does_not_explain_what_its_button_does():
    other = {"code": "share", "text": "It has 1 of 4 slots. To go on: is left alone."}
    said = evaluate(MODULE, "of.whyWords(it)", [job(state="SUSPENDED", slots=0, reason=PAUSED), job(reason=other)])
    assert said == ["It is suspended and needs no slot.", other["text"]]


def test_a_forecast_is_not_more_exact_than_it_is():
    noon = datetime(2026, 3, 4, 12, 0, 0).timestamp()
    # Node has the time zone of this process.
    said = evaluate(MODULE, f"of.forecastClock(it, {noon})", [noon + 119, noon + 5 * 60 + 40, noon + 26 * 3600])
    assert said == ["12:01:59", "12:06", "2026-03-05 14:00"]
    spans = [(0.2, 29), (20, 120), (10, 100), (100, 130), (4740, 19080), (7000, 7190), (7300, 7310)]
    assert evaluate(MODULE, "of.spanWords(it[0], it[1])", [*spans]) == [
        "at most 29 s", "at most 2 min", "10 to 100 s", "2 min", "1.3 to 5.3 h", "117 to 120 min", "2 h",
    ]  # fmt: skip


def test_a_job_without_weights_offers_no_model():
    cases = [(outputs, {"framework": kind}) for kind in ("edtPyTorch", "PyTorch") for outputs in (
        None, {"exact": False, "weights": False}, {"exact": True, "weights": False}, {"exact": False, "weights": True}
    )]  # fmt: skip
    said = evaluate("job/download.ts", "of.partsOf(it[1], it[0]).map(part => part[0])", [*cases])
    everything = ["model", "checkpoint", "log", "all"]
    assert said[:4] == [everything, ["log", "all"], ["checkpoint", "log", "all"], everything]
    assert said[4:] == 4 * [everything]
