"""What an import costs: the modules that a bare `import edt_sdk` and the server load, seen from a fresh interpreter."""

import json
import subprocess
import sys

import pytest

PROBE = "import sys, json; {statement}; print(json.dumps(sorted(sys.modules)))"


def loaded_by(statement):
    run = subprocess.run(
        [sys.executable, "-c", PROBE.format(statement=statement)],
        capture_output=True,
        text=True,
        check=True,
    )
    return {name.split(".")[0] for name in json.loads(run.stdout.splitlines()[-1])}


def every_module(package):
    return f"import {package}, pkgutil, importlib; " + (
        f"[importlib.import_module(m.name) for m in pkgutil.walk_packages({package}.__path__, '{package}.')"
        " if not m.name.endswith(('__main__', '.suggester')) and '.migrations' not in m.name]"
    )


@pytest.mark.parametrize("statement", ["import edt_sdk", "from edt_sdk import Client, Job", "import edt_sdk.schemas"])
def test_the_sdk_is_light(statement):
    heavy = {"torch", "numpy", "ipywidgets", "IPython", "sqlalchemy", "tornado", "jupyter_server", "matplotlib"}
    assert loaded_by(statement) & (heavy | {"optuna"}) == set()


def test_loading_the_magics_needs_neither_torch_nor_widgets():
    statement = (
        "from IPython.core.interactiveshell import InteractiveShell; s = InteractiveShell.instance();"
        " s.extension_manager.load_extension('edt_sdk')"
    )
    assert loaded_by(statement) & {"torch", "ipywidgets"} == set()


@pytest.mark.parametrize("package", ["edt_server", "edt_jupyter"])
def test_no_module_of_the_server_loads_torch_or_widgets(package):
    """The program with Optuna's samplers runs in a process of its own, and is the one module left out."""
    assert loaded_by(every_module(package)) & {"torch", "ipywidgets", "IPython", "optuna", "scipy"} == set()


def test_the_server_side_knows_no_web():
    assert loaded_by(every_module("edt_server")) & {"tornado", "jupyter_server", "requests"} == set()


def test_the_agent_of_a_host_is_light():
    """It is the one process of ours on a machine without work, and starts with each of its machines."""
    heavy = {"sqlalchemy", "alembic", "numpy", "tornado", "jupyter_server", "requests", "pygments"}
    assert loaded_by("import edt_server.agent.host, edt_server.agent.join, edt_server.agent.outpost") & heavy == set()
