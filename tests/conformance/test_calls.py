"""Every call of `calls.py`, in every way to log on, over http and https; and the page that is made of them."""

from __future__ import annotations

import inspect
import io
import json
from pathlib import Path

import pytest
import requests
from ibm_cloud_sdk_core import ApiException

from tests.conformance import table
from tests.conformance.calls import (
    CALLS,
    CONSOLE,
    CONSOLE_NAMES,
    DLI,
    HPO,
    INFERENCE,
    INFERENCE_NAMES,
    SDK,
    SERVICES,
    TUNING,
    VALIDATION_NAMES,
    VALIDATIONS,
    WAYS,
    Call,
    ConsoleCall,
    SdkCall,
    sdk_calls,
)
from tests.conformance.conftest import WmlaServer, modeldir
from tests.conformance.kernels import archive
from tests.conformance.test_sdk import sdk
from tests.packages import packed
from tests.server.suggestions import plugins

pytestmark = pytest.mark.filterwarnings("ignore::urllib3.exceptions.InsecureRequestWarning")

PAGE = Path(__file__).parents[2] / "docs" / "wmla-routes.md"
EDT = "--exec-start edtPyTorch --model-main train.py --model-dir mnist-edt --numWorker 2 --epochs 1"
TRAINED = """
import torch
from fabric_model import FabricModel

def datasets():
    points = torch.randn(64, 2, generator=torch.Generator().manual_seed(3))
    data = torch.utils.data.TensorDataset(points, (points[:, 0] > 0).long())
    return data, data

torch.manual_seed(1)
model = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
FabricModel(model, datasets, torch.nn.functional.cross_entropy, optimizer).train(1, 8, 2)
"""
NO_SLOTS = ("run_inference", "do_edi_inference")
HOLDS_ALL = "--exec-start PyTorch --model-main pytorch_mnist.py --model-dir single --gpuPerWorker 2 --sleep 900"


class World:
    """A server with one exec that has finished and one that holds all slots, so that every further one waits."""

    def __init__(self, server: WmlaServer) -> None:
        self.server = server
        self.finished = self.start(EDT, "mnist-edt")
        server.wait(self.finished["id"], "FINISHED")
        train_a_model(server)
        self.holder = self.start(HOLDS_ALL, "single")
        server.wait(self.holder["id"], "RUNNING")
        self.spare = 0

    def start(self, args: str, model: str) -> dict[str, str]:
        answer = requests.post(
            f"{self.server.dli}/execs",
            params={"sigName": "wmla-sig", "args": args},
            files={"file": (f"{model}.modelDir.tar", modeldir(model))},
            auth=self.server.basic,
            verify=False,
        )
        assert answer.ok, answer.text
        return dict(answer.json())

    def names(self, call: Call) -> dict[str, str]:
        """What the braces of its path stand for."""
        about = self.finished if call.exec_wanted == "finished" else self.start(EDT, "mnist-edt")
        if "{spare_plan}" in call.path:
            self.spare += 1
            self.server.local.client().create_instance_group(f"spare-{self.spare}")
        task = start_task(self.server) if "task}" in call.path else ""
        if "{stopped_task}" in call.path:
            stop_task(self.server, task)
        return {
            "task": task,
            "stopped_task": task,
            "exec": about["id"],
            "driver": about["submissionId"],
            "executor": f"0-{about['id']}",
            "sig": about["sigId"],
            "spare_plan": f"spare-{self.spare}",
        }


@pytest.fixture(scope="module")
def worlds() -> dict[str, World]:
    return {}


@pytest.fixture
def world(server: WmlaServer, worlds: dict[str, World]) -> World:
    if server.url not in worlds:
        worlds[server.url] = World(server)
    return worlds[server.url]


def train_a_model(server: WmlaServer) -> None:
    """The model `trained`, and its training `first`, which has finished."""
    client = server.local.client()
    conf = requests.get(f"{server.dli}/conf", auth=server.basic, verify=False).json()
    folder = Path(conf["DLI_DATA_FS"], "trained")
    folder.mkdir()
    (folder / "main.py").write_text(TRAINED)
    client.add_model("trained", path="trained", framework="edtPyTorch")
    client.train_model("trained", job_name="first").wait(90, progress=False)


def start_task(server: WmlaServer) -> str:
    """A search whose only experiment waits for a slot."""
    files = {"file": ("mnist-edt.modelDir.tar", modeldir("mnist-edt"))}
    answer = requests.post(
        f"{server.dli}/hypersearch", data={"data": HPO}, files=files, auth=server.basic, verify=False
    )
    assert answer.ok, answer.text
    return str(answer.json()["uid"])


def stop_task(server: WmlaServer, task: str) -> None:
    assert requests.put(f"{server.dli}/hypersearch/{task}", auth=server.basic, verify=False).ok


def session(server: WmlaServer, way: str) -> requests.Session:
    """A client that has logged on, and shows who it is in one way."""
    made = requests.Session()
    if way == "Basic":
        made.auth = server.basic
    elif way == "cookie":
        made.get(f"{server.conductor}/auth/logon", auth=server.basic, verify=False).raise_for_status()
    else:
        token = server.logon()
        made.headers["X-Auth-Token" if way == "X-Auth-Token" else "Authorization"] = (
            token if way == "X-Auth-Token" else f"Bearer {token}"
        )
    return made


def make(world: World, call: Call, client: requests.Session, *, slash: str = "") -> requests.Response:
    names = world.names(call)
    url = (world.server.url + call.path.format(**names)).rstrip("/") + slash
    if call.path.endswith("/"):
        url = url.rstrip("/") + "/"
    if call.query:
        url += "?" + call.query.format(**names)  # as they write it: blanks and all
    files = {"file": ("mnist-edt.modelDir.tar", modeldir("mnist-edt"))} if call.upload else None
    return client.request(
        call.verb,
        url,
        headers={"Accept": call.accept},
        files=files,
        data={"data": call.form} if call.form else None,
        allow_redirects=False,
        verify=False,
    )


@pytest.mark.parametrize("way", WAYS)
def test_every_call_does_its_work(world: World, way: str):
    wrong = []
    client = session(world.server, way)
    for call in CALLS:
        if call.exec_wanted == "all":
            continue
        own = session(world.server, way) if "logoff" in call.path else client
        answer = make(world, call, own)
        if answer.status_code != call.status:
            wrong.append((call.verb, answer.url, answer.status_code, answer.text[:300]))
    assert wrong == []


def test_a_slash_at_the_end_changes_nothing(world: World):
    client = session(world.server, "Basic")
    wrong = [
        (call.path, answer.status_code)
        for call in CALLS
        if call.verb == "GET"
        and (answer := make(world, call, client, slash="/")).status_code != call.status
        and "{spare_plan}" not in call.path
    ]
    assert wrong == []


def test_every_method_of_the_sdk_meets_what_the_page_says(world: World):
    clients = {name: sdk(world.server, service=service) for name, service in SERVICES.items()}
    kept = Kept(world.server)
    values = {"exec_id": world.finished["id"], "sig_name": "wmla-sig", "args": EDT, **kept.names}
    wrong = []
    for call in sdk_calls():
        method = getattr(clients[call.client], call.method)
        arguments = {
            name: values.get(name) or _some(parameter.annotation)
            for name, parameter in inspect.signature(method).parameters.items()
            if parameter.default is parameter.empty and parameter.kind is not parameter.VAR_KEYWORD
        }
        expected = {table.DONE: (200, 400), table.LATER: (501,), table.MISSING: (404,)}[
            table.answers(call.path, call.verb)[1]
        ]
        if call.method in ("delete_exec", *NO_SLOTS):
            continue  # it takes the world with it: see the last test; for the others test_inference.py has slots
        arguments |= kept.fitting(call)
        if call.method == "create_exec":
            arguments["file"] = io.BytesIO(modeldir("mnist-edt"))
        try:
            status = method(**arguments).get_status_code()
        except ApiException as error:
            # Stopping what has finished is refused, and using the best values of what has not trained.
            status = error.status_code
        refused = "stop" in call.method or "using_tuning_result" in call.method or call.method == "publish_edi_model"
        if status not in expected or (status == 400 and not refused):
            wrong.append((call.method, status))
    kept.close()
    assert wrong == []


# Every way in is tried with the other calls always.
@pytest.mark.parametrize("way", [WAYS[0], *(pytest.param(way, marks=pytest.mark.long) for way in WAYS[1:])])
@pytest.mark.parametrize(("calls", "names"), [(CONSOLE, CONSOLE_NAMES), (VALIDATIONS, VALIDATION_NAMES)])
def test_the_consoles_calls_do_their_work(
    world: World, way: str, calls: tuple[ConsoleCall, ...], names: dict[str, str]
):
    """In their order: what one adds the next ones show, change, train, stop and remove."""
    Kept(world.server)
    client, wrong = session(world.server, way), []
    for call in calls:
        files = {"file": ("w.pth", b"weights")} if call.upload else None
        answer = client.request(
            call.verb,
            world.server.url + call.path.format(**names),
            json=call.body,
            files=files,
            params=call.query,
            allow_redirects=False,
            verify=False,
        )
        if answer.status_code != call.status:
            wrong.append((call.verb, answer.url, answer.status_code, answer.text[:300]))
    assert wrong == []


@pytest.mark.parametrize("way", [WAYS[0], *(pytest.param(way, marks=pytest.mark.long) for way in WAYS[1:])])
def test_the_calls_of_inference_do_their_work(world: World, way: str):
    Kept(world.server)
    client, wrong = session(world.server, way), []
    for call in INFERENCE:
        given = {"data": archive("echo")} if call.upload else {"json": call.body}
        url = world.server.url + call.path.format(**INFERENCE_NAMES)
        answer = client.request(call.verb, url, params=call.query, allow_redirects=False, verify=False, **given)
        if answer.status_code != call.status:
            wrong.append((call.verb, answer.url, answer.status_code, answer.text[:300]))
    assert wrong == []


def test_the_consoles_calls_are_all_there_are():
    called = {(call.path.replace("{model}", "{name}"), call.verb) for call in (*CONSOLE, *VALIDATIONS)}
    roots = tuple(f"{DLI}/{family}" for family in ("datasets", "modeltemplates", "models"))
    assert {(path, verb) for path, verb in table.routes() if path.startswith(roots)} == called


class Kept:
    """A data set, a template, a model and its training, which are there again before every call that needs them."""

    names = {
        "datasetname": "some",
        "modeltemplatename": "some",
        "modelname": "some",
        "trainingname": "some",
        "tuningname": "tuned",
        "filename": "some/main.py",
        "model_name": "some",
        "custom_runtime": "some",
        "type": "Train",
    }

    def __init__(self, server: WmlaServer) -> None:
        self.client, self.server = server.local.client(), server
        self.root = Path(requests.get(f"{server.dli}/conf", auth=server.basic, verify=False).json()["DLI_DATA_FS"])
        (self.root / "some").mkdir(exist_ok=True)
        (self.root / "some" / "main.py").write_text("import time\ntime.sleep(600)\n")
        (self.root / "some" / "rows.csv").write_text("a\n1\n")

    def fitting(self, call: SdkCall) -> dict[str, object]:
        """What the call needs is there; the arguments that have to be others than those of every call."""
        there = {model.kind for model in self.client.models() if model.name == "some"}
        if "some" not in [dataset.name for dataset in self.client.datasets()]:
            self.client.add_dataset("some", path="some")
        for kind in {"model", "template"} - there:
            self.client.add_model("some", path="some", kind=kind)
        if not self.client.model("some").trainings:
            self.client.train_model("some")
        if "/dlim/" in call.path or "/edimodels" in call.path:
            return self.inference(call.method)
        return (
            {
                "add_dataset": {"name": "another", "sigid": "wmla-sig", "datasourcetype": "CSV", "trainpath": "some"},
                "add_model_template": {"name": "another", "path": "some", "framework": "PyTorch"},
                "add_model": {"name": "another", "templatename": "some"},
                "start_model_training": {"train_name": "another", "dl_framework": "PyTorch", "cluster_size": 1},
                "update_model": {"batchsize": 3},
                "update_model_template": {"description": "changed"},
                "save_model_file_content_by_name": {"tmpfile_path": "a.py", "tmpfile_content": "A = 1"},
                **self.validations(),
                **self.tunings(call.method),
                **(self.tasks(call.method) if "hpo" in call.method or "algorithm" in call.method else {}),
            }.get(call.method, {})
            if call.client == SDK
            else {}
        )

    def inference(self, method: str) -> dict[str, object]:
        """Arguments for those who let kernels answer: there is a stopped model, a runtime, and no other model."""
        root, auth, runtime = f"{self.server.url}/dlim/v1", self.server.basic, {"type": "some", "launcher": "python"}
        self.no_inference()
        if method != "new_runtime":
            assert requests.post(f"{root}/deployment/runtime", json=runtime, auth=auth, verify=False).ok
        if method not in ("deploy_model", "new_model", "new_edi_model"):
            sent = requests.post(f"{root}/deployment/model", data=archive("some"), auth=auth, verify=False)
            assert sent.ok, sent.text
        names = {"name": "some", "model_path": "some", "kernel_path": "main.py"}
        return {
            "deploy_model": {"body": io.BytesIO(archive("some"))},
            "re_deploy_model": {"model": "some", "body": io.BytesIO(archive("some"))},
            "new_runtime": {"runtime": runtime},
            "update_runtime": {"custom_runtime": "some", "runtime": runtime},
            "delete_runtime": {"custom_runtime": "some"},
            "get_runtime_details": {"custom_runtime": "some"},
            "new_model": names,
            "update_model": {"weight_path": "N/A", "kernel_path": "kernel.py", "size": 1, "runtime": "python"},
            "update_model_profile": {"mode_profile": {"policy": {"kernel_min": 2}}},
            "update_model_readme": {"readme": "some"},
            "new_edi_model": {"edi_py": "main.py", "weight_path": "N/A", "runtime": "python"},
        }.get(method, {})

    def no_inference(self) -> None:
        """Remove the model and the runtime, if they are there."""
        root, auth = f"{self.server.url}/dlim/v1", self.server.basic
        for path in ("model/some/operation/stop", "model/some", "deployment/runtime/some"):
            verb = "PUT" if path.endswith("stop") else "DELETE"
            requests.request(verb, f"{root}/{path}", auth=auth, verify=False)

    def validations(self) -> dict[str, dict[str, object]]:
        """Arguments for those who validate; there is one to stop or delete."""
        (training,) = self.client.model("trained").trainings
        if not any(job.name == "kept" and not job.view.state.final for job in self.client.jobs()):
            self.client.job(training.id).validate("loss", name="kept")
        return {
            "get_validations": {"modelname": "trained"},
            "start_validation": {
                "modelname": "trained",
                "val_name": "another",
                "train_name": "first",
                "metrics": ["Top1", "ConfusionMatrix"],
            },
            "stop_validation": {"modelname": "trained", "valname": "kept"},
            "delete_validation": {"modelname": "trained", "valname": "kept"},
        }

    def tunings(self, method: str) -> dict[str, dict[str, object]]:
        """Arguments for those who tune a model: there is a tuning, a stopped one to restart."""
        if "tuning" not in method:
            return {}
        for search in self.client.searches():
            if search.name == "tuned":
                search.stop() if not search.state.final else None
                search.delete()
        if method == "start_model_auto_tuning":
            names = {"hpo_name": "tuned", "res_def": TUNING["resDef"], "algo_def": TUNING["algoDef"]}
            return {method: {**names, "hyper_params": TUNING["hyperParams"]}}
        url = f"{self.server.dli}/models/some/hypersearch"
        assert requests.post(url, json=TUNING, auth=self.server.basic, verify=False).ok
        if method == "restart_model_auto_tuning":
            assert requests.put(f"{url}/tuned/stop", auth=self.server.basic, verify=False).ok
        return {}

    def tasks(self, method: str) -> dict[str, dict[str, object]]:
        """Arguments for those who search: there is a task, a stopped one to restart, and an installed algorithm."""
        if method in ("get_one_hpo", "stop_one_hpo", "stop_one_hpo_force", "restart_one_hpo", "delete_one_hpo"):
            task = start_task(self.server)
            if method == "restart_one_hpo":
                stop_task(self.server, task)
            return {method: {"hpo_name": task}}
        archive = io.BytesIO(packed({"optimizer.py": plugins.GRID.encode()}))
        algorithm = {"data": json.dumps({"name": "Kept"}), "file": archive}
        if method == "delete_one_hpoalgorithm":
            sdk(self.server).install_hpo_algorithm(**algorithm)
        return {
            "delete_one_hpoalgorithm": {"algo_name": "Kept"},
            "start_hpo": {"file": io.BytesIO(modeldir("mnist-edt")), "data": HPO},
            "get_one_algorithm": {"algo_name": "Random"},
            "install_hpo_algorithm": algorithm,
        }

    def close(self) -> None:
        """Forget them, and end their trainings."""
        self.no_inference()
        sdk(self.server).delete_all_hpo()
        sdk(self.server).delete_one_hpoalgorithm("Kept")
        for model in self.client.models():
            if model.name == "trained":
                continue
            for view in self.client.model(model.name).trainings if model.kind == "model" else ():
                if not view.state.final:
                    self.client.job(view.id).stop()
            self.client.delete_model(model.name, kind=model.kind)
        for dataset in self.client.datasets():
            self.client.delete_dataset(dataset.name)


def _some(annotation: object) -> object:
    text = str(annotation)
    if "Dict" in text or "dict" in text:
        return {}
    if "List" in text:
        return []
    return io.BytesIO(b"x") if "BinaryIO" in text else 1 if "int" in text else "some"


@pytest.mark.parametrize("way", WAYS)
def test_the_last_call_takes_all_execs(world: World, way: str):
    (call,) = [call for call in CALLS if call.exec_wanted == "all"]
    answer = make(world, call, session(world.server, way))
    assert answer.status_code == 200, answer.text
    left = requests.get(f"{world.server.dli}/execs", auth=world.server.basic, verify=False).json()
    assert left == []


def test_every_route_has_a_client():
    """And so a call of the suite: a route that nobody calls is in none of the tests above."""
    assert [(row.verb, row.path) for row in table.rows() if not row.clients] == []


def test_the_page_is_up_to_date():
    assert PAGE.read_text(encoding="utf-8") == table.page(), "python -m tests.conformance.table > docs/wmla-routes.md"
