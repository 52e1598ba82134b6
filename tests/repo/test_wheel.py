"""What the wheel contains, and that a plain install of it works: extension enabled, WMLA's names importable."""

import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import zipfile

import pytest

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


def test_a_wheel_built_from_the_sdist_is_the_same(wheel, root, tmp_path):
    build = [sys.executable, "-m", "hatchling", "build", "-d", str(tmp_path)]
    subprocess.run([*build, "-t", "sdist"], cwd=root, check=True)
    (sdist,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    subprocess.run([*build, "-t", "wheel"], cwd=tmp_path / sdist.name.removesuffix(".tar.gz"), check=True)
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
        return subprocess.run(
            [python, *arguments], cwd=home, env=environ, capture_output=True, text=True, check=False, timeout=120
        )

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


def test_the_commands_are_installed(installed):
    for command in ("edt", "jupyter-edt"):
        done = subprocess.run(
            [installed.bin / command, "--help"], capture_output=True, text=True, check=False, timeout=60
        )
        assert done.returncode == 0, done.stderr
        assert "training" in done.stdout
