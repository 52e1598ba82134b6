"""Searches from a notebook and from a shell, against a real server. The trials are plain jobs without torch."""

from __future__ import annotations

import json

import optuna
import pytest

from edt_sdk import Client, Conflict, InvalidRequest, JobFailed, NotFound, Unprocessable, WaitTimeout, choice, uniform
from edt_sdk.cli import main
from edt_sdk.testing import LocalServer
from tests.packages import SLEEPER

SCRIPT = """
import json, os, sys
x, width = float(sys.argv[1]), int(sys.argv[2])
with open(os.path.join(os.environ["RESULT_DIR"], "val_dict_list.json"), "w") as file:
    json.dump([{"step": 1, "accuracy": x / width}], file)
"""
SPACE = {"x": uniform(0, 1, step=0.25), "width": choice(1, 2)}
PLAIN = {"framework": "PyTorch", "args": ["{x}", "{width}"], "space": SPACE, "metric": "accuracy", "progress": False}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A server that runs jobs."""
    traits = {"EdtApp.threads_per_slot": 1, "EdtApp.warm_workers": 0}
    with LocalServer(tmp_path_factory.mktemp("searches"), slots=2, traits=traits) as server:
        yield server


@pytest.fixture
def client(runs):
    with Client(runs.url, runs.token) as made:
        yield made
        for search in made.searches():
            if not search.state.final:
                search.stop()
            search.delete()
        made.stop_all()


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "digits"
    made.mkdir()
    (made / "train.py").write_text(SCRIPT)
    return made


def test_a_search_in_python(client, folder):
    plan = client.preview_search(folder, algorithm="grid", **{k: v for k, v in PLAIN.items() if k != "progress"})
    assert (plan.trials, plan.epochs) == (10, 0)
    assert repr(plan).startswith("10 trials; the script says how long each trains.\nIt would start at once")
    assert repr(client.searches()) == "No searches."
    search = client.search(folder, algorithm="grid", parallel=2, tags="night", **PLAIN)
    assert (search.name, search.view.spec.trials, search.view.spec.job.tags) == ("digits", 10, ("night",))
    assert search.wait(300) is search
    best = search.best
    assert (best.number, best.value, best.params) == (8, 1.0, {"x": 1.0, "width": 1})
    assert best.job.status == "FINISHED"
    assert repr(best) == "Trial 8 is FINISHED: 1 after 1 epoch, x=1.0 width=1"
    assert repr(search) == (
        "Search digits is FINISHED: 10 of 10 trials have ended, best accuracy 1 by trial 8 (x=1.0 width=1)."
    )
    trials = search.trials
    assert [each.value for each in trials] == [x / width for x in (0, 0.25, 0.5, 0.75, 1) for width in (1, 2)]
    table = repr(trials).splitlines()
    assert table[0].split() == ["TRIAL", "STATE", "VALUE", "EPOCHS", "JOB", "VALUES"]
    assert table[4].split() == ["3", "FINISHED", "0.125", "1", trials[3].view.job, "x=0.25", "width=2"]
    assert trials._repr_html_().count("<tr>") == 11
    assert sorted(each.trial for each in search.reports()) == [each.number for each in trials]
    assert str(search.decisions()).splitlines()[0].endswith("the search starts: 10 trials by grid")
    assert "the best so far is trial 8: 1 after 1 epoch, x=1, width=1" in repr(search.picture())
    card = search._repr_mimebundle_()
    assert card["application/vnd.edt.search+json"]["view"]["state"] == "FINISHED"
    assert card["text/plain"].startswith(repr(search))
    assert "finished · 10 of 10 trials · best 1 (trial 8)<" in card["text/html"]
    assert card["text/html"].count("<img") == 1  # a grid compares nothing before the end
    assert card["text/html"].count("<tr>") == 11
    assert client.search_named("digits").id == client.search_named(search.id).id == search.id
    assert [each.id for each in client.searches(state="finished")] == [search.id]
    assert client.searches(state="running") == []
    assert client.jobs() == []
    assert {job.id for job in client.jobs(search="digits")} == {each.view.job for each in trials}
    assert [job.name for job in client.jobs(search=search, limit=2)] == ["digits-9", "digits-8"]
    assert client.job("digits-8").id == client.job(best.view.job[:-1]).id == best.view.job
    with pytest.raises(NotFound, match="There is no search 'none'"):
        client.jobs(search="none")
    with pytest.raises(Conflict, match="digits"):
        client.search(folder, algorithm="grid", **PLAIN)
    search.delete()
    with pytest.raises(NotFound, match="There is no search"):
        client.search_named("digits")


def test_an_optimizer_of_ones_own_asks_for_values(client, folder):
    search = client.search(folder, algorithm="manual", trials=5, **PLAIN)
    assert search.evaluate({"x": 0.5, "width": 2}, 300).value == 0.25
    study = optuna.create_study(direction="maximize")

    def objective(trial):
        x = trial.suggest_float("x", 0, 1, step=0.25)
        return search.evaluate({"x": x, "width": 1}, 300).value

    study.optimize(objective, n_trials=3, n_jobs=2)
    assert [each.value == each.params["x"] for each in study.trials] == [True] * 3
    with pytest.raises(Unprocessable, match="3 is none of 1, 2"):
        search.evaluate({"x": 0.5, "width": 3})
    assert search.refresh().state == "RUNNING"
    (folder / "train.py").write_text("nothing reads this any more: the search has its package")
    assert search.evaluate({"x": 1.0, "width": 1}, 300).number == 4
    assert search.wait(300).best.value == 1.0
    with pytest.raises(Conflict, match="cannot try these values now"):
        search.evaluate({"x": 1.0, "width": 1})
    assert search.replay() == ""


def test_who_waits_for_a_trial_hears_that_its_search_rests(client, folder):
    (folder / "train.py").write_text("raise ValueError('as ever')")
    search = client.search(folder, algorithm="manual", trials=5, **PLAIN)
    for x in (0.25, 0.5, 0.75):
        with pytest.raises(JobFailed, match=r"Trial \d is FAILED"):
            search.evaluate({"x": x, "width": 1}, 300)
    with pytest.raises(JobFailed, match="is PAUSED: Your code"):
        search.evaluate({"x": 1.0, "width": 1}, 300)


def test_a_search_as_a_study_of_optuna(client, edt, folder, tmp_path):
    search = client.search(folder, algorithm="grid", **PLAIN).wait(300)
    study, trials = search.study(), search.trials
    assert [(each.number, each.params, each.value) for each in study.trials] == [
        (each.number, each.params, each.value) for each in trials
    ]
    assert (study.best_trial.number, study.best_trial.user_attrs["job"]) == (8, search.best.view.job)
    parts = search.importance()
    assert list(parts) == ["x", "width"], "the value is x / width"
    assert sum(parts.values()) == pytest.approx(1)
    lines = edt("importance", "digits")[1].splitlines()
    assert [line.split()[0] for line in lines] == ["PARAMETER", "x", "width"]
    assert edt("export", "digits", tmp_path / "study.journal")[0] == 0
    storage = optuna.storages.JournalStorage(
        optuna.storages.journal.JournalFileBackend(str(tmp_path / "study.journal"))
    )
    assert optuna.load_study(study_name="digits", storage=storage).trials == study.trials
    with pytest.raises(Conflict, match="has a study 'digits' already"):
        search.export(tmp_path / "study.journal")
    with pytest.raises(Conflict, match="The values of 1 trial do not tell"):
        client.search(folder, algorithm="list", name="one", points=[{"x": 0.5, "width": 2}], **PLAIN).wait(
            300
        ).importance()
    for verb in (("picture", "digits", "-o"), ("export", "digits")):
        code, _, wrong = edt(*verb, tmp_path / "no" / "file")
        assert (code, "cannot be written: No such file" in wrong) == (2, True)
    assert "best so far is trial 8" in edt("picture", "digits", "-o", tmp_path / "history.svg")[1]
    assert (tmp_path / "history.svg").read_text().startswith("<svg")
    assert edt("delete", "digits", "--jobs")[1] == f"{search.id}\n"
    assert search.id not in {job.view.search for job in client.jobs(trials=True)}


def test_trials_as_a_data_frame(client, folder):
    pytest.importorskip("pandas")
    search = client.search(folder, algorithm="list", points=[{"x": 0.5, "width": 2}], **PLAIN).wait(300)
    frame = search.trials.dataframe()
    assert list(frame.columns) == ["trial", "state", "value", "epochs", "job", "x", "width"]
    assert list(frame.iloc[0])[2:4] == [0.25, 1]


def test_a_wait_ends_when_somebody_has_to_do_something(client, folder):
    (folder / "train.py").write_bytes(SLEEPER)
    search = client.search(folder, algorithm="random", trials=4, parallel=1, **PLAIN)
    with pytest.raises(WaitTimeout, match="Search digits is still RUNNING after 0 s"):
        search.wait(0)
    assert search.update(parallel=2, priority=6000).view.spec.parallel == 2
    with pytest.raises(Conflict):
        search.update(trials=3)
    assert search.pause().view.state == "PAUSED"
    with pytest.raises(JobFailed, match=r"is PAUSED: .*search.resume\(\)"):
        search.wait(180)
    assert search.resume().view.state == "RUNNING"
    with pytest.raises(Unprocessable, match="'widht'"):
        search.add({"x": 0.5, "widht": 1})
    assert search.stop().view.state == "STOPPED"
    with pytest.raises(JobFailed, match="STOPPED"):
        search.wait(180)


@pytest.mark.parametrize(
    ("wrong", "error", "sentence"),
    [
        ({"trails": 3}, InvalidRequest, "Did you mean 'trials'"),
        ({"space": "x=log(0,1)"}, Unprocessable, "cannot begin at 0"),
        ({"space": {"x": 3}}, InvalidRequest, "space"),
        ({"args": ["{y}"]}, InvalidRequest, "no 'y'"),
        ({"metric": "quality"}, Unprocessable, "direction='maximize'"),
        ({"algorithm": "grid", "order": "clock"}, Unprocessable, "rungs or free"),
        ({"min_epochs": 1, "epochs": 9}, Unprocessable, "resource="),
    ],
)
def test_a_mistake_is_said_before_anything_is_sent(client, folder, wrong, error, sentence):
    with pytest.raises(error) as refused:
        client.search(folder, **{**PLAIN, "trials": 9, **wrong})
    assert sentence in str(refused.value)
    assert client.searches() == []


@pytest.fixture
def edt(runs, monkeypatch, capsys):
    monkeypatch.setenv("EDT_URL", runs.url)
    monkeypatch.setenv("EDT_TOKEN", runs.token)

    def run(*words, group=("search",)):
        code = main([*group, *map(str, words)])
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


def test_a_search_at_a_shell(client, edt, folder):
    own = ["--algorithm", "grid", "--metric", "accuracy", "--space", "x=uniform(0,1,step=0.25) width=1|2", "--wait"]
    code, said, _ = edt("start", folder, "--framework", "PyTorch", "--name", "s", *own, "--", "{x}", "{width}")
    assert code == 0
    search = client.search_named("s")
    assert said == f"{search.id}\n"
    assert edt("list")[1].splitlines()[1].split()[:4] == ["s", "FINISHED", "10", "of"]
    assert edt("show", "s")[1].startswith("Search s is FINISHED")
    assert len(edt("trials", search.id)[1].splitlines()) == 11
    assert json.loads(edt("trials", "s", "-o", "json")[1])["trials"][8]["params"] == {"x": 1.0, "width": 1}
    assert edt("best", "s")[1].startswith("Trial 8 is FINISHED: 1")
    assert json.loads(edt("best", "s", "-o", "json")[1])["value"] == 1.0
    assert "the search starts" in edt("decisions", "s")[1]
    code, _, wrong = edt("resume", "s")
    assert (code, wrong.startswith("edt: ")) == (2, True)
    assert edt("update", "s", "--parallel", 3)[0] == 0
    assert search.refresh().view.spec.parallel == 3
    assert edt("replay", "s") == (0, "Every decision follows from the reports.\n", "")
    code, said, _ = edt("again", "s")
    again = client.search_named(said.strip()).wait(300)
    assert (code, again.name) == (0, "s-2")
    assert [each.params for each in again.trials] == [each.params for each in search.trials]
    assert again.best.value == search.best.value
    assert edt("again", "s-2", "--seed", 7, "--name", "other")[0] == 0
    assert client.search_named("other").stop().view.spec.seed == 7
    with pytest.raises(Conflict, match="There is a search s-2 already"):
        search.again(name="s-2")
    _, *rows = edt("list", "--state", "finished", group=())[1].splitlines()
    assert [(row.split()[1:5], row.split("search · ")[1]) for row in rows] == [
        (["s-2", "FINISHED", "-", "100"], "10 of 10 trials · best 1 (trial 8)"),
        (["s", "FINISHED", "-", "100"], "10 of 10 trials · best 1 (trial 8)"),
    ]
    assert edt("list", "--state", "killed", group=())[1].splitlines()[1].split()[1:3] == ["other", "STOPPED"]
    older = edt("list", "--before", search.trials[0].view.job, group=())[1].splitlines()
    assert [row.split()[1] for row in older[1:]] == ["s"]
    for nothing in (("--state", "pending"), ("--tag", "night")):
        assert edt("list", *nothing, group=())[:2] == (0, ""), nothing
    trials = edt("list", "--trials", "--state", "finished", group=())[1]
    assert "s-2-9" in trials
    assert "search" not in trials
    assert json.loads(edt("list", "-o", "json", group=())[1]) == {"jobs": []}
    assert edt("delete", "s") == (0, f"{search.id}\n", "")
    assert "s " not in edt("list")[1]
    code, _, wrong = edt("show", "s")
    assert (code, wrong.startswith("edt: There is no search 's'.")) == (2, True)


def test_a_search_at_a_shell_is_paused_and_stopped(client, edt, folder):
    (folder / "train.py").write_bytes(SLEEPER)
    own = [
        "--algorithm",
        "tpe",
        "--order",
        "free",
        "--trials",
        3,
        "--metric",
        "loss",
        "--space",
        "x=1|2",
        "--parallel",
        1,
    ]
    assert edt("start", folder, "--framework", "PyTorch", *own)[0] == 0
    code, _, wrong = edt("add", "digits", "y=1")
    assert (code, "'y', which is not in the space" in wrong) == (2, True)
    code, _, wrong = edt("add", "digits", "x=2")
    assert (code, "cannot try these values now. Give them as points=" in wrong) == (2, True)
    assert edt("update", "digits", "--trials", 40)[0] == 0
    assert edt("add", "digits", "x=2")[0] == 0
    assert "PAUSED" in edt("pause", "digits")[1]
    assert "RUNNING" in edt("resume", "digits")[1]
    assert "STOPPED" in edt("stop", "digits")[1]
    assert edt("best", "digits")[1] == "No trial has a value yet.\n"
    with pytest.raises(SystemExit):
        edt("start", folder)
