"""What WMLA's console showed, by the real ibm-wmla: data sets, model templates, models and trainings of their own."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests
from ibm_cloud_sdk_core import ApiException
from ibm_wmla.wmla_api_v1 import AlgoDef, FixedHyperParam, HyperParameter, ImageDetail, ResDef, SearchExperiment

from tests.conformance.conftest import WmlaServer
from tests.conformance.test_sdk import sdk
from tests.waiting import until

pytestmark = pytest.mark.filterwarnings("ignore::urllib3.exceptions.InsecureRequestWarning")

CODE = Path(__file__).parents[1] / "e2e" / "models" / "console"
SAYS = """
import argparse, json, os
import pth_parameter_mgr as given
parser = argparse.ArgumentParser()
parser.add_argument("--train_dir", default="")
parser.add_argument("--weights", default="")
parser.add_argument("--extra", default="")
said = parser.parse_args()
print("TOLD " + json.dumps({
    "train": given.getTrainData(False), "test": given.getTestData(False), "epochs": given.getEpoch(),
    "batch": given.getTrainBatchSize(), "extra": said.extra,
    "weights": sorted(os.listdir(said.weights)) if said.weights else [],
    "file": os.path.exists(os.path.join(os.path.dirname(said.train_dir), "pth_parameters.json")),
}), flush=True)
os.makedirs(os.path.join(os.environ["RESULT_DIR"], "model"), exist_ok=True)
with open(os.path.join(os.environ["RESULT_DIR"], "model", "mine.pth"), "wb") as file:
    file.write(b"weights")
"""


@pytest.fixture
def shared(server: WmlaServer) -> Iterator[Path]:
    """The server's data folder, with a data set and a template; nothing is known to the server, before and after."""
    forget_all(server)
    conf = requests.get(f"{server.dli}/conf", auth=server.basic, verify=False).json()
    root = Path(conf["DLI_DATA_FS"])
    for part in ("train", "test"):
        (root / "digits" / part).mkdir(parents=True, exist_ok=True)
    (root / "digits" / "train" / "a.csv").write_text("x,y\n1,2\n3,four\n5,6\n")
    (root / "digits" / "test" / "seven.png").write_bytes(b"png")
    (root / "digits" / "test" / "seven.txt").write_text("0 1 1 2 2")
    (root / "templates" / "says").mkdir(parents=True, exist_ok=True)
    (root / "templates" / "says" / "main.py").write_text(SAYS)
    (root / "templates" / "says" / "notes.txt").write_text("Notizen\n")
    yield root
    forget_all(server)


def forget_all(server: WmlaServer) -> None:
    """End and remove what the tests of this file, or of another one with the same server, have made."""
    client = server.local.client()
    for search in client.searches():
        if not search.state.final:
            search.stop()
        search.delete()
    for model in client.models():
        client.delete_model(model.name, kind=model.kind)
    client.stop_all()
    for job in client.jobs(trials=True):
        if not job.view.state.final:
            job.wait(300, check=False)
    for dataset in client.datasets():
        client.delete_dataset(dataset.name)


def told(server: WmlaServer, exec_id: str) -> dict[str, object]:
    server.wait(exec_id, "FINISHED")
    log = requests.get(f"{server.dli}/execs/{exec_id}/log", auth=server.basic, verify=False).json()
    (line,) = [line for line in log.splitlines() if "TOLD " in line]
    return dict(json.loads(line.partition("TOLD ")[2]))


TUNED = """
import json, os
with open(os.path.join(os.environ["RESULT_DIR"], "pth_parameters.json")) as file:
    given = json.load(file)
loss = given["optimizer"]["lr"] + given["optimizer"]["momentum"] / 100 + given["train_batch_size"]
with open(os.path.join(os.environ["RESULT_DIR"], "val_dict_list.json"), "w") as file:
    json.dump([{"step": given["epochs"], "loss": loss}], file)
"""


def test_a_tuning_of_a_model_gives_it_the_best_values(server: WmlaServer, shared: Path):
    (shared / "templates" / "tuned").mkdir(parents=True, exist_ok=True)
    (shared / "templates" / "tuned" / "main.py").write_text(TUNED)
    client = sdk(server)
    client.add_model_template("tuned", "templates/tuned", "PyTorch")
    client.add_model("tuned", "tuned", hyperparameter=HyperParameter(momentum=0.5, solvertype="SGD"), batchsize=16)
    resources = ResDef("PyTorch", "7", 4, worker_num=1)
    tried = [
        SearchExperiment(
            at, [FixedHyperParam("learningrate", "double", rate), FixedHyperParam("batchsize", "int", "2")]
        )
        for at, rate in enumerate(("0.5", "0.25"), 1)
    ]
    algorithm = AlgoDef("ExperimentGridSearch", max_paralle_job_num=2)
    client.start_model_auto_tuning("tuned", "tuned", "best-rate", resources, algorithm, experiments=tried)

    def finished() -> dict | None:
        found = client.get_model_auto_tuning_status_by_name("tuned", "best-rate").get_result()
        return found if found["state"] == "FINISHED" else None

    found = until(finished, "the tuning")
    values = {each["name"]: each["fixedVal"] for each in found["best"]["hyperParams"]}
    assert values == {"learningrate": "0.25", "batchsize": "2"}
    assert found["best"]["metricVal"] == 0.25 + 0.005 + 2
    assert client.get_model_auto_tuning_status("tuned").get_result() == [found]
    # Each experiment is a training of the model.
    assert len(client.get_model_trainings("tuned").get_result()) == 2
    client.create_model_using_tuning_result("tuned", "best-rate", "again")
    client.update_model_using_tuning_result("tuned", "best-rate")
    for name in ("tuned", "again"):
        model = next(each for each in client.get_models().get_result() if each["name"] == name)
        assert (model["hyperparameter"]["learningrate"], model["hyperparameter"]["momentum"]) == (0.25, 0.5)
        assert model["batchsize"] == 2
    with pytest.raises(ApiException, match="already stopped"):
        client.stop_model_auto_tuning("tuned", "best-rate")
    with pytest.raises(ApiException, match=r"has no tuning 'other'\. There is best-rate"):
        client.get_model_auto_tuning_status_by_name("tuned", "other")
    client.delete_model_auto_tuning("tuned", "best-rate")
    assert client.get_model_auto_tuning_status("tuned").get_result() == []


def test_from_a_data_set_and_a_template_to_trained_weights(server: WmlaServer, shared: Path):
    client = sdk(server, bearer=server.url.startswith("https"))
    sig = next(each["uuid"] for each in client.get_app_instances().get_result() if each["name"] == "wmla-sig")
    image = ImageDetail(height=28, width=28, imagetype="Gray")
    client.add_dataset(
        "digits",
        "CSV",
        sig,
        "CSV",
        trainpath=f"{shared}/digits/train",
        testpath=f"{shared}/digits/test",
        imagedetail=image,
    )
    (seen,) = client.get_full_dataset_details().get_result()
    assert (seen["name"], seen["dbbackend"], seen["status"]) == ("digits", "CSV", "CREATED")
    assert (seen["trainpath"], seen["testpath"]) == (f"{shared}/digits/train", f"{shared}/digits/test")
    assert client.get_dataset_info("digits").get_result() == seen
    page = client.csv_list("digits", "Train", start="1", length="1").get_result()
    assert (page["columns"], page["index"], page["data"]) == (["x", "y"], ["1"], [[3.0, "four"]])
    (picture,) = client.objectimage_list("digits", "Test").get_result()
    assert (picture["name"], Path(picture["labels"]).name) == ("seven.png", "seven.txt")

    client.add_model_template("says", "templates/says", "PyTorch", description="Sagt es")
    (template,) = client.get_model_template_details(framework="PyTorch").get_result()
    assert (template["name"], template["framework"], template["tfmainpath"]) == ("says", "PyTorch", "main.py")
    assert client.get_model_template_details(framework="Caffe").get_result() == []
    files = client.get_model_template_files("says").get_result()
    assert "says/notes.txt" in files
    assert client.get_model_template_file_content_by_name("says/notes.txt").get_result() == "Notizen\n"

    hyper = HyperParameter(learningrate=0.5, momentum=0.9, epoch=3, solvertype="Adam", hiddenstatesize=7)
    made = client.add_model(
        "says", "says", sig=sig, accelerator="Single", hyperparameter=hyper, dataset="digits", batchsize=16
    ).get_result()
    assert "hiddenstatesize" in made["message"]
    (model,) = client.get_models().get_result()
    assert (model["templatename"], model["accelerator"], model["dataset"]) == ("says", "Single", "digits")
    assert (model["batchsize"], model["hyperparameter"]["epoch"]) == (16, 3)
    assert (model["hyperparameter"]["solvertype"], model["hyperparameter"]["learningrate"]) == ("Adam", 0.5)

    started = client.start_model_training("says", "first", "PyTorch", 1, cmd="--extra 'a b'", gpu_ratio=1).get_result()
    job = started["trainingParameters"]["appid"]
    assert told(server, job) == {
        "train": f"{shared}/digits/train",
        "test": f"{shared}/digits/test",
        "epochs": 3,
        "batch": 16,
        "extra": "a b",
        "weights": [],
        "file": True,
    }
    (training,) = client.get_model_trainings("says").get_result()
    assert (training["model"], training["dataset"]) == ("says", "digits")
    assert training["trainingParameters"]["status"] == "FINISHED"
    assert client.get_model_training_names("says").get_result() == ["first"]
    assert client.get_model_trainingby_name("says", "first").get_result() == training
    (weights,) = client.get_model_training_weightfiles("says", "first").get_result()
    assert weights.endswith("/model/mine.pth")
    with pytest.raises(ApiException, match="first already"):
        client.start_model_training("says", "first", "PyTorch", 1)
    # A training is an exec, whose result is downloaded as any other's.
    result = client.get_platform_rest_deeplearning_exec_result(job).get_result().content
    archive = zipfile.ZipFile(io.BytesIO(result))
    assert archive.read("model/mine.pth") == b"weights"
    assert {name.partition("/")[0] for name in archive.namelist()} <= {
        *("_submitted_code", "model", "log", "checkpoint", "pth_parameters.json"),
    }
    story = requests.get(
        f"{server.dli}/scheduler/applications/{job}/driver/logs/launcherlog", auth=server.basic, verify=False
    ).text
    assert "gpuRatio have no meaning here" in story

    kept = client.upload_wf(io.BytesIO(b"trained elsewhere")).get_result()["name"]
    second = client.start_model_training("says", "second", "PyTorch", 1, wfinit=kept).get_result()
    assert told(server, second["trainingParameters"]["appid"])["weights"] == ["model_epoch_final.pth"]

    client.del_model_training("says", "first")
    assert client.get_model_training_names("says").get_result() == ["second"]
    client.delete_model_template("says")
    client.delete_model("says")
    client.delete_dataset_info("digits")
    assert client.get_models().get_result() == client.get_full_dataset_details().get_result() == []
    assert (shared / "digits/train/a.csv").exists()


@pytest.mark.long  # server/catalogue/test_models.py has the engine of one training
def test_a_model_is_changed_and_another_engine_trains_it(http: WmlaServer):
    root = Path(requests.get(f"{http.dli}/conf", auth=http.basic).json()["DLI_DATA_FS"])
    (root / "engines").mkdir(exist_ok=True)
    (root / "engines" / "main.py").write_text("print('TOLD {}')\n")
    client = sdk(http)
    client.add_model_template("engines", str(root / "engines"), "PyTorch")
    client.update_model_template("engines", description="Anders", hyperparameter=HyperParameter(epoch=9))
    assert client.get_model_template_by_name("engines").get_result()["hyperparameter"]["epoch"] == 9
    client.add_model("engines", "engines", accelerator="Elastic", tfmain_content="print('TOLD 1')\n")
    assert client.get_model_by_name("engines").get_result()["accelerator"] == "Elastic"
    assert client.get_model_file_content_by_name("engines/main.py").get_result() == "print('TOLD 1')\n"
    client.save_model_file_content_by_name("engines", tmpfile_path="more/a.py", tmpfile_content="A = 1\n")
    assert "engines/more/a.py" in client.get_model_files("engines").get_result()
    client.update_model("engines", accelerator="Native", tfmain_content="import more.a\nprint('TOLD 2')\n")
    assert client.get_model_by_name("engines").get_result()["accelerator"] == "Native"
    for name, engine, expected in (
        ("a", "PyTorch", "distPyTorch"),
        ("b", "torchrun", "torchrun"),
        ("c", "PyTorchOnElastic", "edtPyTorch"),
    ):
        started = client.start_model_training("engines", name, engine, 2, sync_mode="ASYNC").get_result()
        parameters = started["trainingParameters"]
        assert (parameters["dlFramework"], parameters["clusterSize"]) == (expected, 2)
        # The elastic engine says what it misses in a script that calls no train().
        ended = http.wait(parameters["appid"], "ERROR" if expected == "edtPyTorch" else "FINISHED")
        assert ("FabricModel" in ended["message"]) == (expected == "edtPyTorch")
    assert client.get_model_training_names("engines").get_result() == ["c", "b", "a"]
    with pytest.raises(ApiException) as over:
        client.stop_model_training("engines", "a")
    assert over.value.status_code == 400
    client.delete_model("engines")
    client.delete_model_template("engines")


ELASTIC = """
import argparse, os, sys
import torch
from fabric_model import FabricModel

def get_datasets():
    torch.manual_seed(3)
    points = torch.randn(64, 2)
    data = torch.utils.data.TensorDataset(points, (points[:, 0] > 0).long())
    return data, data

parser = argparse.ArgumentParser()
parser.add_argument("--train_dir", type=str, default="")
parser.add_argument("--weights", type=str, default="")
args, unknown = parser.parse_known_args()
sys.path.insert(0, args.train_dir + "/../")
import pth_parameter_mgr
torch.manual_seed(1)
model = torch.nn.Linear(2, 2)
found = sorted(os.listdir(args.weights)) if args.weights else []
print("TOLD", found, pth_parameter_mgr.getTrainData(False), flush=True)
if found:
    model.load_state_dict(torch.load(os.path.join(args.weights, found[0])))
optimizer = pth_parameter_mgr.getOptimizer(model)
edt = FabricModel(model, get_datasets, torch.nn.functional.cross_entropy, optimizer)
edt.train(pth_parameter_mgr.getEpoch(), pth_parameter_mgr.getTrainBatchSize(), 2)
"""


def test_a_model_of_the_console_trains_on_the_elastic_engine(http: WmlaServer):
    """As the tutorial does: a data set, a model of a template, trained with an engine, and again from its weights."""
    import torch

    root = Path(requests.get(f"{http.dli}/conf", auth=http.basic).json()["DLI_DATA_FS"])
    for folder in ("elastic", "points"):
        (root / folder).mkdir(exist_ok=True)
    (root / "elastic" / "main.py").write_text(ELASTIC)
    client = sdk(http)
    client.add_dataset("points", "Other", "wmla-sig", "OTHER", trainpath="points")
    client.add_model_template("elastic", "elastic", "PyTorch")
    hyper = HyperParameter(learningrate=0.5, epoch=4, solvertype="SGD")
    client.add_model("elastic", "elastic", accelerator="Elastic", hyperparameter=hyper, dataset="points", batchsize=8)

    def final(name: str, **more: str) -> tuple[dict[str, torch.Tensor], str]:
        started = client.start_model_training("elastic", name, "PyTorchOnElastic", 2, **more).get_result()
        job = started["trainingParameters"]["appid"]
        http.wait(job, "FINISHED")
        result = client.get_platform_rest_deeplearning_exec_result(job).get_result().content
        state = zipfile.ZipFile(io.BytesIO(result)).read("model/train/model_epoch_final.pth")
        said = requests.get(f"{http.dli}/scheduler/applications/{job}/driver/logs/stdout", auth=http.basic).text
        return torch.load(io.BytesIO(state), weights_only=True), said

    first, said = final("first")
    assert f"TOLD [] {root}/points" in said
    second, said = final("second", wfinit="first")
    assert "TOLD ['model_epoch_final.pth']" in said
    # Further along the same way, not begun anew.
    assert second["weight"].norm() > first["weight"].norm()
    validated(http, client, points_of())
    client.delete_model("elastic")
    client.delete_model_template("elastic")
    client.delete_dataset_info("points")


def points_of() -> tuple[object, object]:
    """The test data of ELASTIC."""
    import torch

    torch.manual_seed(3)
    points = torch.randn(64, 2)
    return points, (points[:, 0] > 0).long()


def validated(http: WmlaServer, client: object, data: tuple[object, object]) -> None:
    """The training `second` of the model `elastic` is validated, as IBM's SDK asks for it."""
    import torch

    metrics = ["Top1", "ConfusionMatrix", "Loss"]
    started = client.start_validation("elastic", "check", "second", metrics, threshold=0.5).get_result()
    assert (started["modelname"], started["dataSet"]) == ("elastic", "points")
    asked = started["valParameters"]
    assert (asked["valName"], asked["trainName"], asked["metrics"]) == ("check", "second", metrics)
    http.wait(started["appid"], "FINISHED")
    (found,) = client.get_validations("elastic").get_result()
    assert found["status"] == "FINISHED"
    result = client.get_platform_rest_deeplearning_exec_result(started["appid"]).get_result().content
    state = torch.load(
        io.BytesIO(zipfile.ZipFile(io.BytesIO(result)).read("model/train/model_epoch_final.pth")), weights_only=True
    )
    points, labels = data
    outputs = points @ state["weight"].T + state["bias"]
    # With two classes a threshold is one for the second of them.
    said = (outputs.softmax(1)[:, 1] >= 0.5).long()
    pairs = {pair["name"]: pair["value"] for pair in found["outPairs"]}
    assert list(pairs) == ["Top1", "Loss", "ConfusionMatrix"]
    assert float(pairs["Top1"]) == pytest.approx(float((said == labels).float().mean()))
    assert float(pairs["Loss"]) == pytest.approx(float(torch.nn.functional.cross_entropy(outputs, labels)), rel=1e-5)
    assert json.loads(pairs["ConfusionMatrix"]) == torch.bincount(labels * 2 + said, minlength=4).reshape(2, 2).tolist()
    # No validation is a training of the model, and the other way round.
    assert client.get_model_training_names("elastic").get_result() == ["second", "first"]
    for training, name, status, text in (
        ("second", "check", 400, "a validation check already"),
        ("none", "other", 404, "no training 'none'. There is second, first"),
        ("check", "other", 404, "no training 'check'"),
    ):
        with pytest.raises(ApiException, match=text) as refused:
            client.start_validation("elastic", name, training, ["Top1"])
        assert refused.value.status_code == status
    client.delete_validation("elastic", "check")
    assert client.get_validations("elastic").get_result() == []
    with pytest.raises(ApiException, match=r"no validation 'check'\. There is none yet"):
        client.stop_validation("elastic", "check")


@pytest.mark.parametrize(
    ("verb", "path", "body", "status", "text"),
    [
        ("POST", "datasets", {"name": "x"}, 400, "names no folder"),
        ("POST", "datasets", {"name": "x", "trainpath": "/etc"}, 400, "outside of the server's data folder"),
        ("POST", "datasets", {"name": "x", "trainpath": "nothing"}, 404, "There is no nothing"),
        ("POST", "datasets", {"trainpath": "."}, 400, "no name"),
        ("POST", "datasets", {"name": "x", "trainpath": ".", "datasourcetype": "MP3"}, 400, "IMAGEFORCLASSIFICATION"),
        ("POST", "datasets", {"name": "x", "trainpath": ".", "sigid": "nobody"}, 400, "no instance group nobody"),
        ("POST", "datasets", [], 400, "not a JSON object"),
        ("GET", "datasets/none", None, 404, "no data set 'none'"),
        ("DELETE", "datasets/none", None, 404, "no data set"),
        ("PUT", "datasets/none/stop", None, 404, "no data set"),
        ("POST", "modeltemplates", {"name": "x", "path": "."}, 400, "no framework"),
        ("POST", "modeltemplates", {"name": "x", "path": ".", "framework": "Caffe"}, 400, "no framework 'Caffe'"),
        ("POST", "modeltemplates", {"name": "x", "path": "no", "framework": "PyTorch"}, 404, "There is no no"),
        ("GET", "modeltemplates/files/none", None, 404, "the model, a slash, the file"),
        ("GET", "models/files/none%2Fmain.py", None, 404, "no model 'none'"),
        ("POST", "models", {"name": "x", "templatename": "none"}, 404, "no template 'none'"),
        ("POST", "models", {"name": "x", "templatename": "y", "accelerator": "Quantum"}, 400, "Single, Native"),
        ("POST", "models", {"name": "x", "templatename": "y", "hyperparameter": {"epoch": "x"}}, 400, "whole number"),
        ("PUT", "models/none", {"dataset": "x"}, 404, "no model 'none'"),
        (
            "POST",
            "models/none/trainings",
            {"trainName": "x", "dlFramework": "PyTorch", "clusterSize": 1},
            404,
            "no model",
        ),
        ("POST", "models/none/trainings", {"trainName": "x", "dlFramework": "PyTorch"}, 400, "clusterSize"),
        (
            "POST",
            "models/none/trainings",
            {"trainName": "x", "dlFramework": "Caffe", "clusterSize": 1},
            400,
            "no framework",
        ),
        ("GET", "models/none/trainings/x", None, 404, "no model"),
        ("POST", "models/weightfile", None, 400, "0 files"),
        ("GET", "models/none/validations", None, 404, "no model 'none'"),
        ("POST", "models/none/validations", {"valName": "x", "trainName": "y", "metrics": "Top1"}, 404, "no model"),
        ("POST", "models/none/validations", {"valName": "x", "trainName": "y", "metrics": ["mAP"]}, 400, "top<K>"),
        ("POST", "models/none/validations", {"valName": "x", "trainName": "y", "metrics": []}, 400, "No metrics"),
        ("POST", "models/none/validations", {"valName": "x", "trainName": "y", "metrics": 5}, 400, "list of names"),
        ("POST", "models/none/validations", {"valName": "x", "trainName": "y"}, 400, "no metrics"),
        ("POST", "models/none/validations", {"trainName": "y", "metrics": "loss"}, 400, "no valName"),
        (
            "POST",
            "models/none/validations",
            {"valName": "x", "trainName": "y", "metrics": "loss", "threshold": "high"},
            400,
            "threshold is a number",
        ),
        (
            "POST",
            "models/none/validations",
            {"valName": "x", "trainName": "y", "metrics": "loss", "threshold": 7},
            400,
            "between 0 and 1",
        ),
        ("DELETE", "models/none/validations/x", None, 404, "no model"),
        ("PUT", "models/none/validations/x/stop", None, 404, "no model"),
    ],
)
def test_bad_input_is_a_line_that_says_what_is_wrong(http: WmlaServer, verb, path, body, status, text):
    answer = requests.request(verb, f"{http.dli}/{path}", json=body, auth=http.basic)
    assert (answer.status_code, answer.text.startswith(f"Error {status}: ")) == (status, True), answer.text
    assert text in answer.text
