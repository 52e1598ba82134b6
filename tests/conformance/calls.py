"""Every call that WMLA's clients make, as they make it. `test_calls.py` makes them; the page in docs is made of them.

A path may hold the names in braces that `test_calls.py` fills in: of an exec that has finished, of one that waits, of
its driver, a worker and its instance group. The SDK's calls are not written here: `sdk_calls` reads them from the SDK.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass

from ibm_wmla.wmla_api_edi_v2 import ElasticDistributedInferenceV2
from ibm_wmla.wmla_api_v1 import DeepLearningImpactV1

DLI = "/platform/rest/deeplearning/v1"
CONDUCTOR = "/platform/rest/conductor/v1"

SDK, SDK_INFERENCE = "ibm-wmla", "ibm-wmla (inference)"
DLICMD = "dlicmd"
NOTEBOOKS_1 = "notebooks 1.2.x"
NOTEBOOKS_2 = "notebooks 2.x"

SERVICES = {SDK: DeepLearningImpactV1, SDK_INFERENCE: ElasticDistributedInferenceV2}

WAYS = ("Basic", "X-Auth-Token", "Bearer", "cookie")

JSON, TEXT, OCTETS = "application/json", "text/plain", "application/octet-stream"
ANY = "*/*"


@dataclass(frozen=True)
class Call:
    """One request.

    `exec_wanted` says which exec it is about: "finished", or "waiting" for one that waits for a slot and that the call
    may end. `status` is what it answers.
    """

    client: str
    verb: str
    path: str
    query: str = ""
    accept: str = ANY
    exec_wanted: str = "finished"
    status: int = 200
    upload: bool = False
    form: str = ""


_START = "args=--exec-start edtPyTorch --model-main train.py --model-dir mnist-edt --numWorker 2 --epochs 1"
_EDT_1 = (
    "sigName=wmla-sig&args=--exec-start edtPyTorch --cs-datastore-meta type=fs,data_path=pytorch-mnist/ "
    "                  --edt-options maxWorkers=2                  --model-main train.py --model-dir mnist-edt "
    "                 --debug-level debug                  --epochs 1 "
)
HPO = """{
    "modelSpec": {"args": "--exec-start PyTorch --model-main train.py --model-dir mnist-edt"},
    "algoDef": {"algorithm": "Random", "maxJobNum": 1, "objectiveMetric": "loss", "objective": "minimize"},
    "hyperParams": [{"name": "lr", "type": "Range", "dataType": "DOUBLE", "minDbVal": 0.001, "maxDbVal": 0.1}]
}"""
_HYPERSEARCH = f"{DLI}/hypersearch"

CALLS: tuple[Call, ...] = (
    # 1.2.x: two services, Basic or the logon's cookies with every request.
    Call(NOTEBOOKS_1, "GET", f"{CONDUCTOR}/auth/logon", accept=JSON),
    Call(NOTEBOOKS_1, "POST", f"{DLI}/execs", _EDT_1, accept=JSON, upload=True),
    Call(NOTEBOOKS_1, "GET", f"{DLI}/execs/{{exec}}", accept=JSON),
    Call(NOTEBOOKS_1, "GET", f"{DLI}/execs/{{exec}}/log", accept=JSON),
    Call(NOTEBOOKS_1, "GET", f"{DLI}/execs/{{exec}}/log", accept=OCTETS),
    Call(NOTEBOOKS_1, "GET", f"{DLI}/execs/{{exec}}/result", accept=OCTETS),
    Call(NOTEBOOKS_1, "GET", f"{DLI}/execs/frameworks", accept=JSON),
    Call(NOTEBOOKS_1, "GET", f"{CONDUCTOR}/instances/{{sig}}/applications", "state=RUNNING", accept=JSON),
    Call(
        NOTEBOOKS_1, "GET", f"{CONDUCTOR}/instances/{{sig}}/applications/{{driver}}/logs/stdout/download", accept=OCTETS
    ),
    Call(
        NOTEBOOKS_1, "GET", f"{CONDUCTOR}/instances/{{sig}}/applications/{{driver}}/logs/stderr/download", accept=OCTETS
    ),
    Call(
        NOTEBOOKS_1,
        "GET",
        f"{CONDUCTOR}/instances/{{sig}}/applications/{{driver}}/{{executor}}/logs/stdout/download",
        accept=OCTETS,
    ),
    Call(
        NOTEBOOKS_1,
        "GET",
        f"{CONDUCTOR}/instances/{{sig}}/applications/{{driver}}/{{executor}}/logs/stderr/download",
        accept=OCTETS,
    ),
    Call(NOTEBOOKS_1, "GET", _HYPERSEARCH, accept=JSON),
    Call(NOTEBOOKS_1, "POST", _HYPERSEARCH, accept=JSON, upload=True, form=HPO),
    Call(NOTEBOOKS_1, "GET", f"{_HYPERSEARCH}/{{task}}", accept=JSON),
    Call(NOTEBOOKS_1, "PUT", f"{_HYPERSEARCH}/{{task}}", accept=JSON),
    Call(NOTEBOOKS_1, "GET", f"{_HYPERSEARCH}/algorithm", accept=JSON),
    Call(NOTEBOOKS_1, "GET", f"{_HYPERSEARCH}/algorithm/Random", accept=JSON),
    Call(NOTEBOOKS_1, "DELETE", f"{_HYPERSEARCH}/algorithm/TPE", accept=JSON, status=400),  # it is built in
    Call(NOTEBOOKS_1, "DELETE", _HYPERSEARCH, accept=JSON),
    # 2.x: a token from the logon.
    Call(NOTEBOOKS_2, "GET", "/auth/v1/logon", accept=JSON),
    Call(NOTEBOOKS_2, "POST", f"{DLI}/execs/", _START, accept=JSON, upload=True),
    Call(NOTEBOOKS_2, "GET", f"{DLI}/execs/{{exec}}", accept=JSON),
    Call(NOTEBOOKS_2, "GET", f"{DLI}/execs/{{exec}}/log", accept=JSON),
    Call(NOTEBOOKS_2, "GET", f"{DLI}/execs/{{exec}}/result", accept=TEXT),
    Call(NOTEBOOKS_2, "GET", f"{DLI}/execs/frameworks", accept=JSON),
    Call(
        NOTEBOOKS_2,
        "GET",
        f"{DLI}/scheduler/applications/{{exec}}/executor/1/logs/stdout",
        "lastlines=1000",
        accept=TEXT,
    ),
    Call(
        NOTEBOOKS_2,
        "GET",
        f"{DLI}/scheduler/applications/{{exec}}/executor/1/logs/stderr",
        "lastlines=1000",
        accept=TEXT,
    ),
    Call(NOTEBOOKS_2, "POST", _HYPERSEARCH, accept=JSON, upload=True, form=HPO),
    Call(NOTEBOOKS_2, "GET", f"{_HYPERSEARCH}/{{task}}", accept=JSON),
    # dlicmd: /conf before each of its commands.
    Call(DLICMD, "GET", "/auth/v1/logon"),
    Call(DLICMD, "POST", "/auth/v1/logoff"),
    Call(DLICMD, "GET", f"{DLI}/conf", accept=JSON),
    Call(DLICMD, "GET", f"{DLI}/status", accept=JSON),
    Call(DLICMD, "GET", f"{DLI}/execs/frameworks", accept=JSON),
    Call(DLICMD, "POST", f"{DLI}/execs/", _START, accept=JSON, upload=True),
    Call(DLICMD, "GET", f"{DLI}/execs/{{exec}}", accept=JSON),
    Call(DLICMD, "GET", f"{DLI}/scheduler/kubernetesobjects", "type=paralleljob&name={exec}", accept=JSON),
    Call(DLICMD, "GET", f"{DLI}/execs/", accept=JSON),
    Call(DLICMD, "GET", f"{DLI}/execs/", "limit=10&state=FINISHED&sort_by=id:desc", accept=JSON),
    Call(DLICMD, "POST", f"{DLI}/execs/{{exec}}/stop", accept=JSON, exec_wanted="waiting"),
    Call(DLICMD, "DELETE", f"{DLI}/execs/{{exec}}", accept=JSON, exec_wanted="waiting"),
    # What an exec without a kernel is told: `test_inference.py` deploys one with a kernel.
    Call(DLICMD, "POST", f"{DLI}/execs/{{exec}}/deploy", accept=JSON, status=400),
    Call(DLICMD, "GET", f"{DLI}/execs/{{exec}}/log", "logType=outlog&args=--exec-trainoutlogs {exec}", accept=TEXT),
    Call(DLICMD, "GET", f"{DLI}/execs/{{exec}}/log", "logType=errlog&args=--exec-trainerrlogs {exec}", accept=TEXT),
    Call(DLICMD, "GET", f"{DLI}/execs/{{exec}}/log", "logType=outerrlog&args=--exec-trainlogs {exec}", accept=TEXT),
    Call(DLICMD, "GET", f"{DLI}/execs/{{exec}}/result", "args=--exec-trainresult {exec}", accept=OCTETS),
    Call(DLICMD, "GET", f"{DLI}/scheduler/applications", "applicationid={exec}", accept=JSON),
    *(
        Call(DLICMD, "GET", f"{DLI}/scheduler/applications/{{exec}}/{who}/logs/{kind}", accept=TEXT)
        for who in ("driver", "executor/1")
        for kind in ("launcherlog", "stdout", "stderr")
    ),
    Call(DLICMD, "GET", f"{DLI}/scheduler/engine/applications/{{exec}}", accept=JSON),
    Call(
        DLICMD,
        "GET",
        f"{DLI}/scheduler/engine/applications",
        "start=0&length=10000&sort=-submit_time&state=NEW,SUBMITTED,PENDING_JOB_SCHEDULER,RUNNING,UNKNOWN",
        accept=JSON,
    ),
    Call(DLICMD, "PUT", f"{DLI}/scheduler/applications/{{exec}}/stop", accept=JSON, exec_wanted="waiting"),
    Call(DLICMD, "GET", f"{DLI}/scheduler/kubernetesobjects", "type=pod", accept=JSON),
    Call(DLICMD, "GET", f"{DLI}/scheduler/kubernetesobjects", "type=paralleljob", accept=JSON),
    Call(DLICMD, "GET", f"{DLI}/resplans/resplantree", accept=JSON),
    Call(DLICMD, "GET", f"{DLI}/resplans/resplan/wmla-sig", accept=JSON),
    Call(DLICMD, "DELETE", f"{DLI}/resplans/resplan/{{spare_plan}}", accept=JSON),
    Call(DLICMD, "GET", _HYPERSEARCH, "limit=10&state=RUNNING&sort_by=hpoName:desc", accept=JSON),
    Call(DLICMD, "POST", _HYPERSEARCH, accept=JSON, upload=True, form=HPO),
    Call(DLICMD, "GET", f"{_HYPERSEARCH}/{{task}}", accept=JSON),
    Call(DLICMD, "PUT", f"{_HYPERSEARCH}/{{task}}", accept=JSON),
    Call(DLICMD, "PUT", f"{_HYPERSEARCH}/{{stopped_task}}/restart", accept=JSON),
    Call(DLICMD, "DELETE", f"{_HYPERSEARCH}/{{task}}", accept=JSON),
    Call(DLICMD, "GET", f"{_HYPERSEARCH}/algorithm", accept=JSON),
    Call(DLICMD, "GET", f"{_HYPERSEARCH}/algorithm/TPE", accept=JSON),
    Call(DLICMD, "DELETE", f"{_HYPERSEARCH}/algorithm/TPE", accept=JSON, status=400),  # it is built in
    Call(DLICMD, "DELETE", _HYPERSEARCH, accept=JSON),
    # The last one of each way: it takes all execs with it.
    Call(DLICMD, "DELETE", f"{DLI}/execs", accept=JSON, exec_wanted="all"),
)


@dataclass(frozen=True)
class ConsoleCall:
    """One request of those that only the SDK makes, for what WMLA's console showed, as it makes it."""

    verb: str
    path: str
    body: dict[str, object] | None = None
    query: str = ""
    status: int = 200
    upload: bool = False


TUNING = {
    "modelName": "console",
    "hpoName": "tuned",
    "resDef": {"framework": "PyTorch", "maxiteration": "2", "batchsize": 4},
    "algoDef": {"algorithm": "Random", "maxJobNum": 1},
    "hyperParams": [
        {"name": "learningrate", "type": "Range", "dataType": "double", "minDbVal": 0.001, "maxDbVal": 0.1}
    ],
}
CONSOLE_NAMES = {"name": "console", "training": "first", "tuning": "tuned", "new": "more", "file": "console%2Fmain.py"}
_DATASET, _TEMPLATE, _MODEL = f"{DLI}/datasets/{{name}}", f"{DLI}/modeltemplates/{{name}}", f"{DLI}/models/{{name}}"
_TRAINING = f"{_MODEL}/trainings/{{training}}"
_TUNING = f"{_MODEL}/hypersearch/{{tuning}}"
# In an order in which each does its work, and nothing is left.
CONSOLE: tuple[ConsoleCall, ...] = (
    ConsoleCall("POST", f"{DLI}/datasets", {"name": "console", "datasourcetype": "CSV", "trainpath": "some"}),
    ConsoleCall("GET", f"{DLI}/datasets"),
    ConsoleCall("GET", _DATASET),
    ConsoleCall("GET", f"{_DATASET}/csvs", query="type=Train&start=0&length=1"),
    ConsoleCall("GET", f"{_DATASET}/objectimages", query="type=Train"),
    ConsoleCall("PUT", f"{_DATASET}/stop", status=400),  # there is never anything to stop
    ConsoleCall("POST", f"{DLI}/modeltemplates", {"name": "console", "path": "some", "framework": "PyTorch"}),
    ConsoleCall("GET", f"{DLI}/modeltemplates", query="framework=PyTorch"),
    ConsoleCall("GET", _TEMPLATE),
    ConsoleCall("PUT", _TEMPLATE, {"description": "changed"}),
    ConsoleCall("GET", f"{_TEMPLATE}/files"),
    ConsoleCall("GET", f"{DLI}/modeltemplates/files/{{file}}"),
    ConsoleCall("POST", f"{DLI}/models", {"name": "console", "templatename": "console", "dataset": "console"}),
    ConsoleCall("GET", f"{DLI}/models"),
    ConsoleCall("GET", _MODEL),
    ConsoleCall("PUT", _MODEL, {"batchsize": 8}),
    ConsoleCall("GET", f"{_MODEL}/files"),
    ConsoleCall("PUT", f"{_MODEL}/files", {"tmpfilePath": "more.py", "tmpfileContent": "A = 1"}),
    ConsoleCall("GET", f"{DLI}/models/files/{{file}}"),
    ConsoleCall("POST", f"{DLI}/models/weightfile", upload=True),
    ConsoleCall("POST", f"{_MODEL}/trainings", {"trainName": "first", "dlFramework": "PyTorch", "clusterSize": 1}),
    ConsoleCall("GET", f"{_MODEL}/trainings"),
    ConsoleCall("GET", f"{_MODEL}/trainingnames"),
    ConsoleCall("GET", _TRAINING),
    ConsoleCall("GET", f"{_TRAINING}/weightfile"),
    ConsoleCall("PUT", f"{_TRAINING}/stop"),
    ConsoleCall("DELETE", _TRAINING),
    ConsoleCall("POST", f"{_MODEL}/hypersearch", TUNING),
    ConsoleCall("GET", f"{_MODEL}/hypersearch"),
    ConsoleCall("GET", _TUNING),
    ConsoleCall("PUT", f"{_TUNING}/stop"),
    ConsoleCall("PUT", f"{_TUNING}/restart"),
    ConsoleCall("PUT", f"{_TUNING}/force"),
    # It has not trained: `test_console.py` has the best values of one that has.
    ConsoleCall("PUT", f"{_TUNING}/update", status=400),
    ConsoleCall("PUT", f"{_TUNING}/create/{{new}}", status=400),
    ConsoleCall("DELETE", _TUNING),
    ConsoleCall("DELETE", _MODEL),
    ConsoleCall("DELETE", _TEMPLATE),
    ConsoleCall("DELETE", _DATASET),
)


# Of a model of the elastic engine that was trained before; in an order in which nothing is left.
_VALIDATED = f"{DLI}/models/{{model}}/validations"
VALIDATIONS: tuple[ConsoleCall, ...] = (
    ConsoleCall(
        "POST",
        _VALIDATED,
        {"valName": "seen", "trainName": "first", "metrics": ["Top1", "ConfusionMatrix"], "threshold": 0.5},
    ),
    ConsoleCall("GET", _VALIDATED),
    ConsoleCall("PUT", f"{_VALIDATED}/{{validation}}/stop"),
    ConsoleCall("DELETE", f"{_VALIDATED}/{{validation}}"),
)
VALIDATION_NAMES = {"model": "trained", "validation": "seen", "name": "trained"}


@dataclass(frozen=True)
class SdkCall:
    """One method of IBM's SDK: its name, and the request that it makes."""

    client: str
    method: str
    verb: str
    path: str


# In an order in which each does its work, and nothing is left. The first call has the archive as its body.
DLIM = "/dlim/v1"
_EDI, _EDI_1 = f"{DLIM}/model/{{model}}", f"{DLI}/edimodels/{{model}}"
_RUNTIME = {"type": "kept", "launcher": "python"}
_KERNEL = "from redhareapi import Kernel\nKernel().run()\n"
INFERENCE: tuple[ConsoleCall, ...] = (
    ConsoleCall("POST", f"{DLIM}/auth/token"),
    ConsoleCall("POST", f"{DLIM}/auth/token/inference"),
    ConsoleCall("POST", f"{DLIM}/deployment/model", upload=True),
    ConsoleCall("POST", f"{DLIM}/deployment/model/{{model}}", upload=True),
    ConsoleCall("GET", f"{DLIM}/model"),
    ConsoleCall("GET", _EDI),
    ConsoleCall("PUT", _EDI, {"tag": "2"}),
    ConsoleCall("GET", f"{_EDI}/appprofile"),
    ConsoleCall("PUT", f"{_EDI}/appprofile", {"policy": {"kernel_max": 1}}),
    ConsoleCall("GET", f"{_EDI}/readme"),
    ConsoleCall("PUT", f"{_EDI}/readme", {"readme": "Echoes."}),
    ConsoleCall("GET", f"{DLIM}/modelextension"),
    ConsoleCall("PUT", f"{_EDI}/operation/start"),
    ConsoleCall("GET", f"{_EDI}/instance"),
    ConsoleCall("PUT", f"{_EDI}/operation/stop"),
    ConsoleCall("POST", f"{DLIM}/inference/{{model}}", {"a": 1}, status=400),  # it is stopped
    ConsoleCall("GET", f"{_EDI}/streaming", status=501),
    ConsoleCall("DELETE", _EDI),
    ConsoleCall("POST", f"{DLIM}/deployment/runtime", _RUNTIME),
    ConsoleCall("GET", f"{DLIM}/deployment/runtime"),
    ConsoleCall("GET", f"{DLIM}/deployment/runtime/kept"),
    ConsoleCall("PUT", f"{DLIM}/deployment/runtime/kept", _RUNTIME),
    ConsoleCall("DELETE", f"{DLIM}/deployment/runtime/kept"),
    ConsoleCall("POST", f"{DLIM}/model", {"name": "echo", "kernel_path": "main.py", "model_path": "some"}),
    ConsoleCall("DELETE", _EDI),
    ConsoleCall("POST", f"{DLI}/edimodels/new", {"name": "echo", "edi_py": _KERNEL, "modelPath": "some"}),
    ConsoleCall("GET", f"{DLI}/edimodels"),
    ConsoleCall("GET", _EDI_1),
    ConsoleCall("PUT", _EDI_1, {"tag": "3"}),
    ConsoleCall("GET", f"{_EDI_1}/appprofile"),
    ConsoleCall("PUT", f"{_EDI_1}/appprofile", {"policy": {"schedule_intervel": 3}}),
    ConsoleCall("GET", f"{_EDI_1}/readme"),
    ConsoleCall("PUT", f"{_EDI_1}/operation/start"),
    ConsoleCall("GET", f"{_EDI_1}/instance"),
    ConsoleCall("PUT", f"{_EDI_1}/operation/stop"),
    ConsoleCall("POST", f"{_EDI_1}/inference", {"data_type": "a"}, status=400),
    ConsoleCall("GET", f"{_EDI_1}/streaming", status=501),
    ConsoleCall("DELETE", _EDI_1),
    ConsoleCall("POST", f"{DLI}/edimodels/trained", {"name": "echo", "edi_py": _KERNEL}),
    ConsoleCall("DELETE", _EDI_1),
    ConsoleCall("GET", f"{DLI}/inferences", query="modelname=a&flag=b", status=501),
)
INFERENCE_NAMES = {"model": "echo"}


def sdk_calls() -> Iterator[SdkCall]:
    """All of them, read from the SDK's own source."""
    for client, service in SERVICES.items():
        for name, method in inspect.getmembers(service, inspect.isfunction):
            source = inspect.getsource(method)
            url, verb = re.search(r"url = '([^']+)'", source), re.search(r"method='(\w+)'", source)
            if url and verb:
                yield SdkCall(client, name, verb[1], url[1])
