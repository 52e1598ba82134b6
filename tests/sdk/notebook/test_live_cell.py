"""What a cell that trains says above its figure, and when it draws the figure again. The rest is in tests/e2e."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from edt_sdk.notebook.live_cell import due, state_line
from edt_sdk.schemas.job import JobProgress, JobState, JobView, Reason
from edt_sdk.waiting.waiting import StoppedWaiting

MakeView = Callable[..., JobView]


@pytest.mark.parametrize(
    ("changes", "workers", "said"),
    [
        (
            {
                "state": JobState.PENDING,
                "slots": 0,
                "reason": Reason(code="busy", text="All 4 slots are taken.", held=0, entitled=0, asked=1),
            },
            0,
            "PENDING · digits · edt-1 — All 4 slots are taken.",
        ),
        ({"state": JobState.RUNNING}, 1, "RUNNING on 1 worker · digits · edt-1"),
        (
            {"progress": JobProgress(update=12, total_updates=80, epoch=1, epochs=8, loss=0.3, test_accuracy=0.876)},
            3,
            "RUNNING on 3 workers · digits · edt-1 · update 12 of 80 · epoch 2 of 8 · test accuracy 87.6 %",
        ),
        (
            {"state": JobState.RECOVERING, "message": "Worker 3 was killed by SIGKILL."},
            2,
            "RECOVERING · digits · edt-1 — Worker 3 was killed by SIGKILL.",
        ),
        (
            {"state": JobState.SUSPENDED, "slots": 0},
            2,
            "SUSPENDED · digits · edt-1 — job.resume() lets it go on.",
        ),
        (
            {
                "state": JobState.SUSPENDED,
                "slots": 0,
                "reason": Reason(code="suspended", text="To go on: job.resume()", held=0, entitled=0, asked=0),
            },
            2,
            "SUSPENDED · digits · edt-1 — To go on: job.resume()",
        ),
        ({"state": JobState.FINISHED, "id": "digits-4711"}, 4, "FINISHED · digits-4711"),
        (
            {"state": JobState.FAILED, "message": "train.py raised ValueError: <b>\nmore"},
            4,
            "FAILED · digits · edt-1 — train.py raised ValueError: <b>",
        ),
    ],
)
def test_the_line_says_how_the_job_is(make_view: MakeView, changes: dict[str, Any], workers: int, said: str) -> None:
    html, text = state_line(make_view(**changes), workers)
    assert text == said
    assert "<b>" not in html.split("</b>", 1)[1], "what the job says is text, not markup"


@pytest.mark.parametrize(
    ("since", "cost", "steps", "other", "drawn"),
    [
        (0.9, 0.0, 9999, True, False),  # never more often than once a second
        (1.0, 0.0, 49, False, False),  # a fast job: every 50 steps …
        (1.0, 0.0, 50, False, True),
        (2.0, 0.0, 1, False, True),  # … a slow one: as its steps come
        (60.0, 0.0, 0, False, False),
        (1.0, 0.0, 1, True, True),  # a validation or another number of workers is told at once
        (2.9, 0.3, 500, True, False),  # a machine on which drawing is dear draws less often …
        (3.0, 0.3, 500, True, True),
        (5.0, 4.0, 500, True, True),  # … but it draws
    ],
)
def test_when_the_figure_is_drawn_again(since: float, cost: float, steps: int, other: bool, drawn: bool) -> None:
    assert due(since, cost, steps, other=other) is drawn


def test_an_interrupt_is_shown_as_its_paragraph_alone() -> None:
    stopped = StoppedWaiting("Stopped waiting.")
    assert isinstance(stopped, KeyboardInterrupt)
    assert stopped._render_traceback_() == ["Stopped waiting."]
