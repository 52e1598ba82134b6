"""Elastic Distributed Inference: kernels unmodified, by IBM's SDK, by curl, by dlicmd's request and from a web page."""

from __future__ import annotations

import base64
import io
import json

import pytest
import requests
from ibm_cloud_sdk_core import ApiException
from ibm_wmla.edi_authentication import ElasticDistributedInferenceAuthenticator
from ibm_wmla.wmla_api_edi_v2 import ElasticDistributedInferenceV2

from tests.conformance.conftest import WmlaServer, modeldir
from tests.conformance.kernels import NET, OLD, SILENT, archive
from tests.conformance.test_sdk import sdk
from tests.waiting import until

pytestmark = pytest.mark.filterwarnings("ignore::urllib3.exceptions.InsecureRequestWarning")

Sdk = ElasticDistributedInferenceV2


def edi(server: WmlaServer) -> Sdk:
    """The SDK's second version, which asks for a token before each request."""
    client = Sdk(
        authenticator=ElasticDistributedInferenceAuthenticator(
            username=server.user, password=server.password, url=server.url
        )
    )
    client.set_service_url(server.url)
    return client


def started(client: Sdk, name: str) -> None:
    """Start a model, and wait for a kernel."""
    assert client.start_model_inference(name).get_result()["status"]
    until(lambda: client.get_model_instance(name).get_result()["state"] == "started", f"a kernel of {name}")


def names(client: Sdk) -> list[str]:
    """The models there are: the server is shared."""
    return [each["name"] for each in client.get_models().get_result()]


def removed(client: Sdk, name: str) -> None:
    client.stop_model_inference(name)
    client.delete_model(name)


def refused(call, *arguments, **more) -> str:
    """What a client is told that does something wrong."""
    with pytest.raises(ApiException) as wrong:
        call(*arguments, **more)
    assert wrong.value.status_code == 400, wrong.value
    return str(wrong.value.http_response.text)


def test_a_kernel_from_its_archive_to_its_end(server: WmlaServer):
    client = edi(server)
    assert (
        client.deploy_model(body=io.BytesIO(archive("pingpong", top="some/", tag="1.0"))).get_result()["name"]
        == "pingpong"
    )
    shown = client.get_model("pingpong").get_result()
    assert shown in client.get_models().get_result()
    assert (shown["name"], shown["tag"], shown["kernel_path"]) == ("pingpong", "1.0", "kernel.py")
    assert shown["service_uri"] == f"{server.url}/dlim/v1/inference/pingpong"
    assert client.get_model_instance("pingpong").get_result() == {
        "name": "pingpong",
        "state": "disabled",
        "instances": [],
    }
    assert client.get_model_readme("pingpong").get_result() == {"readme": "Echoes."}
    client.update_model_readme("pingpong", readme="Says it again.")
    assert client.get_model_readme("pingpong").get_result() == {"readme": "Says it again."}

    profile = client.get_model_profile("pingpong").get_result()
    assert profile["policy"]["kernel_min"] == 1
    profile["policy"] |= {"kernel_max": 1, "task_batch_size": 4, "schedule_interval": 9}
    client.update_model_profile("pingpong", profile)
    assert client.get_model_profile("pingpong").get_result()["policy"]["schedule_interval"] == 9
    for policy in ({"kernel_min": 0}, {"kernel_min": 2}, {"kernel_delay_release_time": 0}, {"task_batch_size": "many"}):
        assert next(iter(policy)) in refused(client.update_model_profile, "pingpong", {"policy": policy})

    started(client, "pingpong")
    assert client.run_inference("pingpong", {"a": [1, "ü"]}).get_result() == {"a": [1, "ü"]}

    def finished() -> int:
        (instance,) = client.get_model_instance("pingpong").get_result()["instances"]
        return int(instance["isd_container"][0]["finished_task"])

    until(lambda: finished() == 1, "the count of its tasks")
    assert "Stop it first" in refused(client.update_model_profile, "pingpong", profile)
    assert "Stop it first" in refused(client.delete_model, "pingpong")
    assert "Stop it first" in refused(client.re_deploy_model, "pingpong", body=io.BytesIO(archive("pingpong")))

    client.stop_model_inference("pingpong")
    assert "is stopped" in refused(client.run_inference, "pingpong", {"a": 1})
    assert "not of pingpong" in refused(client.re_deploy_model, "pingpong", body=io.BytesIO(archive("other")))
    client.re_deploy_model("pingpong", body=io.BytesIO(archive("pingpong", tag="2.0")))
    started(client, "pingpong")
    assert client.run_inference("pingpong", {"b": 2}).get_result() == {"b": 2}
    assert [each.number for each in server.local.client().versions("pingpong")] == [2, 1]
    removed(client, "pingpong")
    assert "pingpong" not in names(client)


def test_a_net_with_weights_attributes_and_variables(http: WmlaServer):
    import torch

    client = edi(http)
    net, file = torch.nn.Linear(3, 2), io.BytesIO()
    torch.save(net.state_dict(), file)
    client.deploy_model(
        body=io.BytesIO(
            archive(
                "net",
                NET,
                more={"model_epoch_final.pth": file.getvalue()},
                model_path="./",
                attributes=[{"key": "name", "value": "ann"}],
                mk_environments=[{"name": "GREETING", "value": "hello "}],
            )
        )
    )
    profile = {"policy": {"task_batch_size": 8, "kernel_max": 1}}
    client.update_model_profile("net", profile)
    started(client, "net")
    rows = [bytes([1, 2, 3]), bytes([4, 5, 6])]
    data = [base64.b64encode(each).decode() for each in rows]
    asked = {"id": "7", "inputs": [{"name": "x", "shape": [2], "datatype": "BYTES", "data": data}]}
    answer = client.run_inference("net", asked).get_result()
    (output,) = answer["outputs"]
    with torch.no_grad():
        right = net(torch.tensor([list(each) for each in rows]).float())
    assert (answer["id"], output["name"], output["shape"]) == ("7", "hello ann", [2, 2])
    assert torch.allclose(torch.tensor(output["data"]).reshape(2, 2), right)
    removed(client, "net")


def test_a_web_page_and_curl_and_a_kernel_of_the_first_samples(http: WmlaServer):
    client = edi(http)
    client.deploy_model(body=io.BytesIO(archive("old", OLD)))
    started(client, "old")
    user = base64.b64encode(f"{http.user}:{http.password}".encode()).decode()
    page = {"Origin": http.url}
    token = requests.post(
        f"{http.url}/dlim/v1/auth/token", json={"method": "password", "userpasswd": user}, headers=page
    ).json()["user_token"]
    body = {"data_type": "image", "data_value": [{"key": "digit.png", "value": "…"}]}
    answer = requests.post(f"{http.url}/dlim/v1/inference/old", json=body, headers={**page, "X-User-Token": token})
    assert (answer.status_code, answer.text) == (200, "image digit.png")
    # The two lines of curl.
    tokens = requests.post(f"{http.url}/dlim/v1/auth/token", auth=http.basic).json()
    assert tokens["access_token"] == tokens["service_token"]
    answer = requests.post(
        f"{http.url}/dlim/v1/inference/old", data=json.dumps(body), headers={"X-Auth-Token": tokens["service_token"]}
    )
    assert answer.text == "image digit.png"
    for headers in ({}, {"X-User-Token": "wrong"}):
        assert requests.post(f"{http.url}/dlim/v1/inference/old", json=body, headers=headers).status_code == 401
    wrong = base64.b64encode(b"ann:wrong").decode()
    asked = requests.post(f"{http.url}/dlim/v1/auth/token", json={"method": "password", "userpasswd": wrong})
    assert asked.status_code == 401
    removed(client, "old")


def test_a_task_that_fails_says_why_to_the_letter(http: WmlaServer):
    client = edi(http)
    client.deploy_model(
        body=io.BytesIO(archive("raises", OLD.replace("self.count += 1", "raise ValueError('50% of %s')")))
    )
    assert "envs" in refused(client.update_model_profile, "raises", {"kernel": {"envs": [{"value": "no name"}]}})
    started(client, "raises")
    with pytest.raises(ApiException) as wrong:
        client.run_inference("raises", {})
    assert wrong.value.http_response.text == "Error 500: ValueError: 50% of %s\n"
    client.stop_model_inference("raises")
    # Its slots are those of the group that it was started in.
    client.update_model_profile("raises", {"resource_allocation": {"kernel": {"consumer": "sample-project/wmla-sig"}}})
    assert "Delete it, and deploy it again" in refused(client.start_model_inference, "raises")
    client.delete_model("raises")


def test_a_task_without_an_answer_is_an_error_at_once(http: WmlaServer):
    client = edi(http)
    client.deploy_model(body=io.BytesIO(archive("silent", SILENT)))
    started(client, "silent")
    with pytest.raises(ApiException) as wrong:
        client.run_inference("silent", {"a": 1})
    assert wrong.value.status_code == 500
    assert "set no output" in wrong.value.http_response.text
    removed(client, "silent")


def test_an_exec_is_deployed_with_a_kernel_of_its_code(http: WmlaServer):
    files = {
        "train.py": b"import os, sys\nfrom pathlib import Path\n"
        b"train = Path(os.environ['RESULT_DIR'], 'model', 'train')\ntrain.mkdir(parents=True)\n"
        b"(train / 'model_epoch_final.pth').write_text('trained weights')\n",
        "kernel.py": b"import json, os\nfrom redhareapi import Kernel\n\nclass K(Kernel):\n"
        b"    def on_kernel_start(self, kernel_context):\n"
        b"        path = json.loads(kernel_context.get_model_description())['weight_path']\n"
        b"        self.text = open(path).read() + os.environ['SIGN']\n"
        b"    def on_task_invoke(self, task_context):\n"
        b"        task_context.set_output_data(self.text)\n\nif __name__ == '__main__':\n    K().run()\n",
    }
    args = "--exec-start PyTorch --model-main train.py --model-dir made"
    exec_id = sdk(http).create_exec("wmla-sig", args, io.BytesIO(modeldir("made", files))).get_result()["id"]
    http.wait(exec_id, "FINISHED")
    body = {"kernel": "kernel.py", "name": "made", "tag": "3", "environments": {"SIGN": "!"}, "attributes": {"a": "b"}}
    made = requests.post(f"{http.dli}/execs/{exec_id}/deploy", json=body, auth=http.basic)
    assert made.ok, made.text
    assert made.json() == {"name": "made", "service_uri": f"{http.url}/dlim/v1/inference/made"}
    client = edi(http)
    until(lambda: client.get_model_instance("made").get_result()["state"] == "started", "its kernel")
    answer = requests.post(made.json()["service_uri"], json={}, auth=http.basic)
    assert answer.text == "trained weights!"
    for wrong, said in (
        ({}, "kernel"),
        ({"kernel": "none.py", "name": "x"}, "none.py"),
        ({**body, "weight": "../a"}, "weight"),
    ):
        asked = requests.post(f"{http.dli}/execs/{exec_id}/deploy", json=wrong, auth=http.basic)
        assert (asked.status_code, said in asked.text) == (400, True), asked.text
    removed(client, "made")


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"name": ""}, "has no name"),
        ({"kernel_path": ""}, "has no kernel_path"),
        ({"kernel_path": "../k.py"}, "kernel_path"),
        ({"kernel_path": "none.py"}, "There is no file none.py"),
        ({"weight_path": "/etc/passwd"}, "outside of the server's data folder"),
        ({"weight_path": "none.pth"}, "There is no none.pth"),
        ({"attributes": "many"}, "attributes"),
        ({"attributes": 5}, "attributes"),
        ({"mk_environments": [{"key": "a"}]}, "mk_environments"),
    ],
)
def test_a_description_that_cannot_be_used(http: WmlaServer, fields, said):
    body = io.BytesIO(archive(**{"name": "bad", **fields}))
    with pytest.raises(ApiException) as wrong:
        edi(http).deploy_model(body=body)
    assert wrong.value.status_code in (400, 404)
    assert said in wrong.value.http_response.text
    assert "bad" not in names(edi(http))


def test_an_archive_that_cannot_be_used(http: WmlaServer):
    from tests.packages import packed

    client = edi(http)
    assert "no model.json" in refused(client.deploy_model, body=io.BytesIO(packed({"kernel.py": b""})))
    assert "not JSON" in refused(client.deploy_model, body=io.BytesIO(packed({"model.json": b"{"})))
    assert "tar" in refused(client.deploy_model, body=io.BytesIO(b"no archive"))
    client.deploy_model(body=io.BytesIO(archive("twice")))
    assert "already" in refused(client.deploy_model, body=io.BytesIO(archive("twice")))
    client.delete_model("twice")


def test_runtimes_are_kept_and_give_kernels_their_variables(http: WmlaServer):
    client = edi(http)
    kernel = "import os\n" + OLD.replace(
        '"%s %s" % (asked["data_type"], asked["data_value"][0]["key"])', 'os.environ["OF"]'
    )
    client.new_runtime({"type": "mine", "launcher": "python", "envs": [{"name": "OF", "value": "the runtime"}]})
    assert {"python", "mine"} <= {each["type"] for each in client.get_runtimes().get_result()["runtimes"]}
    client.deploy_model(body=io.BytesIO(archive("varied", kernel, runtime="mine")))
    started(client, "varied")
    answer = requests.post(f"{http.url}/dlim/v1/inference/varied", json={}, auth=http.basic)
    assert answer.text == "the runtime"
    client.stop_model_inference("varied")
    client.update_runtime("mine", {"launcher": "python", "docker_img": "some"})
    assert "docker_img" in refused(client.start_model_inference, "varied")
    client.delete_runtime("mine")
    assert "There is no runtime 'mine'" in refused(client.start_model_inference, "varied")
    assert "built in" in refused(client.delete_runtime, "python")
    assert "launcher" in refused(client.new_runtime, {"type": "other"})
    client.delete_model("varied")
