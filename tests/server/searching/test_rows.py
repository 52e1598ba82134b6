"""A search from the rows of a real store: one transaction for each event, and everything again after a restart."""

from __future__ import annotations

import random

import pytest

from edt_sdk.schemas.search.views import SearchState, TrialReport
from edt_server.searching.events import Reported, SearchStarted
from edt_server.searching.replay import difference, events, rebuild
from edt_server.store import Store
from edt_server.store.search_rows import SearchRow, TrialRow
from tests.server.searching.playing import Play, search
from tests.server.searching.test_properties import SEARCHES


class StoredPlay(Play):
    """A play whose events are written as a service writes them."""

    store: Store

    def tell(self, event):
        step = super().tell(event)
        reports = []
        if isinstance(event, Reported) and step.seq:
            reports.append(TrialReport(trial=event.number, budget=event.budget, metrics=event.metrics, seq=step.seq))
        rows = [self.row(self.core.trials[number]) for number in sorted(set(step.changed))]
        with self.store.write() as writer:
            writer.searches.take("s", reports=reports, decisions=step.decisions, trials=rows)
        return step

    def row(self, trial) -> TrialRow:
        value = self.core.value(trial)
        return TrialRow(
            search="s", number=trial.number, rung=trial.rung, bracket=trial.bracket, params=trial.values,
            state=trial.state, created=0.0, value=value, epochs=trial.epochs, job="", parent=trial.parent,
            ended=None, message=trial.message,
        )  # fmt: skip


@pytest.mark.parametrize("name", ["asha-tpe", "hyperband-tpe"])
def test_the_rows_of_a_search_decide_it_again(tmp_path, name):
    spec = search(**SEARCHES[name])
    store = Store.open(f"sqlite:///{tmp_path / 'edt.db'}")
    with store.write() as writer:
        writer.searches.add_search(SearchRow("s", "s", "ana", spec, SearchState.RUNNING, "", 0.0, None))
    play = StoredPlay(spec, random.Random(7), fails=0.05)
    play.store = store
    play.tell(SearchStarted())
    while not play.core.state.final:
        play.once()
        if play.rng.random() < 0.02:
            # The server dies: a new one has the rows and nothing else.
            reports, log = store.searches.reports("s"), store.searches.decisions("s")
            again, decided = rebuild(store.searches.search("s").spec, events(reports, log))
            assert difference(log, decided) == ""
            assert (again.asks(), [each.number for each in again.runnable(99)]) == (
                play.core.asks(),
                [each.number for each in play.core.runnable(99)],
            )
            play.core = again
    whole = Play(spec, random.Random(8), fails=0.05).run()
    assert play.table() == whole.table()
    trials = sorted(play.core.trials.items())
    assert [(row.number, row.state) for row in store.searches.trials("s")] == [(n, each.state) for n, each in trials]
    store.close()
