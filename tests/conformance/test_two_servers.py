"""WMLA's routes at a server that does not lead: logged on there, answered by the one that does."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator

import pytest
import requests

from edt_sdk.testing import LocalServer
from tests.conformance.conftest import WmlaServer, modeldir

SCRIPT = {"train.py": b"print('trained', flush=True)"}
ARGS = "--exec-start PyTorch --model-main train.py --model-dir model"


@pytest.fixture
def follower(http: WmlaServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WmlaServer]:
    """A second server over the first one's data folder."""
    traits = {"EdtApp.data_dir": http.local.data_dir}
    second = LocalServer(tmp_path_factory.mktemp("follower"), traits=traits).start()
    yield WmlaServer(second)
    second.stop(end_jobs=False)


def test_a_follower_passes_on_what_it_was_asked(http: WmlaServer, follower: WmlaServer):
    token = follower.logon()
    headers = {"X-Auth-Token": token, "Accept": "application/json"}
    files = {"file": ("model.modelDir.tar", modeldir("model", SCRIPT))}
    # A body on a GET must not confuse the way to the leader.
    assert requests.get(f"{follower.dli}/conf", headers=headers, json={"x": 1}).ok
    answer = requests.post(f"{follower.dli}/execs/?args={ARGS}", headers=headers, files=files)
    assert answer.ok, answer.text
    exec_id = answer.json()["id"]
    http.wait(exec_id, "FINISHED")
    assert requests.get(f"{follower.dli}/execs?limit=1", headers=headers, json={"x": 1}).json()[0]["id"] == exec_id
    assert requests.get(f"{follower.dli}/execs/{exec_id}/log", headers=headers).json() == "trained\n"
    text = requests.get(f"{follower.dli}/execs/{exec_id}/log", headers={**headers, "Accept": "text/plain"})
    assert text.text == "trained\n"
    result = requests.get(f"{follower.dli}/execs/{exec_id}/result", headers=headers)
    assert int(result.headers["Content-Disposition"].split("size=")[1]) == len(result.content)
    assert zipfile.ZipFile(io.BytesIO(result.content)).testzip() is None
    refused = requests.post(f"{follower.dli}/execs/{exec_id}/stop", headers=headers)
    assert (refused.status_code, refused.text.startswith("Error 400: ")) == (400, True)
    refused = requests.post(f"{follower.dli}/execs?args={ARGS}", headers=headers, files={"file": ("m.tar", b"x")})
    assert (refused.status_code, "not a readable tar" in refused.text) == (400, True)
    # A session is its server's: the other has a token of its own.
    assert requests.get(f"{http.dli}/conf", headers=headers).status_code == 401
    assert requests.post(f"{follower.url}/auth/v1/logoff", headers=headers).ok
    assert requests.get(f"{follower.dli}/conf", headers=headers).status_code == 401
