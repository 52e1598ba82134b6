"""The calls of the 2.x notebooks, written afresh: a logon's token, polls by state, executors' logs, 4.x's form."""

from __future__ import annotations

import json
import time

import pandas as pd
import pytest
import requests

from tests.conformance.conftest import LIMIT, WmlaServer, modeldir

pytestmark = pytest.mark.filterwarnings("ignore::urllib3.exceptions.InsecureRequestWarning")

ARGS = "--exec-start edtPyTorch --model-main train.py --model-dir mnist-edt --numWorker 2 --epochs 2 "


@pytest.mark.parametrize("server", ["https"], indirect=True)  # their consoles speak nothing else
def test_a_training_watched_by_its_state(server: WmlaServer):
    answer = requests.get(
        f"{server.url}/auth/v1/logon",
        auth=server.basic,
        headers={"Accept": "application/json"},
        json={"username": server.user, "password": server.password},
        verify=False,
    )
    headers = {"X-Auth-Token": answer.json()["accessToken"], "Accept": "application/json"}
    started = requests.post(
        f"{server.dli}/execs?args={ARGS}",
        headers=headers,
        files={"file": ("resnet.modelDir.tar", modeldir("mnist-edt"))},
        verify=False,
    )
    assert started.ok, started.text
    assert started.json()["id"] == started.json()["appId"]
    exec_id = started.json()["id"]

    seen = []
    deadline = time.monotonic() + LIMIT
    while time.monotonic() < deadline:
        # A body on a GET, as they send it.
        found = requests.get(f"{server.dli}/execs/{exec_id}", headers=headers, json={"x": 1}, verify=False).json()
        seen.append(found["state"])
        if found["state"] not in ("PENDING_CRD_SCHEDULER", "SUBMITTED", "RUNNING"):
            break
        time.sleep(0.1)
    assert seen[-1] == "FINISHED", found
    assert len(pd.DataFrame(found, index=[0])) == 1

    for kind in ("stdout", "stderr"):
        log = requests.get(
            f"{server.dli}/scheduler/applications/{exec_id}/executor/1/logs/{kind}?lastlines=1000",
            headers={**headers, "Accept": "text/plain"},
            verify=False,
        )
        assert log.ok
        assert log.headers["Content-Type"].startswith("text/plain")
        assert kind == "stderr" or "END TRAINING: completed" in log.text


def test_the_form_of_4x_in_place_of_a_query(http: WmlaServer):
    """`args` and the hardware are fields of a form then; the archive is made inside the model's folder."""
    form = {
        "args": "--exec-start distPyTorch --model-main train.py --model-dir llm",
        "hardwareSpec": {"nodes": {"num_nodes": 2, "mem": {"size": "16g"}, "gpu": {"num_gpu": 1}}},
    }
    script = b"import os\nprint('rank', os.environ['RANK'], 'of', os.environ['WORLD_SIZE'], flush=True)\n"
    answer = requests.post(
        f"{http.dli}/execs",
        files={"file": ("llm.modelDir.tar", modeldir("llm", {"./train.py": script}, top="."))},
        data={"data": json.dumps(form)},
        headers={"X-Auth-Token": http.logon()},
    )
    assert answer.ok, answer.text
    assert (answer.json()["numWorker"], answer.json()["elastic"]) == (2, False)
    exec_id = answer.json()["id"]
    http.wait(exec_id, "FINISHED")
    log = requests.get(f"{http.dli}/execs/{exec_id}/log", auth=http.basic).json()
    assert sorted(log.splitlines()) == ["rank 0 of 2", "rank 1 of 2"]
