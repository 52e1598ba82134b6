"""Projects, experiments and the table of runs from Python and from a shell, against a real server; no torch."""

from __future__ import annotations

import csv
import json

import pytest

from edt_sdk import Client, InvalidRequest, NotFound, Unprocessable
from edt_sdk.cli import main
from edt_sdk.testing import LocalServer

SCRIPT = """
import json, os, sys
from pathlib import Path
rate = float(sys.argv[2])
if rate < 1:
    entries = [{"step": 1, "test_accuracy": 1 - rate, "speed": rate}]
    Path(os.environ["RESULT_DIR"], "val_dict_list.json").write_text(json.dumps(entries))
"""


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    traits = {"EdtApp.threads_per_slot": 1, "EdtApp.warm_workers": 0}
    server = LocalServer(tmp_path_factory.mktemp("projects"), slots=4, traits=traits)
    with server, Client(server.url, server.token) as made:
        yield made


@pytest.fixture(scope="module")
def experiment(client, tmp_path_factory):
    """Three runs that have ended, of which the last one has no metrics."""
    assert repr(client.projects()).startswith("No projects yet: ")
    script = tmp_path_factory.mktemp("script") / "train.py"
    script.write_text(SCRIPT)
    made = client.project("mnist").experiment("rates <1>")
    assert str(made) == "Experiment mnist / rates <1>"
    options = {"framework": "PyTorch", "progress": False}
    for args in (["--lr", "0.25"], ["--lr", "0.5", "--amp"], ["--lr", "10", "--amp"]):
        made.submit(script, args=args, **options).wait(300, progress=False)
    client.project("mnist").submit(script, args=["--lr", "0"], **options).wait(300, progress=False)
    return made


@pytest.fixture
def edt(client, capsys):
    """Run a command, and return its exit code and what it has printed."""

    def run(*words):
        try:
            code = main(["project", *map(str, words), "--url", client.url, "--token", client.server.token])
        except SystemExit as ended:
            code = ended.code
        return code, *capsys.readouterr()

    return run


def test_the_runs_of_an_experiment_are_a_table(client, experiment, tmp_path):
    runs = experiment.runs(sort="lr")
    assert [(row["lr"], row.get("amp"), row.get("test_accuracy")) for row in runs] == [
        (0.25, None, 0.75), (0.5, True, 0.5), (10, True, None),
    ]  # fmt: skip
    assert (len(runs), runs[0]["state"], runs[-1]["lr"]) == (3, "FINISHED", 10)
    assert runs.columns[:4] == ("job", "name", "state", "lr")
    assert [row["lr"] for row in experiment.runs(sort="lr", desc=True, limit=2)] == [10, 0.5]
    text = repr(runs).splitlines()
    assert text[0].split() == ["job", "lr", "amp", "test_accuracy", "speed", "duration", "started"]
    assert text[1].split()[:5] == [runs[0]["job"], "0.25", "-", "0.75*", "0.25"]
    assert text[4].startswith("The same in all runs: name train, state FINISHED, max_workers 1, seed 0, owner ")
    assert runs._repr_html_().count("font-weight: 700") == 1
    frame = runs.to_pandas()
    assert list(frame.columns) == list(runs.columns)
    assert (frame["lr"].max(), str(frame["started"].dt.tz), frame["speed"].isna().sum()) == (10, "UTC", 1)
    with runs.to_csv(tmp_path / "runs.csv").open(newline="") as file:
        assert [line["lr"] for line in csv.DictReader(file)] == ["0.25", "0.5", "10"]
    assert "<svg" in experiment.compare().svg
    everything = client.project("mnist").runs()
    assert (len(everything), everything[0].get("experiment"), everything[1]["experiment"]) == (4, None, "rates <1>")
    assert "rates &lt;1&gt;" in everything._repr_html_()


def test_the_best_run_is_a_job(experiment):
    runs = experiment.runs(sort="lr")
    assert runs.best("test_accuracy").id == runs[0]["job"]
    assert runs.best("test_accuracy", "minimize").id == runs[1]["job"]
    assert runs.best("lr", "maximize").view.args == ("--lr", "10", "--amp")
    with pytest.raises(InvalidRequest, match="Is more or less of 'lr' better"):
        runs.best("lr")
    with pytest.raises(InvalidRequest, match="No run has a number 'test_acuracy'") as wrong:
        runs.best("test_acuracy")
    assert wrong.value.hint == "Did you mean 'test_accuracy'?"
    with pytest.raises(InvalidRequest, match="'amp'"):
        runs.best("amp")  # a flag is no number


def test_projects_are_those_that_jobs_are_in(client, experiment):
    (project,) = client.projects()
    assert (project.name, project.view.runs, [str(each) for each in project.experiments()]) == (
        "mnist", 4, ["Experiment mnist / rates <1>"],
    )  # fmt: skip
    assert repr(client.projects()).splitlines()[1].split()[:4] == ["mnist", "4", "rates", "<1>"]
    assert "rates &lt;1&gt; (3)" in client.projects()._repr_html_()
    assert [job.experiment for job in client.jobs(project="mnist", experiment="rates <1>")] == ["rates <1>"] * 3
    with pytest.raises(NotFound, match="No run is in a project 'minst'"):
        client.project("minst").runs()
    with pytest.raises(NotFound, match="No run is in an experiment 'sizes'"):
        client.project("mnist").experiment("sizes").runs()
    with pytest.raises(Unprocessable, match="no name of a project"):
        client.project("a/b")
    for empty in (lambda: client.project(""), lambda: client.project("mnist").experiment("")):
        with pytest.raises(InvalidRequest, match="is empty"):
            empty()
    with pytest.raises(InvalidRequest, match="The run is in Experiment mnist / rates <1> already"):
        experiment.submit("nowhere", project="other")


def test_projects_at_a_shell(experiment, edt):
    assert edt("list")[1].splitlines()[1].split()[:2] == ["mnist", "4"]
    assert json.loads(edt("list", "-o", "json")[1])["projects"][0]["experiments"][0]["runs"] == 3
    code, said, _ = edt("runs", "mnist", "rates <1>", "--sort", "test_accuracy", "--desc")
    assert (code, [line.split()[1] for line in said.splitlines()[1:4]]) == (0, ["0.25", "0.5", "10"])
    sheet = edt("runs", "mnist", "--csv", "--sort", "lr", "--limit", "2")[1].splitlines()
    assert [line.split(",")[4] for line in sheet] == ["lr", "0", "0.25"]
    assert json.loads(edt("runs", "mnist", "-o", "json")[1])["total"] == 4
    assert edt("runs", "mnist", "--sort", "lrr")[::2] == (
        2,
        "edt: The runs have no column 'lrr'. Did you mean 'lr'?\n",
    )
