"""When the front end is built, for which JupyterLab, and what is said where it cannot be."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys

import pytest

import hatch_build


@pytest.fixture
def copied(root, tmp_path):
    """The build program and the sources in a folder of their own, as after a fresh clone."""
    ignored = shutil.ignore_patterns("node_modules", ".yarn", "lib")
    shutil.copytree(root / "jupyter_ext" / "lab", tmp_path / "jupyter_ext" / "lab", ignore=ignored)
    shutil.copy(root / "hatch_build.py", tmp_path)
    spec = importlib.util.spec_from_file_location("copied_hatch_build", tmp_path / "hatch_build.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_it_is_built_anew_when_a_source_has_changed_and_only_then(copied):
    copied.BUILT.mkdir(parents=True)
    assert not copied.fresh()
    (copied.BUILT / copied.DIGEST).write_text(copied.digest() + "\n")
    assert not copied.fresh(), "the widget of monitors is missing"
    copied.WIDGET.parent.mkdir(parents=True)
    copied.WIDGET.touch()
    assert copied.fresh()
    assert copied.dependencies_of_a_build() == []
    source = copied.SOURCES / "src" / "index.ts"
    os.utime(source)
    assert copied.fresh()
    source.write_text(source.read_text() + "// changed\n")
    assert not copied.fresh()
    assert copied.dependencies_of_a_build() == hatch_build.REQUIRES


def test_without_the_registry_it_says_so_and_lab_can_go_on(copied, tmp_path):
    pytest.importorskip("jupyter_builder")
    environ = os.environ | {
        "HOME": str(tmp_path / "home"),  # no package that an earlier build has kept
        "YARN_NPM_REGISTRY_SERVER": "https://127.0.0.1:9",
        "YARN_HTTP_RETRY": "0",
    }
    done = subprocess.run(
        [sys.executable, str(tmp_path / "hatch_build.py")], env=environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == 3, done.stderr
    assert "The front end (JupyterLab panel, cards) is not built." in done.stderr
    assert "is that reachable from here?" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_types_are_those_of_the_openapi_description(root):
    spec = importlib.util.spec_from_file_location("make_types", root / "jupyter_ext" / "lab" / "make_types.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert {file: file.read_text(encoding="utf-8") for file in module.types()} == module.types(), "run `make types`"


def test_the_page_may_have_any_version_of_what_it_brings_that_we_are_made_for():
    """The builder would ask for those of the JupyterLab it builds with, and the console warn about all others."""
    package = json.loads((hatch_build.SOURCES / "package.json").read_text())
    shares = package["jupyterlab"]["sharedPackages"]
    own = {name for name, shared in shares.items() if shared is False}  # in our bundle, for no other extension
    assert own == {"uplot"}
    asked = {name: shared["requiredVersion"] for name, shared in shares.items() if name not in own}
    types_only = {"@jupyterlab/rendermime-interfaces"}
    assert asked == {name: package["dependencies"][name] for name in package["dependencies"].keys() - types_only - own}
