"""Makes the stored database of the present revision: `python make_database.py`, once before a revision is released.

Beside `revision_<number>.db` it writes what a reader must find in it, `revision_<number>.json`.
"""

from __future__ import annotations

import json
import sys
from dataclasses import fields
from pathlib import Path

import msgspec

from edt_sdk.schemas.job import JobProgress, JobSettings, JobSpec, JobState
from edt_sdk.schemas.search.space import choice, log
from edt_sdk.schemas.search.spec import SearchSpec
from edt_sdk.schemas.search.views import Decision, SearchState, TrialReport, TrialState
from edt_sdk.schemas.wire.control import ProcessIdentity
from edt_server.store import CatalogueRow, JobRow, Store, schema
from edt_server.store.search_rows import SearchRow, TrialRow

JOBS = [
    JobRow(
        id="job-1",
        owner="ana",
        spec=JobSpec(
            name="Ziffern",
            main="train.py",
            max_workers=4,
            args=("--epochs", "8"),
            env={"A": "ä"},
            seed=7,
            log="batches",
            instance_group="default",
        ),
        state=JobState.RUNNING,
        state_since=1_700_000_002.25,
        created=1_700_000_000.0,
        started=1_700_000_001.5,
        ended=None,
        attempt=1,
        message="",
        interpreter="/usr/bin/python3",
        threads_per_slot=1,
        supervisor=ProcessIdentity(host="h", boot_id="b-1", pid_namespace="4026531836", pid=4711, start_ticks=99),
        public_key="k" * 40,
        shards=8,
        last_report=5,
        progress=JobProgress(update=12, total_updates=184, epochs=8, loss=0.5, accuracy=None),
        settings=JobSettings(
            priority=10000, max_workers=3, instance_group="default", notes="the second try, ä", tags=("ä", "digits")
        ),
    ),
    JobRow(
        id="job-2",
        owner="ben",
        spec=JobSpec(name="second", main="pkg/main.py", max_workers=1, instance_group="default", log="batches"),
        state=JobState.ERROR,
        state_since=1_700_000_003.0,
        created=1_700_000_002.0,
        started=None,
        ended=1_700_000_003.0,
        attempt=0,
        message="The interpreter is not there.",
        interpreter="/nowhere/python",
        threads_per_slot=2,
        supervisor=None,
        public_key="",
        shards=None,
        last_report=0,
        progress=None,
        settings=JobSettings(priority=5000, max_workers=1, instance_group="default"),
    ),
]
ENTRIES = [
    CatalogueRow("digits-1", "ana", "dataset", "Ziffern", 1_700_000_000.5, 1_700_000_001.25, {"path": "mnist/ü"}),
    CatalogueRow("digits-2", "ana", "model", "Ziffern", 1_700_000_002.0, 1_700_000_002.0, {"args": ["--epochs", "8"]}),
    CatalogueRow("digits-3", "ben", "template", "digits", 1_700_000_003.0, 1_700_000_003.0, {}),
]
SEARCH = SearchRow(
    id="digits-4",
    name="Ziffern",
    owner="ana",
    spec=SearchSpec(
        job=JobSpec(name="Ziffern", main="train.py", max_workers=4, args=("--lr", "{lr}")),
        space={"lr": log(1e-4, 1e-1), "width": choice(32, 64)},
        metric="test_accuracy",
        trials=9,
        points=({"lr": 0.1, "width": 32},),
    ).resolved(),
    state=SearchState.RUNNING,
    message="",
    created=1_700_000_000.75,
    ended=None,
    best=0,
    plugin_state=b"\x00\xff",
)
TRIALS = [
    TrialRow(
        search="digits-4", number=0, rung=1, bracket=0, params={"lr": 0.1, "width": 32}, state=TrialState.HELD,
        created=1_700_000_001.0, value=0.5, epochs=1, job="job-3", parent=None, ended=None, message="",
    ),
    TrialRow(
        search="digits-4", number=1, rung=0, bracket=0, params={"lr": 0.01, "width": 64}, state=TrialState.WAITING,
        created=1_700_000_001.0, value=None, epochs=0, job="", parent=None, ended=None, message="",
    ),
]  # fmt: skip
REPORT = TrialReport(trial=0, budget=1, metrics={"test_accuracy": 0.5, "f1": None}, seq=3)
DECISIONS = [
    Decision(index=1, kind="start", text="the search starts", event={"type": "SearchStarted"}),
    Decision(index=4, kind="promote", trial=0, rung=0, inputs="0123456789abcdef", text="trial 0 goes on, ä"),
]
HOLDER = ProcessIdentity(host="h", boot_id="b-1", pid_namespace="4026531836", pid=4712, start_ticks=100)
EVENTS = [
    (
        "slots_changed",
        None,
        {"slots": [{"id": 0, "host": "h", "device": "cpu"}]},
        None,
        "this server offers 1 CPU slot",
    ),
    (
        "job_arrived",
        "job-1",
        {"job": "job-1", "priority": 5000, "max_workers": 4, "instance_group": "default"},
        None,
        "",
    ),
    ("slot_granted", "job-1", {"slot": 0, "slots": 1}, 2, "slot 0 granted (1 held): the job arrived"),
    ("state", "deleted-job", {"state": "FINISHED", "before": "RUNNING", "message": ""}, None, "finished"),
]


def searches(store: Store) -> dict[str, object]:
    """Everything that the store has of searches."""
    found = store.searches
    return {
        "searches": found.searches(),
        "trials": found.trials(SEARCH.id),
        "reports": found.reports(SEARCH.id),
        "decisions": found.decisions(SEARCH.id),
    }


def make(folder: Path) -> Path:
    """The database, made in `folder`."""
    draft = folder / "draft.db"
    store = Store.open(f"sqlite:///{draft}")
    with store.write() as writer:
        for row in JOBS:
            writer.add_job(row)
        for number, (kind, job, data, cause, text) in enumerate(EVENTS):
            writer.append(kind, job=job, data=data, time=1_700_000_000.0 + number / 4, cause=cause, text=text)
        writer.put_snapshot(len(EVENTS), "1", b"\x00\xffcore")
        for entry in ENTRIES:
            writer.add_entry(entry)
        writer.searches.add_search(SEARCH)
        writer.searches.take(SEARCH.id, reports=[REPORT], decisions=DECISIONS, trials=TRIALS)
        writer.take_lease("server", HOLDER, now=1_700_000_000.0, expires=1_700_000_005.5, url="http://h:8888/")
    expected = {
        "jobs": {row.id: {each.name: getattr(row, each.name) for each in fields(row)} for row in store.jobs()},
        "events": store.events(),
        "snapshot": {"seq": len(EVENTS), "version": "1", "data": store.snapshot().data},
        "lease": store.lease("server"),
        "catalogue": [*store.entries("ana"), *store.entries("ben")],
        "searches": searches(store),
    }
    with store._engine.connect() as connection:
        made = folder / f"revision_{schema.revision(connection)}.db"
    store.close()
    draft.rename(made)
    plain = json.loads(msgspec.json.encode(expected))
    made.with_suffix(".json").write_text(json.dumps(plain, indent=1, ensure_ascii=False, sort_keys=True) + "\n")
    return made


if __name__ == "__main__":
    sys.stdout.write(f"{make(Path(__file__).parent)}\n")
