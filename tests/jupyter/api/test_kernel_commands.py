"""Which kernels run in a Python of this machine: told from the command that starts them, however that is written."""

from __future__ import annotations

import sys

import pytest
from ipykernel.kernelspec import install

from edt_jupyter.api.cluster import kernels_of


def kernel(*argv):
    return {"k": {"spec": {"argv": list(argv), "display_name": "K", "language": "python"}}}


@pytest.mark.parametrize(
    "words",
    [
        ("-m", "ipykernel_launcher", "-f", "{connection_file}"),
        ("-m", "ipykernel", "-f", "{connection_file}"),
        ("-Xfrozen_modules=off", "-m", "ipykernel_launcher", "-f", "{connection_file}"),
        ("-E", "-s", "-m", "ipykernel_launcher", "-f", "{connection_file}"),
    ],
)
def test_options_of_python_make_no_difference(words):
    assert kernels_of(kernel("/opt/bin/python", *words)) == {"/opt/bin/python": [("k", "K")]}


@pytest.mark.parametrize(
    "words",
    [
        ("run", "image", "python", "-m", "ipykernel_launcher", "-f", "{connection_file}"),
        ("--rm", "image", "-m", "ipykernel_launcher"),
        ("-m", "nb_conda_kernels.runner", "-m", "ipykernel_launcher"),
        ("-m",),
        (),
    ],
)
def test_what_is_started_through_something_else_is_none(words):
    assert kernels_of(kernel("/usr/bin/docker", *words)) == {}


@pytest.mark.parametrize("frozen", [True, False])
def test_those_that_ipykernel_itself_installs_are_known(tmp_path, frozen, jp_environ):
    from jupyter_client.kernelspec import KernelSpecManager

    install(prefix=str(tmp_path), kernel_name="mine", display_name="Mine", frozen_modules=frozen)
    found = KernelSpecManager(kernel_dirs=[str(tmp_path / "share" / "jupyter" / "kernels")])
    assert kernels_of({"mine": found.get_all_specs()["mine"]}) == {sys.executable: [("mine", "Mine")]}
