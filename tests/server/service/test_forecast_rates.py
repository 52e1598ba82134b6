"""From progress to when a job should end."""

from __future__ import annotations

from edt_sdk.schemas.job import JobProgress
from edt_server.service.forecast import ForecastRates


def test_a_job_ends_when_its_updates_are_done_at_its_pace_give_or_take():
    rates = ForecastRates()
    rates.heard("a", JobProgress(update=10, total_updates=110), 1000.0)
    assert rates.ends() == {}, "one word is no pace"
    rates.heard("a", JobProgress(update=30, total_updates=110), 1010.0)
    assert rates.ends() == {"a": (1010.0 + 20.0, 1010.0 + 80.0)}
    rates.heard("a", JobProgress(update=30, total_updates=110), 1500.0)
    assert rates.ends() == {"a": (1030.0, 1090.0)}, "the same again says nothing new"


def test_another_training_or_a_checkpoint_gone_back_to_begins_anew():
    rates = ForecastRates()
    for update, total in ((0, 10), (5, 10), (2, 10)):
        rates.heard("a", JobProgress(update=update, total_updates=total), 100.0 + update)
    assert rates.ends() == {}
    rates.heard("a", JobProgress(update=4, total_updates=10), 110.0)
    assert set(rates.ends()) == {"a"}
    rates.heard("a", JobProgress(update=4, total_updates=20), 111.0)
    assert rates.ends() == {}
    rates.forget("a")
    rates.forget("nobody")
