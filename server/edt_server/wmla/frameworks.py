"""The frameworks as WMLA lists them, with the application names its clients show. Pure."""

from __future__ import annotations

from typing import Any

from edt_sdk.schemas.frameworks import Framework

_ABOUT: dict[Framework, tuple[str, list[str]]] = {
    Framework.EDT: (
        "ElasticPyTorchTrain",
        [
            "edtPyTorch - elastic distributed training: the script calls FabricModel.train().",
            "Grows and shrinks between 1 and --numWorker (or --edt-options maxWorkers=N) workers while it trains.",
            "Example: --exec-start edtPyTorch --model-main train.py --model-dir model --numWorker 4 --epochs 10",
        ],
    ),
    Framework.PYTORCH: (
        "SingleNodePytorchTrain",
        [
            "PyTorch - the script itself, in one process.",
            "Example: --exec-start PyTorch --model-main train.py --workerDeviceNum 1 --epochs 10",
        ],
    ),
    Framework.DIST: (
        "DistributePyTorchTrain",
        [
            "distPyTorch - the script once for each worker, with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT.",
            "Example: --exec-start distPyTorch --numWorker 2 --model-main train.py --model-dir model",
        ],
    ),
    Framework.TORCHRUN: (
        "ElasticTorchrunTrain",
        [
            "torchrun - a torchrun (PyTorch Elastic) script, unchanged, between one worker and --numWorker.",
            "Example: --exec-start torchrun --numWorker 4 --model-main train.py --model-dir model",
        ],
    ),
}


def app_name(framework: str) -> str:
    """Return the name of an application of the framework when the request names none."""
    known = {each.value: name for each, (name, _) in _ABOUT.items()}
    return known.get(framework, framework)


def listing(workers: int) -> list[dict[str, Any]]:
    """Return all frameworks, for a server with so many slots: the fields of 1.2.x and of 2.x."""
    return [
        {
            "name": framework.value,
            # dlicmd prints `desc` line by line, so it is a list. The recordings of 1.2.x also have `description`, which
            # is a text.
            "desc": lines,
            "description": lines[0],
            "frameworkVersion": "",
            "deployMode": "cluster",
            # A text and no bool: recordings of 2.2 have "" and "false" here.
            "hasTask0": "true" if framework is Framework.EDT else "false",
            "execMode": "single" if framework is Framework.PYTORCH else "distributed",
            "appName": name,
            "numWorkers": 1,
            "maxWorkers": 1 if framework is Framework.PYTORCH else workers,
            "workerMemory": "",
            "frameworkCmdGenerator": "",
            "backend": "pytorch",
            "prebuiltModelMain": "",
            "prebuiltModelDir": "",
            "exports": {},
            "distributeStrategy": "",
            "numPs": 0,
        }
        for framework, (name, lines) in _ABOUT.items()
    ]


def details(backend: str = "") -> list[dict[str, Any]]:
    """Return the frameworks as `/frameworks` shows them, only those with `backend` where it is given."""
    return [
        {
            "name": framework.value,
            "home": "",
            "backend": "PyTorch",
            "accelerator": "Elastic" if framework.elastic else "Native",
            "psNum": 0,
            "commIPNetwork": "",
        }
        for framework in _ABOUT
        if backend.lower() in ("", "pytorch", framework.value.lower())
    ]
