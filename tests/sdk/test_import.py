"""What `import edt_sdk` costs and offers."""

import subprocess
import sys
import types

import pytest

import edt_sdk

SURFACE = [
    "Callback", "ChangedMeanwhile", "Client", "Conflict", "Deployment", "EdtError", "Experiment", "FabricModel",
    "InvalidRequest", "Job", "JobFailed", "JobState", "JobView", "LoggerCallback", "NotAllowed", "NotBuiltYet",
    "NotFound", "PackageError", "Project", "Search", "SearchTrial", "ServerUnreachable",
    "TooLarge", "Unprocessable", "Version", "WaitTimeout",
    "__version__", "choice", "integer", "load_ipython_extension", "log",
    "params", "uniform", "unload_ipython_extension",
]  # fmt: skip
HEAVY = "{'torch', 'numpy', 'IPython', 'ipywidgets', 'requests', 'jupyter_server', 'msgspec', 'tornado'}"


def run(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_public_surface():
    assert edt_sdk.__all__ == sorted(edt_sdk.__all__) == SURFACE == dir(edt_sdk)


@pytest.mark.parametrize("name", SURFACE)
def test_every_name_is_there(name):
    value = getattr(edt_sdk, name)
    assert value is getattr(edt_sdk, name)
    assert not isinstance(value, types.ModuleType)


def test_a_name_that_does_not_exist():
    with pytest.raises(AttributeError, match="has no attribute 'Cleint'"):
        edt_sdk.Cleint  # noqa: B018


def test_the_import_loads_nothing_heavy():
    assert run(f"import sys, edt_sdk; print({HEAVY} & set(sys.modules))") == "set()"


def test_the_client_loads_neither_torch_nor_a_front_end():
    heavy = "{'torch', 'numpy', 'IPython', 'ipywidgets', 'jupyter_server'}"
    assert run(f"import sys; from edt_sdk import Client, Job; print({heavy} & set(sys.modules))") == "set()"


def test_the_magics_load_neither_torch_nor_widgets_nor_the_network():
    code = (
        "import sys; from IPython.core.interactiveshell import InteractiveShell as S; s = S.instance();"
        "s.extension_manager.load_extension('edt_sdk');"
        "print({'torch', 'numpy', 'ipywidgets', 'requests', 'jupyter_server'} & set(sys.modules))"
    )
    assert run(code) == "set()"


def test_the_budget_of_the_import():
    """Counted by Python itself, in microseconds; it is a few thousand on any machine, 0.3 s is the limit."""
    done = subprocess.run([sys.executable, "-X", "importtime", "-c", "import edt_sdk"], capture_output=True, text=True)
    line = next(line for line in done.stderr.splitlines() if line.split("|")[-1].strip() == "edt_sdk")
    assert int(line.split("|")[1]) < 300_000
