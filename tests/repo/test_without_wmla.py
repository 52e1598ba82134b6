"""A build without WMLA's rooms is a whole product: it imports, serves `/edt/api` and trains an elastic job."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest
import requests

from edt_sdk import Unprocessable
from edt_sdk.testing import LocalServer

PACKAGES = {"edt_sdk": "edt_sdk", "edt_server": "server/edt_server", "edt_jupyter": "jupyter_ext/edt_jupyter"}
ROOMS = ("edt_sdk/compat", "edt_server/wmla", "edt_jupyter/wmla")
WMLAS_MODULES = ("callbacks", "edtcallback", "elog", "emetrics", "pth_parameter_mgr", "torchelastic")
WMLAS_VARIABLES = ("APP_ID", "DLI_EXECID", "FABRIC_HOME", "MODEL_PATH", "USER_UID", "WMLA_NWORKER")
JOB = f"""
import importlib.util, os, torch
import edt_sdk
from edt_sdk import FabricModel

def datasets():
    x = torch.arange(32.0).reshape(-1, 1)
    return torch.utils.data.TensorDataset(x, 2 * x), None

if __name__ == "__main__":
    print("sdk", edt_sdk.__file__)
    print("modules", [name for name in {WMLAS_MODULES} if importlib.util.find_spec(name)])
    print("variables", [name for name in {WMLAS_VARIABLES} if name in os.environ])
    print("folders", all(os.path.isdir(os.environ[name]) for name in ("RESULT_DIR", "LOG_DIR", "CHECKPOINT_DIR")))
    model = torch.nn.Linear(1, 1)
    fabric = FabricModel(model, datasets, torch.nn.functional.mse_loss, torch.optim.SGD(model.parameters(), lr=1e-4))
    fabric.train(2, 4, engines_number=2)
"""


@pytest.fixture(scope="module")
def site(root, tracked, tmp_path_factory):
    """The three packages as a wheel would bring them, without WMLA's rooms."""
    folder = tmp_path_factory.mktemp("site")
    for package, place in PACKAGES.items():
        for path in (each for each in tracked if each.is_relative_to(root / place)):
            target = folder / package / path.relative_to(root / place)
            if not any(target.is_relative_to(folder / room) for room in ROOMS):
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(path, target)
    return folder


@pytest.fixture(scope="module")
def server(site, tmp_path_factory):
    environ = {"PYTHONPATH": str(site)}
    with LocalServer(tmp_path_factory.mktemp("server"), slots=2, environ=environ) as running:
        yield running


def test_the_rooms_exist_where_they_are_left_out(root):
    for room in ROOMS:
        package, _, folder = room.partition("/")
        assert list((root / PACKAGES[package] / folder).rglob("*.py"))


def run(site, code):
    """What Python prints that knows these packages alone."""
    environ = {"PYTHONPATH": str(site)}
    done = subprocess.run([sys.executable, "-c", code], cwd=site, env=environ, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_every_module_imports(site):
    run(
        site,
        "import importlib, pkgutil, edt_sdk, edt_server, edt_jupyter\n"
        "for package in (edt_sdk, edt_server, edt_jupyter):\n"
        f"    assert package.__file__.startswith({str(site)!r}), package.__file__\n"
        "    for found in pkgutil.walk_packages(package.__path__, package.__name__ + '.'):\n"
        "        if not found.name.endswith('__main__') and '.migrations' not in found.name:\n"
        "            importlib.import_module(found.name)\n",
    )


def test_the_server_answers_its_own_routes_and_none_of_wmlas(server):
    headers = {"Authorization": f"token {server.token}"}
    assert requests.get(f"{server.url}edt/api/", headers=headers, timeout=30).json()["name"] == "jupyter-edt"
    answer = requests.get(f"{server.url}platform/rest/deeplearning/v1/conf", headers=headers, timeout=30)
    assert answer.status_code == 404


def test_a_kernel_is_refused_as_its_modules_are_not_there(server, tmp_path):
    (tmp_path / "k.py").write_text("from redhareapi import Kernel\n")
    (tmp_path / "model.json").write_text('{"kernel_path": "k.py"}')
    with pytest.raises(Unprocessable, match="built without WMLA's modules"):
        server.client().register(tmp_path, "k")


def test_an_elastic_job_trains_there(server, site, tmp_path):
    (tmp_path / "train.py").write_text(JOB)
    submit = f"Client({server.url!r}, token={server.token!r}).submit({str(tmp_path)!r}, main='train.py', max_workers=2"
    job = server.client().job(run(site, f"from edt_sdk import Client; print({submit}, progress=False).id)"))
    job.wait(timeout=180)
    lines = job.logs()
    assert job.state == "FINISHED", lines
    assert f"sdk {site}" in lines
    for line in ("modules []", "variables []", "folders True"):
        assert line in lines, lines
