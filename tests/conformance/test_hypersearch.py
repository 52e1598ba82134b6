"""Tasks of hyper-parameter search, as notebooks, dlicmd and the SDK start, poll, stop and read them."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import requests

from edt_sdk import log
from edt_sdk.testing import LocalServer
from tests.conformance.conftest import WmlaServer, modeldir
from tests.packages import packed
from tests.server.suggestions import plugins
from tests.waiting import until

pytestmark = pytest.mark.filterwarnings("ignore::urllib3.exceptions.InsecureRequestWarning")

# As WMLA's model code reads its values and leaves its metrics.
SCRIPT = b"""
import json, os, time
values = json.load(open("config.json"))
if values.get("fails"):
    raise SystemExit("it fails")
time.sleep(600 * float(values.get("sleeps", 0)))
loss = float(values.get("rate", 1)) * 10
entries = [{"steps": 1, "loss": loss + 1, "accuracy": 0.25}, {"steps": 2, "loss": loss, "accuracy": 0.5}]
json.dump(entries, open(os.path.join(os.environ["RESULT_DIR"], "val_dict_list.json"), "w"))
"""
ARGS = "--exec-start PyTorch --model-main hpo.py --model-dir hpo --debug-level debug"
RATE = {
    "name": "rate", "type": "Range", "dataType": "DOUBLE", "minDbVal": 0.001, "maxDbVal": 0.1, "minIntVal": 0,
    "maxIntVal": 0, "discreteDbVal": [], "discreteIntVal": [], "discreateStrVal": [], "step": "0.002",
}  # fmt: skip
HIDDEN = {"name": "hidden", "type": "Discrete", "dataType": "int", "discreteIntVal": [500, 565]}
_GRID = "ExperimentGridSearch"
TIME = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"


def data(algorithm: str = "Random", *, params: Mapping[str, str] = {}, **more: Any) -> dict[str, Any]:
    definition = {
        "algorithm": algorithm, "maxRunTime": -1, "maxJobNum": 3, "maxParalleJobNum": 2, "objectiveMetric": "loss",
        "objective": "minimize", "algoParams": [{"name": name, "value": value} for name, value in params.items()],
    }  # fmt: skip
    changed = {name: more.pop(name) for name in list(more) if name in (*definition, "additionalMetrics")}
    whole = {
        "modelSpec": {"sigName": "wmla-sig", "args": ARGS},
        "algoDef": definition | changed,
        "hyperParams": [RATE, HIDDEN],
    }
    return {name: value for name, value in {**whole, **more}.items() if value is not None}


def start(server: WmlaServer, form: object, **more: Any) -> requests.Response:
    files = {"file": ("hpo.modelDir.tar", modeldir("hpo", {"hpo.py": SCRIPT}))}
    text = form if isinstance(form, str) else json.dumps(form)
    arguments = {"files": files, "data": {"data": text}, "auth": server.basic} | more
    return requests.post(f"{server.dli}/hypersearch", verify=False, **arguments)


def polled(server: WmlaServer, name: str) -> dict[str, Any]:
    """The state object at the end, polled as every notebook does."""

    def look() -> dict[str, Any] | None:
        found = requests.get(f"{server.dli}/hypersearch/{name}", auth=server.basic, verify=False).json()
        return None if found["state"] in ("SUBMITTED", "RUNNING") else dict(found)

    return until(look, f"the end of {name}")


def ask(server: WmlaServer, verb: str, path: str = "", **more: Any) -> requests.Response:
    return requests.request(verb, f"{server.dli}/hypersearch{path}", auth=server.basic, verify=False, **more)


def test_a_random_search_of_a_1x_notebook(http: WmlaServer) -> None:
    answer = start(http, data(params={"RandomSeed": "2"}))
    assert answer.status_code == 200, answer.text
    name = answer.json()
    assert re.fullmatch(r"[\w.-]+-hpo-\d{16}", name)
    found = polled(http, name)
    assert (found["state"], found["complete"], found["failed"], found["progress"]) == ("FINISHED", 3, 0, "3/3")
    assert re.fullmatch(TIME, found["createtime"])
    assert re.fullmatch(r"00:\d\d:\d\d", found["duration"])
    assert [each["id"] for each in found["experiments"]] == [0, 1, 2]
    for each in found["experiments"]:
        rate, hidden = each["hyperParams"]
        assert (rate["name"], rate["dataType"], rate["userDefined"]) == ("rate", "double", False)
        # min + k * step, in decimal numbers, as a text.
        assert re.fullmatch(r"0\.0\d?[13579]", rate["fixedVal"])
        assert hidden["fixedVal"] in ("500", "565")
        assert each["metricVal"] == pytest.approx(float(rate["fixedVal"]) * 10)
        assert {m["name"]: m["latest"] for m in each["metrics"]} == {"accuracy": 0.5, "loss": each["metricVal"]}
        assert re.fullmatch(TIME, each["startTime"])
        assert re.fullmatch(TIME, each["endTime"])
        sub = requests.get(f"{http.dli}/execs/{each['appId']}", auth=http.basic, verify=False).json()
        assert (sub["state"], sub["args"].strip()) == ("FINISHED", ARGS)
    # The third waits for one of the two that run at once.
    *two, third = found["experiments"]
    assert third["startTime"] >= min(each["endTime"] for each in two)
    assert found["best"] == min(found["experiments"], key=lambda each: each["metricVal"])
    assert found["hyperParams"][0] == {**RATE, "type": "range", "dataType": "double", "userDefined": False}
    assert found["algoDef"]["algorithm"] == "Random"
    assert name in [each["hpoName"] for each in ask(http, "GET", "?limit=100&state=FINISHED&sort_by=createtime").json()]
    # The trainings stay when the task is deleted.
    again = ask(http, "PUT", f"/{name}")
    assert (again.status_code, again.text) == (400, f"Error 400: Model tuning {name} is already stopped.\n")
    assert ask(http, "PUT", f"/{name}/restart").status_code == 400
    assert ask(http, "DELETE", f"/{name}").ok
    assert ask(http, "GET", f"/{name}").status_code == 404
    kept = found["experiments"][0]["appId"]
    assert requests.get(f"{http.dli}/execs/{kept}", auth=http.basic, verify=False).ok


def test_a_grid_keeps_its_experiments_and_one_fails(http: WmlaServer) -> None:
    """As the custom experiments of the notebooks: ids of their own, other values in each, one that raises."""

    def fixed(name: str, kind: str, value: object) -> dict[str, object]:
        return {"name": name, "dataType": kind, "fixedVal": value}

    experiments = [
        {"id": 1, "hyperParams": [fixed("rate", "DOUBLE", "0.1"), fixed("hidden", "INT", "564")]},
        {"id": 7, "hyperParams": [fixed("fails", "STRING", "yes")]},
        {"id": 2, "hyperParams": [fixed("rate", "DOUBLE", "0.01")]},
    ]
    form = data("ExperimentGridSearch", hyperParams=None, experiments=experiments, params={"ResourceName": "epochs"})
    form["hpoName"] = "grid"
    # A single script in a part with its own name, by a token: 2.2's notebook reads uid.
    answer = start(
        http, form, auth=None, headers={"X-Auth-Token": http.logon()}, files={"hpo.py": ("hpo.py", SCRIPT)},
    )  # fmt: skip
    uid = {"uid": "grid", "href": "/platform/rest/deeplearning/v1/hypersearch/grid"}
    assert (answer.status_code, answer.json()) == (200, uid)
    assert start(http, form).status_code == 400, "its name is taken"
    found = polled(http, "grid")
    assert (found["state"], found["complete"], found["failed"], found["progress"]) == ("FINISHED", 3, 1, "3/3")
    assert [(each["id"], each["state"], each["metricVal"]) for each in found["experiments"]] == [
        (1, "FINISHED", 1.0),
        (7, "FAILED", 9999.99),
        (2, "FINISHED", 0.1),
    ]
    assert found["best"]["id"] == 2
    assert found["experiments"][0]["hyperParams"][1] == {
        "name": "hidden", "dataType": "int", "fixedVal": "564", "userDefined": False, "type": "fix",
    }  # fmt: skip
    assert ask(http, "DELETE", "/grid").ok


def test_stop_restart_and_delete_of_a_running_task(http: WmlaServer) -> None:
    sleeps = {"name": "sleeps", "type": "Discrete", "dataType": "INT", "discreteIntVal": [1]}
    name = start(http, data(hyperParams=[sleeps], maxParalleJobNum=1)).json()

    def running() -> dict[str, Any] | None:
        found = ask(http, "GET", f"/{name}").json()
        states = [
            requests.get(f"{http.dli}/execs/{each['appId']}", auth=http.basic, verify=False).json()["state"]
            for each in found["experiments"]
        ]
        return found if states[-1:] == ["RUNNING"] else None

    found = until(running, "an experiment that runs")
    assert (found["state"], found["running"], found["progress"]) == ("RUNNING", 1, "0/3")
    assert "best" not in found
    assert ask(http, "PUT", f"/{name}/force").ok
    (experiment,) = polled(http, name)["experiments"]
    http.wait(experiment["appId"], "KILLED")
    assert ask(http, "GET", f"/{name}").json()["state"] == "STOPPED"
    assert ask(http, "PUT", f"/{name}/restart").ok
    again = until(running, "it goes on", 60)
    assert [each["id"] for each in again["experiments"]] == [0]
    # A running task is stopped first, and its training too.
    assert ask(http, "DELETE", f"/{name}").ok
    http.wait(again["experiments"][-1]["appId"], "KILLED")
    assert ask(http, "GET", f"/{name}").status_code == 404


@pytest.mark.parametrize(
    ("algorithm", "params", "parallel"),
    [
        ("Tpe", {"WarmUp": "3", "GoodRatio": "0.25", "RandomSeed": "2"}, 2),
        ("Bayesian", {"InitPoints": "2", "CubeSize": "300"}, 2),
        ("Hyperband", {"ResourceName": "epochs", "ResourceValue": "81", "eta": "3"}, 2),
    ],
)
def test_the_other_algorithms(http: WmlaServer, algorithm: str, params: dict[str, str], parallel: int) -> None:
    name = start(http, data(algorithm, params=params, maxParalleJobNum=parallel)).json()
    found = polled(http, name)
    assert (found["state"], found["progress"]) == ("FINISHED", "3/3"), found
    shown = {each["name"]: each["value"] for each in found["algoDef"]["algoParams"]}
    assert params.items() <= shown.items() or params["eta"] + ".0" == shown["eta"]
    if algorithm == "Hyperband":
        # As recorded: the first rung of the widest bracket, cut off by maxJobNum.
        resource = {"name": "epochs", "dataType": "str", "fixedVal": "1", "userDefined": False}
        assert [each["hyperParams"][-1] for each in found["experiments"]] == [resource] * 3
    ask(http, "DELETE")
    assert ask(http, "GET").json() == []


def test_tasks_are_listed_as_the_recordings_have_them(http: WmlaServer) -> None:
    names = ["b-first", "a-second", "c-third"]
    for name in names:
        assert start(http, {**data(maxJobNum=1, hyperParams=[HIDDEN]), "hpoName": name}).ok

    def listed(query: str = "") -> list[str]:
        return [each["hpoName"] for each in ask(http, "GET", query).json()]

    assert listed() == names, "oldest first"
    assert listed("?sort_by=createtime:desc&limit=1") == names[-1:]
    assert listed("?sort=hpoName") == sorted(names)
    assert ask(http, "DELETE").ok
    assert listed() == []


def test_a_native_search_is_a_task_too(http: WmlaServer, tmp_path: Path) -> None:
    (tmp_path / "hpo.py").write_bytes(SCRIPT)
    search = http.local.client().search(
        tmp_path, name="native", main="hpo.py", framework="PyTorch", space={"rate": log(0.01, 0.1)}, metric="loss",
        algorithm="qmc", trials=1, seed=3, progress=False,
    )  # fmt: skip
    search.wait(180)
    found = polled(http, "native")
    assert (found["state"], found["progress"], found["creator"]) == ("FINISHED", "1/1", search.view.owner)
    assert found["best"]["metricVal"] == search.best.value
    assert found["algoDef"]["algorithm"] == "qmc"
    search.delete()


def test_a_plug_in_is_installed_searches_and_is_deleted(http: WmlaServer) -> None:
    """The calls of the plug-in notebook, with a sample that has the habits of IBM's."""
    package = packed({"optimizer.py": plugins.RANDOM.encode()})
    definition = {"data": json.dumps({"name": "my-random", "condaEnv": "dlipy3", "remoteExec": False})}
    answer = ask(http, "POST", "/algorithm/install", data=definition, files={"file": ("random.tar", package)})
    assert answer.ok, answer.text
    again = ask(http, "POST", "/algorithm/install", data=definition, files={"file": ("random.tar", package)})
    assert (again.status_code, "already" in again.text) == (400, True)
    found = ask(http, "GET", "/algorithm/my-random").json()
    # Notebooks print it as it comes.
    assert " ".join(found) == "name path condaHome condaEnv creator createtime type remoteExec logLevel"
    assert (found["name"], found["type"], found["remoteExec"]) == ("my-random", "USER_PLUGIN", False)
    listed = [each["name"] for each in ask(http, "GET", "/algorithm").json()]
    assert listed == ["Random", "TPE", "Bayesian", "Hyperband", "ExperimentGridSearch", "my-random"]
    assert ask(http, "GET", "/algorithm?type=USER_PLUGIN").json() == [found]
    name = start(http, data("my-random", params={"random_seed": "3"})).json()
    task = polled(http, name)
    assert (task["state"], task["progress"], task["algoDef"]["algorithm"]) == ("FINISHED", "3/3", "my-random")
    # What a plug-in returns without steps has steps, and its state makes the second batch another one.
    values = [each["hyperParams"][0]["fixedVal"] for each in task["experiments"]]
    assert len(set(values)) == 3
    assert all(re.fullmatch(r"0\.0\d?[13579]", value) for value in values)
    assert ask(http, "DELETE", "/algorithm/my-random").ok
    assert ask(http, "GET", "/algorithm/my-random").status_code == 404
    assert start(http, data("my-random")).status_code == 400
    assert ask(http, "DELETE").ok


def test_a_plug_in_is_installed_from_the_data_folder_as_the_notebook_does_it(http: WmlaServer) -> None:
    folder = Path(http.local.root, "data-fs", "random-plug-in")
    folder.mkdir()
    (folder / "optimizer.py").write_text(plugins.RANDOM)
    (folder / "notes").mkdir()
    (folder / "notes" / "more.txt").write_text("copied")
    definition = {"data": json.dumps({"name": "local-random", "path": str(folder), "logLevel": "INFO"})}
    # IBM's notebook sends the definition as a field and as a file.
    answer = ask(http, "POST", "/algorithm/install", data=definition, files=definition)
    assert answer.ok, answer.text
    shutil.rmtree(folder)
    installed = Path(ask(http, "GET", "/algorithm/local-random").json()["path"])
    assert (installed / "notes" / "more.txt").read_text() == "copied"
    name = start(http, data("local-random", params={"random_seed": "3"})).json()
    assert polled(http, name)["progress"] == "3/3"
    assert ask(http, "DELETE", f"/{name}").ok
    assert ask(http, "DELETE", "/algorithm/local-random").ok


@pytest.mark.long
@pytest.mark.parametrize("source", ["RANDOM", "GRID"])
def test_a_plug_in_goes_on_where_a_killed_server_left_it(tmp_path: Path, source: str) -> None:
    traits = {"EdtApp.threads_per_slot": 1, "EdtApp.warm_workers": 1}
    with LocalServer(tmp_path, slots=2, traits=traits) as local:
        server = WmlaServer(local)
        definition = {"data": json.dumps({"name": "mine"})}
        package = packed({"optimizer.py": getattr(plugins, source).encode()})
        assert ask(server, "POST", "/algorithm/install", data=definition, files={"file": ("p.tar", package)}).ok
        form = data("mine", params={"random_seed": "3"}, maxJobNum=8, modelSpec={"args": ARGS})
        undisturbed = polled(server, start(server, form).json()["uid"])
        name = start(server, form).json()["uid"]

        def half_done() -> dict[str, Any] | None:
            found = ask(server, "GET", f"/{name}").json()
            return dict(found) if found["complete"] >= 3 else None

        assert until(half_done, "the third experiment")["state"] == "RUNNING"
        local.kill()
        local.start()
        found = polled(server, name)
    assert (found["state"], found["progress"]) == ("FINISHED", "8/8")
    kept = ("id", "state", "hyperParams", "metricVal", "metrics")
    tried, expected = ([[each[key] for key in kept] for each in task["experiments"]] for task in (found, undisturbed))
    assert tried == expected


@pytest.mark.parametrize(
    ("form", "package", "words"),
    [
        ({"name": "Wrong"}, {"other.py": b""}, "optimizer.py"),
        ({"name": "Wrong"}, {"optimizer.py": b"import nothing_of_this_name"}, "No module named 'nothing_of_this_name'"),
        ({"name": "Wrong"}, {"optimizer.py": b"class Optimizer: pass"}, "PluginOptimizer"),
        ({"name": "Wrong"}, {"../optimizer.py": b""}, "leads out of the package"),
        ({"name": "Wrong", "path": "/opt/plugin"}, {"optimizer.py": b""}, "outside of the server's data folder"),
        ({"name": "Wrong", "path": "absent"}, {"optimizer.py": b""}, "There is no absent in the server's data folder"),
        ({"name": "Wrong", "path": "."}, {"optimizer.py": b""}, "optimizer.py"),
        ({"name": "Wrong", "logLevel": "LOUD"}, {"optimizer.py": b""}, "is no level"),
        ({"name": "Bayesian"}, {"optimizer.py": b""}, "is built in"),
        ({"name": "a/b"}, {"optimizer.py": b""}, "cannot be called"),
        ({"name": "Randon"}, {"optimizer.py": b""}, "is not near a built-in one"),
        ({}, {"optimizer.py": b""}, "has no name"),
    ],
)
def test_plug_ins_that_cannot_be_used(http: WmlaServer, form: Any, package: dict[str, bytes], words: str) -> None:
    files = {"file": ("p.tar", packed(package))}
    answer = ask(http, "POST", "/algorithm/install", data={"data": json.dumps(form)}, files=files)
    assert words in answer.text
    assert answer.status_code == (404 if form.get("path") == "absent" else 400)
    assert ask(http, "GET", "/algorithm?type=USER_PLUGIN").json() == []
    assert ask(http, "DELETE", "/algorithm/TPE").status_code == 400


WRONG: dict[str, tuple[dict[str, Any] | str, str]] = {
    "no data": ("", "has no data"),
    "no JSON": ("{", "is not JSON"),
    "no object": ("[1]", "is a JSON object"),
    "no modelSpec": (data(modelSpec=None), "modelSpec"),
    "no args": (data(modelSpec={"sigName": "wmla-sig"}), "has no args"),
    "an unknown group": (data(modelSpec={"sigName": "nobodys", "args": ARGS}), "There is no instance group 'nobodys'"),
    "a group that is no text": (data(modelSpec={"sigName": [1], "args": ARGS}), "sigName"),
    "no algoDef": (data(algoDef=None), "algoDef"),
    "no algorithm": (data(algorithm=""), "algoDef.algorithm"),
    "an unknown algorithm": (data("Simulated"), "There is no search algorithm 'Simulated'"),
    "an algorithm that is misspelt": (data("Randon"), "Did you mean 'random'?"),
    "an algorithm of ours": (data("halving"), "There is no algorithm halving"),
    "no metric": (data(objectiveMetric=None), "objectiveMetric"),
    "another objective": (data(objective="smallest"), "direction is"),
    "no number of experiments": (data(maxJobNum="many"), "maxJobNum"),
    "no experiments at once": (data(maxParalleJobNum=0), "maxParalleJobNum"),
    "additional metrics as a list": (data(additionalMetrics=["loss"]), "additionalMetrics"),
    "both": (data(experiments=[{"id": 1, "hyperParams": []}]), "Random has no experiments"),
    "both for a grid": (data(_GRID, experiments=[{"id": 1, "hyperParams": []}]), "not both"),
    "a grid of nothing": (data(_GRID, hyperParams=None), "needs experiments"),
    "no resource": (data("Hyperband", params={"ResourceValue": "81"}), "needs the algoParam ResourceName"),
    "an empty space": (data(hyperParams=[]), "The space is empty"),
    "a step that is none": (data(hyperParams=[{**RATE, "step": "abc"}]), "hyperParams.rate.step is a number"),
    "no end": (data(hyperParams=[{**RATE, "maxDbVal": None}]), "hyperParams.rate.maxDbVal"),
    "ends the wrong way round": (data(hyperParams=[{**RATE, "maxDbVal": 0}]), "ends before that"),
    "a whole number that is none": (data(hyperParams=[{**HIDDEN, "discreteIntVal": [1.5]}]), "is a whole number"),
    "a number beyond all": (data(hyperParams=[{**HIDDEN, "discreteIntVal": [10**400]}]), "is a whole number"),
    "no choices": (data(hyperParams=[{**HIDDEN, "discreteIntVal": []}]), "no list discreteIntVal"),
    "another dataType": (data(hyperParams=[{**RATE, "dataType": "COMPLEX"}]), "INT, DOUBLE or STR"),
    "WarmUp below its bound": (data("Tpe", params={"WarmUp": "2"}), "WarmUp"),
    "a small cube": (data("Bayesian", params={"CubeSize": "2"}), "CubeSize is at least"),
    "the name of a route": (data(hpoName="algorithm"), "cannot be called algorithm"),
    "a name with a slash": (data(hpoName="a/b"), "cannot be called"),
}


@pytest.mark.parametrize("case", WRONG)
def test_bad_input_is_a_line_that_says_what(http: WmlaServer, case: str) -> None:
    form, words = WRONG[case]
    answer = start(http, form)
    assert (answer.status_code, answer.text[:11]) == (400, "Error 400: "), answer.text
    assert words in answer.text
    assert answer.text.count("\n") == 1


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"data": (None, json.dumps(data()))}, "brings 0 files"),
        ([("one", ("a.py", b"1")), ("two", ("b.py", b"2"))], "brings 2 files"),
        ({"file": ("m.tar", packed({"../../outside.py": b"x"}))}, "leads out of the package"),
        ({"file": ("m.tar", b"no archive")}, "not a readable tar"),
    ],
)
def test_files_that_cannot_be_used(http: WmlaServer, files: Any, words: str) -> None:
    answer = start(http, data(), files=files)
    assert (answer.status_code, words in answer.text) == (400, True), answer.text
    assert ask(http, "GET").json() == []
