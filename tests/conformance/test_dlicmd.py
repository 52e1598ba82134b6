"""dlicmd's sequences of requests, written afresh: each command asks `/conf` first, then goes from answer to answer.

Its raw habits are kept: its own command line as `args`, with the `json` that `-o json` leaves in it, a slash before the
query, a token from a file that is written over without being shortened, `verify=False`.
"""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path, PurePath

import pytest
import requests

from tests.conformance.conftest import MODELS, WmlaServer, modeldir
from tests.waiting import until

pytestmark = pytest.mark.filterwarnings("ignore::urllib3.exceptions.InsecureRequestWarning")

ACTIVE = "NEW,SUBMITTED,PENDING_JOB_SCHEDULER,PENDING_CRD_SCHEDULER,LAUNCHING,RUNNING,RECOVERING,UNKNOWN"
NON_ACTIVE = "FINISHED,KILLED,ERROR"
PYTORCH = (
    "--exec-start PyTorch --model-main pytorch_mnist.py --model-dir single --appName my-app "
    "--cs-datastore-meta type=fs --workerDeviceNum 1 json --workerMemory 4G --msd-env NAME=VALUE "
    "--msd-image-name registry/image:1 --debug-level debug -- --epochs 2 --no-cuda"
)


class Dlicmd:
    """One user at a shell."""

    def __init__(self, server: WmlaServer, home: Path) -> None:
        self.server = server
        self.file = home / ".dlicmd"
        if server.url.startswith("https"):
            self.logon(*server.basic)
        else:
            # It logs on over https alone; where there is none the token is given (`--jwt-token`).
            self.file.write_text(server.logon())

    def logon(self, user: str, password: str) -> None:
        answer = requests.get(f"{self.server.url}/auth/v1/logon", auth=(user, password), verify=False)
        assert answer.ok, answer.status_code
        with self.file.open("r+" if self.file.exists() else "w") as file:
            file.write(answer.json()["accessToken"])

    def ask(self, verb: str, path: str, accept: str = "application/json", **more: object) -> requests.Response:
        headers = {"Accept": accept, "Authorization": f"Bearer {self.file.read_text()}"}
        answer = requests.request(verb, self.server.dli + path, headers=headers, verify=False, **more)
        assert not answer.history, "it would send a POST again as a GET"
        return answer

    def command(self, verb: str, path: str, accept: str = "application/json", **more: object) -> requests.Response:
        conf = self.ask("GET", "/conf")
        assert str(conf.json().get("MSD_ENABLED", "")).lower() in ("true", "false")
        return self.ask(verb, path, accept, **more)

    def start(self, args: str, model: str, data_source: list[object] | None = None) -> dict[str, str]:
        files: list[tuple[str, object]] = [("file", (f"{model}.modelDir.tar", modeldir(model)))]
        form = {"data": json.dumps({"dataSource": data_source})} if data_source else None
        answer = self.command("POST", f"/execs/?args={args}", files=files, data=form)
        assert answer.ok, answer.text
        body = answer.json()
        return {"execId": body["id"], "appId": body["appId"]}

    def application_logs(self, exec_id: str, kind: str) -> dict[str, str]:
        """`--exec-outlogs` and its like: of the driver, and of each executor."""
        app_id = self.command("GET", f"/execs/{exec_id}").json()["appId"]
        (application,) = self.ask("GET", f"/scheduler/applications?applicationid={app_id}").json()
        logs = {}
        if application.get("task0"):
            logs["driver"] = self.ask("GET", f"/scheduler/applications/{app_id}/driver/logs/{kind}", "text/plain").text
        for number in range(1, len(application.get("task12n", [])) + 1):
            path = f"/scheduler/applications/{app_id}/executor/{number}/logs/{kind}"
            logs[str(number)] = self.ask("GET", path, "text/plain").text
        return logs

    def result(self, exec_id: str) -> tuple[str, bytes]:
        """`--exec-trainresult`: the name it saves, and the content."""
        answer = self.command("GET", f"/execs/{exec_id}/result?args=--exec-trainresult {exec_id}", "application/zip")
        name = "train_result.zip"
        for item in answer.headers["Content-Disposition"].split(";"):
            if item.startswith("filename="):
                name = item[len("filename=") :]
        return name, answer.content

    def applications(self, states: str, sort: str = "-submit_time") -> list[dict[str, object]]:
        query = f"start=0&length=10000&sort={sort}&state={states}"
        found = self.command("GET", f"/scheduler/engine/applications?{query}").json()
        assert self.ask("GET", "/scheduler/kubernetesobjects?type=pod").json()["items"] == []
        return list(found)


@pytest.fixture
def dlicmd(server: WmlaServer, tmp_path: Path) -> Dlicmd:
    return Dlicmd(server, tmp_path)


def test_a_plain_script_from_start_to_result(dlicmd: Dlicmd):
    """The sample of the product's own documentation: it saves into a model folder that it does not make."""
    started = dlicmd.start(PYTORCH, "single", [{"type": "fs", "location": {"paths": "mnist"}}])
    exec_id = started["execId"]
    assert started["appId"] == exec_id

    seen = dlicmd.command("GET", f"/execs/{exec_id}").json()
    if seen["state"] not in ("FINISHED", "KILLED", "ERROR"):
        pj = dlicmd.ask("GET", f"/scheduler/kubernetesobjects?type=paralleljob&name={seen['appId']}").json()
        assert pj["status"]["jobStatus"] in ACTIVE
    dlicmd.server.wait(exec_id, "FINISHED")

    (listed,) = dlicmd.command("GET", "/execs/?limit=1&state=FINISHED&sort_by=createTime:desc").json()
    assert (listed["id"], listed["appName"], listed["framework"]) == (exec_id, "my-app", "PyTorch")
    assert listed["elastic"] is False

    logs = dlicmd.application_logs(exec_id, "stdout")
    assert list(logs) == ["1"]
    # The script's own options came through, and no other.
    assert logs["1"].startswith("Namespace(epochs=2, no_cuda=True")
    assert dlicmd.application_logs(exec_id, "stderr") == {"1": ""}
    story = dlicmd.application_logs(exec_id, "launcherlog")["1"]
    assert "--msd-image-name registry/image:1 has no meaning here" in story

    for command, kind in (("--exec-trainoutlogs", "outlog"), ("--exec-trainlogs", "outerrlog")):
        log = dlicmd.command("GET", f"/execs/{exec_id}/log?logType={kind}&args={command} {exec_id}", "text/plain")
        assert log.text.startswith("Namespace(")
        assert log.text.endswith("saved\n")
    assert dlicmd.command("GET", f"/execs/{exec_id}/log?logType=errlog", "text/plain").text == ""

    name, content = dlicmd.result(exec_id)
    assert name.startswith("dlpd-model")
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        import torch

        state = torch.load(io.BytesIO(archive.read("model/saved_model.pth")), weights_only=True)
    assert state["weight"].shape == (2, 4)

    waited = dlicmd.command("GET", f"/scheduler/engine/applications/{exec_id}").json()[0]
    assert waited["state"] in NON_ACTIVE.split(",")
    assert isinstance(waited["submit_time"], int)
    assert exec_id in [each["id"] for each in dlicmd.applications(NON_ACTIVE)]
    assert exec_id not in [each["id"] for each in dlicmd.applications(ACTIVE)]
    assert dlicmd.command("DELETE", f"/execs/{exec_id}").ok
    assert dlicmd.command("GET", f"/scheduler/engine/applications/{exec_id}").json() == []


def test_a_command_without_any_file(dlicmd: Dlicmd):
    """It sends no body then, or the data source as a plain form."""
    args = "--exec-start PyTorch --user-cmd -- echo a  b; ls -A | wc -l"
    for form in (None, {"data": json.dumps({"dataSource": [{"type": "fs", "location": {"paths": "mnist"}}]})}):
        answer = dlicmd.command("POST", f"/execs/?args={args}", files=[], data=form)
        assert answer.ok, answer.text
        dlicmd.server.wait(answer.json()["id"], "FINISHED")
        log = dlicmd.command("GET", f"/execs/{answer.json()['id']}/log?logType=outlog", "text/plain").text
        assert log.split() == ["a", "b", "0"]


RANKS = b"""
import os, sys
print("rank", os.environ["RANK"], "of", os.environ["WORLD_SIZE"], *sys.argv[1:])
"""
ELASTIC = {
    "among the others": "--model-main ranks.py --nnodes=2 --rdzv_id=7 --model-dir m --epochs 2",
    "as torchrun has it": "--model-dir m -- --nnodes=2 --rdzv_id=7 ranks.py --epochs 2",
    "as a module": "--model-dir m -- --nnodes=1 --nproc_per_node=2 --rdzv_id=7 -m ranks --epochs 2",
    "as a command": "--model-dir m --user-cmd -- python -m torchelastic.distributed.launch --nnodes=2 --rdzv_id=7 "
    "ranks.py --epochs 2",
}


# How a command line is read is tested without a job too: tests/server/wmla.
@pytest.mark.parametrize(
    "way", [pytest.param(way, marks=() if way == "as a module" else pytest.mark.long) for way in ELASTIC]
)
def test_a_torchelastic_command_line_in_the_args(dlicmd: Dlicmd, way: str):
    files = {"file": ("m.modelDir.tar", modeldir("m", {"ranks.py": RANKS}))}
    answer = dlicmd.command("POST", "/execs", params={"args": f"--exec-start torchrun {ELASTIC[way]}"}, files=files)
    assert answer.ok, answer.text
    exec_id = answer.json()["id"]
    assert dlicmd.server.wait(exec_id, "FINISHED")["framework"] == "torchrun"
    log = dlicmd.command("GET", f"/execs/{exec_id}/log?logType=outlog", "text/plain").text
    assert sorted(log.splitlines()) == [f"rank {rank} of 2 --epochs 2" for rank in (0, 1)]
    # What has another meaning here is said.
    story = dlicmd.command("GET", f"/scheduler/applications/{exec_id}/driver/logs/launcherlog", "text/plain").text
    assert "--rdzv-id=7: not needed" in story


def test_jobs_that_run_in_their_place_of_the_plan_until_all_are_stopped(dlicmd: Dlicmd):
    script = (MODELS / "single" / "pytorch_mnist.py").read_bytes()
    args = "--exec-start PyTorch --model-main pytorch_mnist.py --ig wmla-sig --sleep 600"
    ids = []
    for _ in range(3):
        answer = dlicmd.command("POST", f"/execs/?args={args}", files={"file": ("pytorch_mnist.py", script)})
        assert answer.ok, answer.text
        ids.append(answer.json()["id"])
    dlicmd.server.wait(ids[0], "RUNNING")

    tree = dlicmd.command("GET", "/resplans/resplantree").json()
    places = {
        str(PurePath("/", tree["id"], child["id"])): child
        for child in tree["childTreeDto"]
        if not child["childTreeDto"]
    }
    active = dlicmd.applications(ACTIVE, "submit_time")
    assert [each["id"] for each in active] == ids, "sorted by when they came"
    for each in active:
        assert places[str(each["consumer"])]["id"] == "wmla-sig"
        assert each["tag"] == str(PurePath(str(each["consumer"]), str(each["submit_user"])))
    assert active[-1]["state"] == "PENDING_JOB_SCHEDULER"
    assert dlicmd.command("GET", "/resplans/resplan/wmla-sig").json()["path"] in places

    assert dlicmd.command("DELETE", "/resplans/resplan/wmla-sig").status_code == 400, "jobs are in it"
    for each in active:
        assert dlicmd.command("PUT", f"/scheduler/applications/{each['id']}/stop").ok
    for job in ids:
        dlicmd.server.wait(job, "KILLED")
    assert dlicmd.applications(ACTIVE) == []
    assert dlicmd.command("DELETE", "/execs").ok
    assert dlicmd.command("GET", "/execs/").json() == []


SEARCHED = b"""
import json, os
rate = json.load(open("config.json"))["rate"]
json.dump([{"step": 1, "loss": rate}], open(os.path.join(os.environ["RESULT_DIR"], "val_dict_list.json"), "w"))
"""
SEARCH = {
    "modelSpec": {"args": "--exec-start PyTorch --model-main s.py --model-dir s"},
    "algoDef": {"algorithm": "Random", "maxJobNum": 2, "maxParalleJobNum": 2, "objectiveMetric": "loss"},
    "hyperParams": [{"name": "rate", "type": "Range", "dataType": "DOUBLE", "minDbVal": 0.1, "maxDbVal": 0.9}],
}


# Of a task that runs they are in calls.py.
def test_its_commands_for_searches_and_what_their_tables_need(dlicmd: Dlicmd):
    files = [("file", ("tmp1.modelDir.tar", modeldir("s", {"s.py": SEARCHED})))]
    answer = dlicmd.command("POST", "/hypersearch", files=files, data={"data": json.dumps(SEARCH)})
    assert answer.ok, answer.text
    name = answer.json()["uid"]

    def ended() -> bool:
        return dlicmd.command("GET", f"/hypersearch/{name}").json()["state"] not in ("SUBMITTED", "RUNNING")

    until(ended, f"the end of {name}")
    (task,) = dlicmd.command("GET", "/hypersearch?limit=1&state=FINISHED&sort_by=createtime:desc").json()
    columns = ("hpoName", "state", "running", "progress", "complete", "failed")
    assert [task[column] for column in columns] == [name, "FINISHED", 0, "2/2", 2, 0]
    assert all(task[column] for column in ("creator", "createtime", "duration"))
    for each in task["experiments"]:
        assert {"id", "appId", "driverId", "state", "metricVal", "startTime", "endTime"} <= each.keys()
    for verb, path in (("PUT", ""), ("PUT", "/restart")):
        refused = dlicmd.command(verb, f"/hypersearch/{name}{path}")
        assert (refused.status_code, name in refused.text) == (400, True)
    algorithms = dlicmd.command("GET", "/hypersearch/algorithm").json()
    assert {"name": "TPE", "type": "BUILD_IN", "remoteExec": False} in algorithms
    assert [dlicmd.command("GET", f"/hypersearch/algorithm/{each['name']}").json() for each in algorithms] == algorithms
    assert dlicmd.command("DELETE", "/hypersearch/algorithm/TPE").status_code == 400
    deleted = dlicmd.command("DELETE", f"/hypersearch/{name}")
    assert (deleted.status_code, name in deleted.text) == (200, True)
    assert dlicmd.command("GET", f"/hypersearch/{name}").status_code == 404
    assert dlicmd.command("DELETE", "/hypersearch").ok
    assert dlicmd.command("GET", "/hypersearch").json() == []


def test_a_second_logon_leaves_a_whole_token_in_its_file(dlicmd: Dlicmd):
    first = dlicmd.file.read_text()
    token = dlicmd.server.logon()
    with dlicmd.file.open("r+") as file:
        file.write(token)
    assert dlicmd.file.read_text() == token != first
    assert dlicmd.command("GET", "/status").json()["status"] == "OK"
    headers = {"Authorization": f"Bearer {token}"}
    assert requests.post(f"{dlicmd.server.url}/auth/v1/logoff", headers=headers, verify=False).ok
    assert dlicmd.ask("GET", "/conf").status_code == 401
    answer = requests.get(f"{dlicmd.server.url}/auth/v1/logon", auth=("x", "wrong"), verify=False)
    assert answer.status_code == 401
