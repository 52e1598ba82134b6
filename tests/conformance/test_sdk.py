"""The real ibm-wmla 0.1.1 from logon to a downloaded model, over http and https: its user changes three values."""

from __future__ import annotations

import io
import re
import time
import zipfile

import pytest
from ibm_cloud_sdk_core import ApiException, BaseService
from ibm_cloud_sdk_core.authenticators import BasicAuthenticator, BearerTokenAuthenticator
from ibm_wmla.wmla_api_v1 import DeepLearningImpactV1

from tests.conformance.conftest import LIMIT, MODELS, WmlaServer, modeldir

pytestmark = pytest.mark.filterwarnings("ignore::urllib3.exceptions.InsecureRequestWarning")

ARGS = (
    "--exec-start edtPyTorch  --cs-datastore-meta type=fs   --numWorker 2 --model-main train.py "
    "--model-dir mnist-edt --debug-level info --epochs 2 --batch-size 8 "
)


def sdk(server: WmlaServer, *, bearer: bool = False, service: type[BaseService] = DeepLearningImpactV1) -> BaseService:
    authenticator = (
        BearerTokenAuthenticator(server.logon()) if bearer else BasicAuthenticator(server.user, server.password)
    )
    client = service(authenticator=authenticator)
    client.set_service_url(server.url)
    client.set_disable_ssl_verification(True)
    return client


def test_from_logon_to_a_loadable_model(server: WmlaServer):
    import torch

    client = sdk(server, bearer=server.url.startswith("https"))
    assert client.get_deep_learning_conf().get_result()["MSD_ENABLED"] == "true"
    names = [each["name"] for each in client.get_platform_rest_deeplearning_execs_frameworks().get_result()]
    assert {"edtPyTorch", "PyTorch", "distPyTorch"} <= set(names)

    started = client.create_exec("wmla-sig", ARGS, io.BytesIO(modeldir("mnist-edt"))).get_result()
    exec_id = started["id"]
    assert started["sigName"] == "wmla-sig"
    assert re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", started["sigId"])

    seen = []
    deadline = time.monotonic() + LIMIT
    while time.monotonic() < deadline:
        found = client.get_exec(exec_id).get_result()
        if found["state"] not in seen:
            seen.append(found["state"])
        if found["state"] in ("FINISHED", "ERROR", "KILLED"):
            break
        time.sleep(0.02)
    assert seen[-1] == "FINISHED", found
    # What the notebooks' polls tolerate on the way.
    assert set(seen[:-1]) <= {"SUBMITTED", "PENDING_CRD_SCHEDULER", "RUNNING"}
    assert found["args"] == ARGS
    assert (found["framework"], found["elastic"], found["numWorker"]) == ("edtPyTorch", True, 2)
    assert all(not isinstance(value, (list, dict)) for value in found.values())

    log = client.get_platform_rest_deeplearning_exec_log(exec_id).get_result()
    assert isinstance(log, str)
    assert len([line for line in log.splitlines() if "Train,\tTimestamp: " in line]) == 16

    answer = client.get_platform_rest_deeplearning_exec_result(exec_id)
    archive = zipfile.ZipFile(io.BytesIO(answer.get_result().content))
    state = torch.load(io.BytesIO(archive.read("model/train/model_epoch_final.pth")), weights_only=True)
    assert state["fc.weight"].shape == (10, 16)
    model = torch.nn.Linear(16, 10)
    model.load_state_dict({name.removeprefix("fc."): value for name, value in state.items()})

    (application,) = client.get_applications(applicationid=exec_id).get_result()
    assert (application["applicationid"], application["state"]) == (exec_id, "FINISHED")
    assert application["sparkinstancegroupid"] in {
        each["uuid"] for each in client.get_app_instances().get_result() if each["name"] == "wmla-sig"
    }
    assert exec_id in [each["id"] for each in client.list_execs().get_result()]


def test_a_single_file_without_a_name_is_stopped_and_removed(http: WmlaServer):
    """The SDK's file part has no file name, so the script gets the one that args say."""
    client = sdk(http)
    script = (MODELS / "single" / "pytorch_mnist.py").read_bytes()
    args = "--exec-start PyTorch --model-main pytorch_mnist.py --epochs 1 --no-cuda --sleep 600"
    exec_id = client.create_exec("default", args, io.BytesIO(script)).get_result()["id"]
    http.wait(exec_id, "RUNNING")
    assert client.get_exec(exec_id).get_result()["workDir"].endswith("/_submitted_code")
    client.post_platform_rest_deeplearning_exec_stop(exec_id)
    http.wait(exec_id, "KILLED")
    with pytest.raises(ApiException) as again:
        client.post_platform_rest_deeplearning_exec_stop(exec_id)
    assert again.value.status_code == 400
    assert "KILLED" in again.value.http_response.text
    client.delete_exec()
    assert client.list_execs().get_result() == []


def test_nothing_is_redirected_or_compressed_twice(http: WmlaServer):
    """The SDK can gzip a request's body; it does so only when asked, and not for files."""
    client = sdk(http)
    client.set_enable_gzip_compression(True)
    assert client.get_deep_learning_conf().get_status_code() == 200
